"""The commands: their arguments and help texts. Libraries and the modules of the work are imported when a command runs."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from layoutopt.cli.exit_codes import IncompatibleError, NotVerifiedError, UsageError
from layoutopt.cli.options import Given, complete_target, parse_dims, takes_options
from layoutopt.errors import CertificateError, OutputError, VerificationError


class Runtime(StrEnum):
    """The runtimes that `bench` can run models in."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"


class Kind(StrEnum):
    """The catalogues of `list`."""

    OPS = "ops"
    RUNTIMES = "runtimes"
    PASSES = "passes"
    DIALECTS = "dialects"


_MODELS = "ONNX files; folders, which are searched for *.onnx; patterns such as 'models/**/*.onnx'; `-` for stdin."
_ITEM = "A tensor or node; by default all conversions."


# --- models ------------------------------------------------------------------------------------------------


@takes_options(
    "output target runtime pin dim force config verify allow_unverified inputs custom_ops certificate measure calibrate "
    "threads jobs cluster cache json html external_data portable dry_run verbose"
)
def optimize(given: Given, models: Annotated[list[Path], Argument(metavar="MODEL", help=_MODELS)]) -> None:
    """Rewrite models for a target. `layoutopt model.onnx` is short for `layoutopt optimize model.onnx`.

    Both models are run in onnxruntime. A result whose outputs differ from those of the original is not written, nor is
    a result that cannot be compared. If no plan is estimated to be faster, OUT is a copy of MODEL. Of several models, a
    failure does not stop the others; the exit code is that of the first failure.
    """
    from layoutopt.cli.optimization import run_optimize

    if code := run_optimize(models, given):
        raise Exit(code)


@takes_options("show_all target runtime dim custom_ops html dump_ir json force config")
def inspect(
    given: Given,
    model: Annotated[Path, Argument(metavar="MODEL", help="The ONNX file.")],
) -> None:
    """Show formats and layout conversions, before and after planning.

    No model is written. For a model that layoutopt wrote, the options stored in the model are printed,
    unless --target or the configuration names a target.
    """
    from layoutopt.cli.inspection import run_inspect

    run_inspect(model, given)


@takes_options("limit target runtime pin dim custom_ops force json config")
def explain(
    given: Given,
    model: Annotated[Path, Argument(metavar="MODEL", help="The ONNX file.")],
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
    from layoutopt import explanation
    from layoutopt.cli.output_files import JsonRecord
    from layoutopt.cli.rendering.results import explanation_documents
    from layoutopt.cli.rendering.stderr import ProgressLine, warn_of_repairs
    from layoutopt.driver.options import PlanOptions
    from layoutopt.report.facts import repairs_of

    settings = given.settings(model)
    record = JsonRecord("explain", given, model, reads=settings.reads)
    with ProgressLine() as progress:
        found = explanation.explain(
            model,
            item,
            settings.target,
            limit=given.limit,
            calibrate=calibrate,
            progress=progress,
            **settings.arguments(PlanOptions),
        )
    warn_of_repairs(repairs_of(found.notes))
    record.show(found, *explanation_documents(found))


@takes_options("tolerance dim inputs custom_ops json config force quiet")
def verify(
    given: Given,
    original: Annotated[Path, Argument(metavar="A", help="The reference model.")],
    rewritten: Annotated[Path, Argument(metavar="B", help="The model to compare with A.")],
) -> None:
    """Compare the outputs of two models.

    Both are run in onnxruntime on the same random inputs, at three sizes if dimensions are symbolic. The error
    of an output is max |a - b| / max |a|. Outputs that `optimize --pin` stored in another format are converted
    back before they are compared. The exit code is 7 if the models differ, and 9 if A cannot be run.
    """
    from layoutopt.cli.model_comparison import compare_models
    from layoutopt.cli.output_files import JsonRecord
    from layoutopt.cli.rendering.records import comparison_record
    from layoutopt.cli.rendering.stderr import warn_of_repairs
    from layoutopt.cli.rendering.terminal import Document
    from layoutopt.runtime.custom_ops import kernel_libraries
    from layoutopt.sample_inputs import read_inputs

    settings = given.settings(original)
    arrays = [read_inputs(path) for path in settings.inputs]
    record = JsonRecord("verify", given, original, rewritten, reads=settings.reads)
    with kernel_libraries(settings.custom_ops):
        verdict, repaired = compare_models(
            original, rewritten, given.tolerance, parse_dims(settings.dim), arrays, strict=settings.strict
        )
    found = comparison_record(verdict)
    record.show(found, Document(title=f"{original} and {rewritten}", record=found))
    if verdict.status == "failed":
        hint = f"compare with {original}, or set --tolerance" if verdict.comparisons else "correct the model"
        raise VerificationError(verdict.reason, where=str(rewritten), hint=hint)
    if verdict.status == "not verified":
        hint = "give models that onnxruntime can run on this machine"
        raise NotVerifiedError(f"not verified: {verdict.reason}", where=str(original), hint=hint)
    for path, repairs in repaired.items():
        warn_of_repairs(repairs, str(path))


@takes_options("allow_tested json force quiet")
def certify(
    given: Given,
    original: Annotated[Path, Argument(metavar="A", help="The original.")],
    result: Annotated[Path, Argument(metavar="B", help="The result of `optimize`.")],
    certificate: Annotated[Path, Argument(metavar="C", help="The file of `optimize --certificate`.")],
) -> None:
    """Check the certificate C: a proof that B computes what A computes.

    The checker uses no planner and no pass. It proves every claim of C from the nodes of both models, and recomputes
    folded constants. Claims without a proof are refused; with --allow-tested they are compared on random inputs. The
    exit code is 15 if C is refused.
    """
    from layoutopt.certificate.checker.check import check, parse
    from layoutopt.certificate.checker.lemmas import BY_NAME
    from layoutopt.certificate.checker.model import read
    from layoutopt.certificate.producer import measure
    from layoutopt.cli.output_files import JsonRecord
    from layoutopt.cli.rendering.records import certificate_record
    from layoutopt.cli.rendering.terminal import Document

    record = JsonRecord("certify", given, original, result, certificate)
    first, second = read(original), read(result)
    try:
        text = certificate.read_text(encoding="utf-8")
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or "it is no text"
        raise CertificateError(f"cannot be read: {reason}", where=str(certificate)) from fault
    verdict = check(parse(text, str(certificate)), first, second, allow_tested=given.allow_tested)
    differences = measure(first, second, [claim for claim, _ in verdict.tested.values()])
    found = certificate_record(verdict, differences)
    lemmas = [
        {"lemma": name, "claims": count, "statement": BY_NAME[name].statement}
        for name, count in found["lemmas"].items()
    ]
    record.show(found, Document(title=f"{result} against {original}", record={**found, "lemmas": lemmas}))


@takes_options("show_all custom_ops json force quiet")
def check(
    given: Given,
    model: Annotated[Path, Argument(metavar="FILE", help="An ONNX file.")],
) -> None:
    """Check whether a model runs on this machine and its onnxruntime.

    Compares the block size that the weights are packed for with the block size of this machine, queries onnxruntime for
    a kernel for every operator and its element types, and loads the file. The exit code is 10 if the file is
    incompatible with this machine.
    """
    from layoutopt.cli.output_files import JsonRecord
    from layoutopt.cli.rendering.records import model_document, model_record
    from layoutopt.cli.rendering.stderr import ProgressLine
    from layoutopt.report.compatibility import check_model
    from layoutopt.runtime.custom_ops import kernel_libraries

    record = JsonRecord("check", given, model, reads=given.custom_ops)
    with kernel_libraries(given.custom_ops), ProgressLine() as progress:
        found = check_model(model, progress)
    shown = model_record(model, found)
    record.show(shown, model_document(shown, given.show_all))
    if found.problems:
        problem, hint = next(iter(found.problems.items()))
        raise IncompatibleError(problem, where=str(model), hint=hint)


@takes_options("seconds inputs seed threads dim custom_ops json config force quiet")
def bench(
    given: Given,
    models: Annotated[
        list[Path],
        Argument(metavar="MODEL", help="ONNX files, labelled A, B, ... in the order given; A is the baseline."),
    ],
    runtime: Annotated[
        list[Runtime] | None,
        Option("--runtime", metavar="R", help="onnxruntime or openvino. Can be repeated: models are run in each."),
    ] = None,
) -> None:
    """Time models against each other, in pairs.

    All models run in this process, in turns (A B, B A, A B, ...), on the same inputs, in each runtime with
    default session options. A speed-up is A's time divided by B's, as a mean over twelve blocks of runs, each with new
    sessions, and up to 36 on a busy machine, as `optimize` measures it. It is printed with its confidence interval.
    Also measured: session creation, and the share of the time in Transposes and reorders.
    """
    settings = given.settings(models[0])
    dims = {name: low for name, (low, high) in parse_dims(settings.dim).items() if low == high}
    if wrong := parse_dims(given.dim).keys() - dims.keys():
        raise UsageError("is a range", where=f"--dim {min(wrong)}", hint="give one size, as in batch=1")

    from layoutopt.bench.benchmark import bench as run_benchmark
    from layoutopt.cli.output_files import JsonRecord
    from layoutopt.cli.rendering.records import bench_document
    from layoutopt.cli.rendering.stderr import ProgressLine
    from layoutopt.errors import DimensionError, InputError
    from layoutopt.runtime.custom_ops import kernel_libraries
    from layoutopt.sample_inputs import read_inputs

    arrays = {name: array for path in given.inputs for name, array in read_inputs(path).items()}
    record = JsonRecord("bench", given, *models, reads=settings.reads)
    with kernel_libraries(given.custom_ops), ProgressLine(is_silent=given.quiet) as progress:
        try:
            report = run_benchmark(
                models,
                threads=settings.threads,
                seconds=given.seconds,
                seed=given.seed,
                dims=dims,
                inputs=arrays,
                runtimes=list(dict.fromkeys(each.value for each in runtime or [Runtime.ONNXRUNTIME])),
                progress=progress,
            )
        except (DimensionError, InputError) as error:
            option = "--dim" if isinstance(error, DimensionError) else f"--inputs {given.inputs[0]}:"
            raise UsageError(error.what, where=f"{option} {error.where}", hint=error.hint) from error
    record.show(report, bench_document(report))


@takes_options(
    "max_transposes max_casts max_bytes_moved min_speedup max_size_growth measured update_baseline github "
    "target runtime dim custom_ops threads jobs baseline write junit json force config quiet"
)
def ci(
    given: Given,
    models: Annotated[list[Path], Argument(metavar="MODEL", help=_MODELS)],
) -> None:
    """Check models against budgets and a baseline.

    Every model is planned for the target, without timing kernels, so that the numbers are the same on every
    machine. The exit code is 13 if a model is over a budget, 14 if one is worse than the baseline, and that of
    the error if a model could not be planned; the other models are checked all the same. No model is written
    without --write.
    """
    if given.update_baseline and given.baseline is None:
        raise UsageError("there is no baseline file", where="--update-baseline", hint="add --baseline FILE.json")
    if given.github and given.json == Path("-"):
        raise UsageError("the annotations are on stdout", where="--json -", hint="write the JSON to a file")

    from layoutopt.cli.gating import run_ci

    if code := run_ci(models, given):
        raise Exit(code)


# --- this machine and this installation --------------------------------------------------------------------


@takes_options("threads json force quiet")
def calibrate(
    given: Given,
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE.toml", help="The target file to write, for --target.")
    ] = Path("calibrated.toml"),
) -> None:
    """Measure this machine, and write a cost model for it.

    Times onnxruntime's kernels, layout conversions and the cost of a node, on a grid of shapes from common
    networks, and fits the parameters of this machine's target to them. Prints the median error of each kernel
    before and after the fit. Takes less than a minute.
    """
    if output.suffix != ".toml":
        hint = "use a name that ends in .toml, as --target requires"
        raise UsageError("not a target file", where=f"-o {output}", hint=hint)

    from layoutopt.calibrate import calibrate as run_calibration
    from layoutopt.cli.output_files import JsonRecord
    from layoutopt.cli.rendering.stderr import ProgressLine
    from layoutopt.cli.rendering.terminal import Document
    from layoutopt.files import FileKind

    record = JsonRecord("calibrate", given)
    record.add("--output", output, FileKind.TARGET, lambda: report.profile)
    with ProgressLine(is_silent=given.quiet) as progress:
        report = run_calibration(threads=given.threads, progress=progress)
    shown = report.model_dump(exclude={"kernels", "profile"})
    record.show(report, Document(title=str(output), record=shown, note=f"Plan with it: --target {output}"))


@takes_options("shape dtype system json force")
def formats(
    given: Given,
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A name like NC1HWC0, or a notation like NCHW16c.")
    ] = None,
) -> None:
    """List memory formats, or describe one.

    With NAME and --shape, prints strides, padding, size in memory, and the element at each offset.
    """
    extents = _parse_shape(given.shape) if given.shape is not None else None
    if name is None and (given.shape or given.dtype):
        raise UsageError("no format", where="--shape" if given.shape else "--dtype", hint="name a format too")

    from layoutopt.cli.output_files import JsonRecord
    from layoutopt.cli.rendering.catalogues import formats as catalogue
    from layoutopt.cli.rendering.one_format import one_format

    record = JsonRecord("formats", given)
    data, documents = catalogue(given.system) if name is None else one_format(name, extents, given.dtype)
    record.show(data, *documents)


def _parse_shape(value: str) -> tuple[int, ...]:
    """Parse a shape: `1,17,5,4`, `1x17x5x4` or `[1, 17, 5, 4]`; the empty text is a scalar.

    Raises:
        UsageError: the text is not a shape.
    """
    numbers = [number.strip() for number in value.strip("[]() ").replace("x", ",").split(",") if number.strip()]
    if not all(number.isdecimal() for number in numbers):
        raise UsageError("not a shape", where=f"--shape {value}", hint="write it like 1,17,5,4")
    return tuple(map(int, numbers))


@takes_options("new json force")
def targets(
    given: Given,
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
    if given.new is not None:
        from layoutopt.cost_models.template import template
        from layoutopt.files import FileKind, Overwrite, path_text, write_text

        output = given.new.with_name(f"{given.new.name.removesuffix('.toml')}.toml")
        if os.path.lexists(output) and not given.force:  # it is written to be edited
            raise OutputError("exists", where=path_text(output), hint="name another file, or add --force to replace it")
        write_text(output, template(output.stem), FileKind.TARGET, Overwrite(force=True, command="targets"))
        return

    from layoutopt.cli.output_files import JsonRecord
    from layoutopt.cli.rendering import catalogues

    reads = [Path(name)] if name is not None and name.endswith(".toml") else []
    record = JsonRecord("targets", given, reads=reads)
    data, documents = catalogues.targets() if name is None else catalogues.one_target(name)
    record.show(data, *documents)


@takes_options("family json force")
def list_(
    given: Given,
    kind: Annotated[Kind, Argument(metavar="ops|runtimes|passes|dialects", help="What to list.")],
    name: Annotated[
        str | None, Argument(metavar="NAME", help="An operator such as Conv, or part of a name, in any case.")
    ] = None,
) -> None:
    """List operators, runtimes, passes or dialects.

    Operators are listed with their formats and padding, or with the reason why they have no layout rule; passes in the
    order in which they run.
    """
    if kind is not Kind.OPS and (name or given.family):
        raise UsageError(
            "is for operators", where=name or f"--family {given.family}", hint="write layoutopt list ops NAME"
        )

    from layoutopt.cli.output_files import JsonRecord
    from layoutopt.cli.rendering import catalogues

    record = JsonRecord(f"list {kind.value}", given)
    is_ops = kind is Kind.OPS
    data, documents = catalogues.operators(name, given.family) if is_ops else getattr(catalogues, kind.value)()
    record.show(data, *documents)
