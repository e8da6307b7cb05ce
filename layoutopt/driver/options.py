"""The options of `optimize`, `optimize_many` and `explain`, each declared once: type, default, limits, help text and scope.

`takes` makes them the arguments of the Python functions. The command line (`layoutopt.cli.options`), the keys of a
configuration and their JSON schema (`layoutopt.cli.config`), `--help` and the tables of docs/cli.md are generated from them.
No large library is imported here, since `layoutopt --help` imports this module.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, Field, dataclass, field, fields
from functools import cache, partial, wraps
from inspect import cleandoc, signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar

from layoutopt.errors import ArgumentError
from layoutopt.record import Record

if TYPE_CHECKING:
    from layoutopt.driver.job import Model, Target
    from layoutopt.formats import Format
    from layoutopt.ir.sizes import Dims, Sizes
    from layoutopt.passes.base import Pipeline, Watch
    from layoutopt.runtime.custom_ops import Libraries
    from layoutopt.sample_inputs import Given

BASICS, CHECKS, MEASURING = "Basics", "Checks", "Measuring"
MANY, OUTPUT = "Many models", "Output"
"""The groups of options in `--help`."""

LOADS_CODE, NAMES_OUTPUT = "loads code", "names a file to be written"
"""Why a configuration, which may be a stranger's, must not set an option."""

P = ParamSpec("P")
Options_ = TypeVar("Options_")
Returned = TypeVar("Returned")


class Declaration(Record):
    """The declaration of an option beside its name and default.

    Attributes:
        help: the help text.
        key: the name in a configuration, and of the option without its dashes.
        kind: the type on the command line and in a configuration.
        flags: the spellings of a typed option, besides the key.
        metavar: the placeholder of the value.
        group: the group in `--help`; empty for a key that is set with `--config` only.
        least, above: the lower limit of numbers, included or excluded.
        scope: what a configuration sets it for: all "models", "one model", the whole "run", "budgets", or nothing.
        refusal: why a configuration must not set it.
    """

    help: str
    key: str = ""
    kind: Any = None
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    group: str = ""
    least: float | None = None
    above: float | None = None
    scope: Literal["models", "one model", "run", "budgets", ""] = "models"
    refusal: str = ""

    @property
    def has_limits(self) -> bool:
        """Whether there is a limit of numbers."""
        return (self.least, self.above) != (None, None)


def option(default: Any, help: str, *flags: str, refusal: str = "", **declared: Any) -> Any:
    """A field of a dataclass of options; the keywords are those of `Declaration`."""
    if refusal:
        declared["scope"] = ""
    return field(default=default, metadata={"option": Declaration(help, flags=flags, refusal=refusal, **declared)})


written_file = partial(option, None, metavar="FILE", group=OUTPUT, refusal=NAMES_OUTPUT)
"""The option of a file to be written."""


def declared(options: Any) -> Iterator[tuple[Field[Any], Declaration]]:
    """The fields of a dataclass that are options, with their declarations."""
    for each in fields(options):
        if (declaration := each.metadata.get("option")) is not None:
            yield each, declaration


def key_of(name: Field[Any]) -> str:
    """The key of an option, such as `max-growth`."""
    return name.metadata["option"].key or name.name.replace("_", "-")


def values_of(options: Any, kind: Any) -> dict[str, Any]:
    """The values of those options that `kind`, a base of the dataclass, declares."""
    return {each.name: getattr(options, each.name) for each in fields(kind)}


def takes(options: Callable[P, Options_]) -> Callable[[Callable[[Options_], Returned]], Callable[P, Returned]]:
    """Decorator of a function of options: it takes the fields of the dataclass as its arguments."""

    def decorate(function: Callable[[Options_], Returned]) -> Callable[P, Returned]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Returned:
            return function(options(*args, **kwargs))

        returned = signature(function).return_annotation
        call.__signature__ = signature(options).replace(return_annotation=returned)  # type: ignore[attr-defined]
        bases = [each for each in reversed(getattr(options, "__mro__", ())) if each is not object]
        texts = [cleandoc(each.__doc__ or "").partition("Attributes:\n")[2] for each in bases]
        before, _, rest = cleandoc(function.__doc__ or "").partition("    options: ")
        call.__doc__ = f"{before}{chr(10).join(filter(None, texts))}\n{rest.partition(chr(10))[2]}"
        return call

    return decorate


def check(options: Any) -> None:
    """Check the types and limits of the options that the declarations contain.

    Raises:
        ArgumentError: a value is wrong.
    """
    for each, declaration in declared(options):
        value = getattr(options, each.name)
        if isinstance(each.type, str) or declaration.kind is not None or value is each.default:
            continue
        if (wrong := fault(each, value)) is not None:
            hint = f"it is: {declaration.help[:1].lower()}{declaration.help[1:].rstrip('.')}"
            raise ArgumentError(wrong, where=f"{each.name}={value!r:.80}", hint=hint)


def fault(name: Field[Any], value: object) -> str | None:
    """What is wrong with the type or the limits of a value; None if nothing is."""
    from pydantic import ValidationError

    try:
        _adapter(name).validate_python(getattr(value, "item", lambda: value)())  # numpy's numbers, too
    except ValidationError as error:
        return error.errors()[0]["msg"].replace("Input should be", "should be")
    return None


@cache
def _adapter(name: Field[Any]) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(limited(name), config=ConfigDict(strict=True))


def limited(name: Field[Any]) -> Any:
    """The type of an option on the command line, with its limits, for pydantic."""
    from pydantic import Field as Limits

    declaration = name.metadata["option"]
    kind = declaration.kind or name.type
    if not declaration.has_limits:
        return kind
    return Annotated[kind, Limits(ge=declaration.least, gt=declaration.above, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of a plan.

    Attributes:
        runtime: the program that runs the result: "onnxruntime", "any" (standard operators alone) or "compiler" (one that reads
            formats); None for the target's own. The plan has the kernels that both the target and the runtime have.
        pins: formats that graph inputs, outputs or other values must have, by name: a Format or a name like "NHWC", with the
            letters of the value's axes as reports print them.
        devices: the device of a platform that runs some ops, by op type or by the beginning of their names:
            {"NonMaxSuppression": "cpu", "/backbone/": "npu"}.
        dims: sizes of symbolic dimensions to plan for and to verify at, or ranges of them, by name, or by `input[axis]` where
            they have none: {"batch": 1, "height": (256, 1024)}. They stay symbolic, and the result is right at every size.
        time_limit: seconds for planning, candidates to solver, after which the best plan so far is used, with its gap.
        profile: a file of kernel times to plan with, of this machine or another one: none is timed then, so that a model gets
            the same plan everywhere.
        strict: refuse a model with a fault that onnxruntime tolerates, such as a wrong declared shape. Otherwise the fault is
            repaired, and a note of the report with the source "read" names it.
        custom_ops: the path of a shared library with kernels of custom operators, or several; onnxruntime uses them to fold
            constants and to verify.
    """

    runtime: str | None = option(
        None, "The program that runs the result: see `layoutopt list runtimes`.", metavar="R", group=BASICS
    )
    pins: "Mapping[str, Format | str] | None" = option(
        None,
        "A format that a tensor must have, with the letters that `inspect` prints. Can be repeated.",
        key="pin",
        kind=list[str],
        metavar="NAME=FORMAT",
        group=BASICS,
        scope="one model",
    )
    devices: Mapping[str, str] | None = option(
        None,
        "The device of a platform that runs ops of a type, or ops whose names begin like this. Can be repeated.",
        key="device",
        kind=list[str],
        metavar="NAME=OP",
        group=BASICS,
    )
    dims: "Dims | None" = option(
        None,
        "The size of a symbolic dimension or of INPUT[AXIS]; or LOW:HIGH, its range of sizes. Can be repeated.",
        key="dim",
        kind=list[str],
        metavar="NAME=SIZE",
        group=BASICS,
    )
    time_limit: float | None = option(
        None, "Seconds for the planner; then the best plan found so far is used.", metavar="S", above=0
    )
    profile: str | PathLike[str] | None = option(
        None, "Plan with the kernel times in this file, and time none.", kind=Path, metavar="FILE"
    )
    strict: bool = option(False, "Refuse a model with a fault that onnxruntime tolerates, instead of repairing it.")
    custom_ops: "Libraries" = option(
        (),
        "A library with kernels of custom operators for onnxruntime; can be repeated.",
        kind=list[Path],
        metavar="LIB.so",
        group=CHECKS,
        refusal=LOADS_CODE,
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions(PlanOptions):
    """The options that determine the result of a model.

    Attributes:
        dialect: the form of the result, "functions", "ascend", "onnxruntime", "standard" or "ops"; None for
            the runtime's own.
        mode: "inference" packs weights ahead of time; "training" leaves them and their casts in the graph.
        verify: compare the result with the original, on random inputs unless some are given.
        allow_unverified: return a result that could not be compared with the original; by default that is an error.
        max_growth: the largest ratio of the sizes of all constants after and before, beyond a growth of 1 MiB, which is always
            permitted. Rewrites that enlarge constants are selected by estimated gain per byte: `report.growth`.
        sessions: "balanced", or "fast" for faster session creation in onnxruntime at the cost of runs: constants of matrix
            products are not prepacked. Only in the dialect "onnxruntime"; best with external data, which is then mapped.
        portable: write a model for all machines: its native kernels run where blocks have the size of the target, and standard
            operators, planned for the runtime "any", on all other machines. Weights of convolutions are in the file twice.
        measure: run the original and the result in turns, for one to three seconds, if this machine's onnxruntime has the
            kernels of the result. The original stays unchanged if the result is slower: `report.measurement`.
        threads: threads of the sessions that are measured and of the kernels that are timed; with one, the process is pinned to
            one CPU.
        calibrate: plan for this machine with kernels that are timed on it, for up to five seconds, and kept in the user's cache
            folder: `report.calibration`. Otherwise the plan has the prices of the target.
    """

    dialect: str | None = option(None, "The form of the result: see `layoutopt list dialects`.", metavar="D")
    mode: Literal["inference", "training"] = option(
        "inference", "training: weights and their layout conversions stay in the graph."
    )
    verify: bool = option(True, "Compare the result with the original on random inputs.", group=CHECKS)
    allow_unverified: bool = option(
        False, "Write the result even if it cannot be compared with the original on this machine.", group=CHECKS
    )
    max_growth: float = option(2.2, "The size limit of all constants, relative to MODEL.", metavar="X", least=1)
    sessions: Literal["balanced", "fast"] = option(
        "balanced", "fast: sessions of onnxruntime are created faster, runs take longer; best with --external-data."
    )
    portable: bool = option(
        False, "Write a file for all machines: native kernels where they fit, else standard operators.", group=OUTPUT
    )
    measure: bool = option(True, "Run both models in turns, and keep MODEL if OUT is slower.", group=MEASURING)
    threads: int = option(1, "Threads of the sessions that are measured.", metavar="N", group=MEASURING, least=1)
    calibrate: bool = option(True, "Plan with kernels timed on this machine, for up to 5 s.", group=MEASURING)


def _target() -> Any:
    return option(
        "cpu",
        "The hardware: a name from `layoutopt targets`, or a file T.toml; cpu is this machine.",
        "-t",
        kind=str,
        metavar="T",
        group=BASICS,
    )


@dataclass(frozen=True)
class Options(ModelOptions):
    """The arguments of `optimize`.

    Attributes:
        model: a path, the bytes of a file, a binary file object, or a model of onnx or onnx_ir, which is not changed.
        target: a target's name ("gpu-hopper"; "cpu" for this machine), the path of a target file, or a cost model. Several
            names separated by commas ("gpu-hopper,ascend-910b"), or a list of names and cost models, get one plan with the
            smallest worst regret: `report.plan.targets`.
        inputs: arrays by the name of the input, or several sets of them: the result is compared with the original on these
            arrays and on small perturbations of them, instead of random inputs. Symbolic dimensions get their sizes.
        pipeline: passes to run before lowering in place of the default ones. The passes of the dialect follow.
        watch: called before and after every pass, with the graph.
        progress: called with the name of every step as it begins.
        sizes_found: called with the sizes that the model is planned for, before the first pass.
    """

    model: "Model"
    target: "Target" = _target()
    _: KW_ONLY
    inputs: "Given | None" = option(
        None,
        "Input arrays to compare on, by name, written by numpy.savez. Can be repeated: one file per set of inputs.",
        kind=list[Path],
        metavar="FILE.npz",
        group=CHECKS,
        scope="one model",
    )
    pipeline: "Pipeline | None" = None
    watch: "Watch | None" = None
    progress: Callable[[str], None] | None = None
    sizes_found: "Callable[[Sizes], None] | None" = None


@dataclass(frozen=True)
class BatchOptions(ModelOptions):
    """The arguments of `optimize_many`.

    Attributes:
        models: the files, or a mapping from the files to those of the results.
        target: a target's name, a target file, or several of these separated by commas.
        output: the folder of the results, which have the names of the models; None to write none.
        external_data: the name of a file for weights, next to each result: only for results in different folders.
        force: replace existing files that are no results of their models.
        jobs: the number of worker processes. By default as many as the memory and the CPU cores of this machine permit, one
            if times are measured on it; 0 for none: then the models are optimised in this process, one after the other.
        cluster: `dask://HOST:PORT`, `ray://HOST:PORT` or another URL of `layoutopt.batch.open_cluster`, whose workers have
            layoutopt and the same folders.
        cache: the folder of outcomes. A model whose outcome is there is not optimised again; others are added.
    """

    models: "Iterable[str | PathLike[str]] | Mapping[str | PathLike[str], str | PathLike[str]]"
    target: str = _target()
    _: KW_ONLY
    output: str | PathLike[str] | None = option(
        None,
        "The file to write, or the folder for the results of several models; `-` for stdout. By default MODEL.opt.onnx next "
        "to each MODEL.",
        "-o",
        kind=str,
        metavar="OUT",
        group=BASICS,
        refusal=NAMES_OUTPUT,
    )
    external_data: str | None = option(
        None, "Store weights in this file next to OUT.", metavar="NAME", group=OUTPUT, refusal=NAMES_OUTPUT
    )
    force: bool = option(
        False,
        "Replace existing files of any kind, and weights that other models in the folder use.",
        group=BASICS,
        scope="",
    )
    jobs: int | None = option(
        None,
        "Worker processes for several models; 0 for none. By default as many as memory and CPU cores permit, or one if times "
        "are measured.",
        "-j",
        metavar="N",
        group=MANY,
        least=0,
        scope="run",
    )
    cluster: str | None = option(
        None,
        "Optimise several models in a cluster: dask://HOST:PORT, ray://HOST:PORT, ray://auto, dask://local or ray://local.",
        metavar="URL",
        group=MANY,
        refusal=LOADS_CODE,
    )
    cache: str | PathLike[str] | None = option(
        None,
        "Keep the outcomes of several models in this folder; a model whose outcome is there is not optimised again.",
        kind=Path,
        metavar="FOLDER",
        group=MANY,
        refusal=NAMES_OUTPUT,
    )
