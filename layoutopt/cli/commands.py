"""The commands: their arguments and help texts.

A command is run by the function of its name in the module that `takes_options` names, which is imported when it runs.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

from typer import Argument, Option

from layoutopt.cli.options import complete_target, takes_options


class Kind(StrEnum):
    """The catalogues of `list`."""

    OPS = "ops"
    RUNTIMES = "runtimes"
    PASSES = "passes"
    DIALECTS = "dialects"


_SEVERAL = "ONNX files; folders, which are searched for *.onnx; patterns such as 'models/**/*.onnx'; `-` for stdin."
_Models: TypeAlias = Annotated[list[Path], Argument(metavar="MODEL", help=_SEVERAL)]
_Model: TypeAlias = Annotated[Path, Argument(metavar="MODEL", help="The ONNX file.")]
_ITEM = "A tensor or node; by default all conversions."


# --- models ------------------------------------------------------------------------------------------------


@takes_options(
    "optimization",
    "output target runtime device pin dim force config verify allow_unverified inputs custom_ops certificate measure calibrate "
    "threads jobs cluster cache json html external_data split portable dry_run verbose",
)
def optimize(models: _Models) -> None:
    """Rewrite models for a target. `layoutopt model.onnx` is short for `layoutopt optimize model.onnx`.

    Both models are run in onnxruntime. A result whose outputs differ from those of the original is not written, nor is
    a result that cannot be compared. If no plan is estimated to be faster, OUT is a copy of MODEL. Of several models, a
    failure does not stop the others; the exit code is that of the first failure.
    """


@takes_options("inspection", "show_all target runtime device dim custom_ops html dump_ir json force config")
def inspect(
    model: _Model,
) -> None:
    """Show formats and layout conversions, before and after planning.

    No model is written. For a model that layoutopt wrote, the options stored in the model are printed, unless
    --target or the configuration names a target, or a page or graphs are written.
    """


@takes_options("inspection", "limit target runtime device pin dim custom_ops force json config")
def explain(
    model: _Model,
    item: Annotated[str | None, Argument(metavar="TENSOR|NODE", help=_ITEM, show_default=False)] = None,
    calibrate: Annotated[
        bool, Option("--calibrate", help="Plan with kernels timed on this machine, as `optimize` does.")
    ] = False,
) -> None:
    """Explain the layout conversions of a plan.

    Why the plan has each conversion, and what would remove it. Alternatives are priced by the integer program of the
    plan, by default at the prices of the target. With a tensor or node: its formats, its candidates, and the best plan
    with each of them. No model is written.
    """


@takes_options("model_comparison", "tolerance dim inputs custom_ops json config force quiet")
def verify(
    original: Annotated[Path, Argument(metavar="A", help="The reference model.")],
    rewritten: Annotated[Path, Argument(metavar="B", help="The model to compare with A.")],
) -> None:
    """Compare the outputs of two models.

    Both are run in onnxruntime on the same random inputs, at three sizes if dimensions are symbolic. The error
    of an output is max |a - b| / max |a|. Outputs that `optimize --pin` stored in another format are converted
    back before they are compared. The exit code is 7 if the models differ, and 9 if A cannot be run.
    """


@takes_options("model_comparison", "allow_tested json force quiet")
def certify(
    original: Annotated[Path, Argument(metavar="A", help="The original.")],
    result: Annotated[Path, Argument(metavar="B", help="The result of `optimize`.")],
    certificate: Annotated[Path, Argument(metavar="C", help="The file of `optimize --certificate`.")],
) -> None:
    """Check the certificate C: a proof that B computes what A computes.

    The checker uses no planner and no pass. It proves every claim of C from the nodes of both models, and recomputes
    folded constants. Claims without a proof are refused; with --allow-tested they are compared on random inputs. The
    exit code is 15 if C is refused.
    """


@takes_options("machine", "show_all custom_ops json force quiet")
def check(
    model: Annotated[Path, Argument(metavar="FILE", help="An ONNX file.")],
) -> None:
    """Check whether a model runs on this machine and its onnxruntime.

    Compares the block size that the weights are packed for with the block size of this machine, queries onnxruntime for
    a kernel for every operator and its element types, and loads the file. The exit code is 10 if the file is
    incompatible with this machine.
    """


@takes_options("machine", "seconds inputs seed threads dim custom_ops json config force quiet")
def bench(
    models: Annotated[
        list[Path],
        Argument(metavar="MODEL", help="ONNX files, labelled A, B, ... in the order given; A is the baseline."),
    ],
    runtime: Annotated[
        list[str] | None,
        Option(
            "--runtime",
            metavar="R",
            help="onnxruntime, openvino, ... Can be repeated: models are run in each.",
        ),
    ] = None,
) -> None:
    """Time models against each other, in pairs.

    All models run in this process, in turns (A B, B A, A B, ...), on the same inputs, in each runtime with
    default session options. A speed-up is A's time divided by B's, as a mean over twelve blocks of runs, each with new
    sessions, and up to 36 on a busy machine, as `optimize` measures it. It is printed with its confidence interval.
    Also measured: session creation, and the share of the time in Transposes and reorders.
    """


@takes_options(
    "gating",
    "max_transposes max_casts max_bytes_moved min_speedup max_size_growth update_baseline github "
    "target runtime dim custom_ops threads jobs baseline junit json force config quiet",
)
def ci(
    models: _Models,
) -> None:
    """Check models against budgets and a baseline.

    Every model is planned for the target, without timing kernels, so that the numbers are the same on every
    machine. The exit code is 13 if a model is over a budget, 14 if one is worse than the baseline, and that of
    the error if a model could not be planned; the other models are checked all the same. No model is written.
    """


# --- this machine and this installation --------------------------------------------------------------------


@takes_options("machine", "threads json force quiet")
def calibrate(
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE.toml", help="The target file to write, for --target.")
    ] = Path("calibrated.toml"),
) -> None:
    """Measure this machine, and write a cost model for it.

    Times onnxruntime's kernels, layout conversions and the cost of a node, on a grid of shapes from common
    networks, and fits the parameters of this machine's target to them. Prints the median error of each kernel
    before and after the fit. Takes less than a minute.
    """


@takes_options("catalogues", "shape dtype system json force")
def formats(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A name like NC1HWC0, or a notation like NCHW16c.")
    ] = None,
) -> None:
    """List memory formats, or describe one.

    With NAME and --shape, prints strides, padding, size in memory, and the element at each offset.
    """


@takes_options("catalogues", "new json force")
def targets(
    name: Annotated[
        str | None,
        Argument(
            metavar="NAME", help="A target; `cpu` is this machine; or a file T.toml.", autocompletion=complete_target
        ),
    ] = None,
) -> None:
    """List hardware targets, or describe one.

    With NAME, prints every parameter of the cost model with its source, and the kernels.
    """


@takes_options("catalogues", "json force")
def list_(
    kind: Annotated[Kind, Argument(metavar="ops|runtimes|passes|dialects", help="What to list.")],
    name: Annotated[
        str | None, Argument(metavar="NAME", help="An operator such as Conv, or part of a name, in any case.")
    ] = None,
) -> None:
    """List operators, runtimes, passes or dialects.

    Operators are listed with their formats and padding, or with the reason why they have no layout rule; passes in the
    order in which they run.
    """
