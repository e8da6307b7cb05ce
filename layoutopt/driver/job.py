"""One call of `layoutopt.optimize`: its arguments, which are checked before a model is read, and the results of its stages."""

import gc
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from operator import index
from os import PathLike
from time import perf_counter
from typing import Any, BinaryIO, TypeAlias

import onnx
import onnx_ir
from msgspec import Struct, field

from layoutopt import onnx_io
from layoutopt.cost import CostModel, MultiTargetCostModel, Platform, for_targets, targets_of
from layoutopt.cost_models import RuntimeSpec, find_runtime, find_target, runtime_of, target_texts
from layoutopt.dialects import DIALECTS, Dialect, Functions
from layoutopt.driver.model_faults import reporting_invalid_model
from layoutopt.driver.options import Options, check
from layoutopt.errors import ArgumentError, DimensionError, ExtensionError, FormatError, TargetError
from layoutopt.files import path_text
from layoutopt.formats import Format, lookup
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims, Range, as_range
from layoutopt.ir.types import DType, Value
from layoutopt.passes import EXTENSIONS, default_pipeline, extensions_behind_lowering
from layoutopt.passes.base import Moment, Pass, PassContext, PassResult, Pipeline
from layoutopt.registry import package_of
from layoutopt.report.schema import Counts, GainReport, MeasurementReport, PortableReport, PricesReport
from layoutopt.runtime.custom_ops import kernel_libraries
from layoutopt.runtime.engines import Engine, OnnxRuntime, find_engine
from layoutopt.sample_inputs import InputSet, input_sets
from layoutopt.verification import Verification

_LOGGER = logging.getLogger("layoutopt")

Model: TypeAlias = str | PathLike[str] | bytes | BinaryIO | onnx.ModelProto | onnx_ir.Model
Target: TypeAlias = str | CostModel | Iterable[str | CostModel]

_MODEL_HINT = "give a path, bytes, a binary file, an onnx.ModelProto or an onnx_ir.Model"
_TARGET_HINT = "give a name, the path of a .toml file, a cost model, or a list of these"

LOWER = "lower"
"""The step before the passes of a dialect; a pass of an installed package may name it in `after`, not in `before`."""

_THRESHOLDS = (1_000_000, 10, 10)
"""New objects per collection of the youngest generation, and collections of one generation per collection of the next."""


class Job(Struct):
    """One call of `optimize`.

    Attributes:
        name: the model's path, or "model".
        options: the arguments of the call.
        given: the model as the caller passed it; bytes and files are parsed.
        given_inputs: the arrays for verification; empty for random arrays.
        dims: the sizes of symbolic dimensions.
        stamp: the options in the metadata that identifies the result; `pin_axes` are the letters of the axes under which pins
            were read, where these are not the default ones.
        target_model: the cost model of the target with all its kernels, also those that the runtime lacks.
        runtime: the program that runs the result.
        engine: its adapter, if the result is run on this machine in another program than onnxruntime; None otherwise.
        dialect: the output dialect.
        pipeline: the passes before lowering.
        context: the state that passes share.
        start: the time at which the call began, in seconds.
        counts: the numbers of casts and transposes of the lifted model.
        passes: the result of each pass.
        verification: the verdict; None before verification.
        gain: the estimated gain of the plan; None before planning, and for several targets.
        calibration: the kernels that were timed for the plan; None before planning.
        measurement: the measured speed-up; None before it.
        portable: the branches of a portable result; None for any other one.
    """

    name: str
    options: Options
    given: str | PathLike[str] | onnx.ModelProto | onnx_ir.Model
    given_inputs: tuple[InputSet, ...]
    dims: Dims
    stamp: dict[str, Any]
    target_model: CostModel
    runtime: RuntimeSpec
    engine: Engine | None
    dialect: Dialect
    pipeline: Pipeline
    context: PassContext
    start: float = field(default_factory=perf_counter)
    counts: Counts = field(default_factory=Counts)
    passes: list[PassResult] = field(default_factory=list)
    verification: Verification | None = None
    gain: GainReport | None = None
    calibration: PricesReport | None = None
    measurement: MeasurementReport | None = None
    portable: PortableReport | None = None

    @classmethod
    def of(cls, options: Options) -> "Job":
        """Check the arguments of a call.

        Raises:
            ArgumentError, TargetError, FormatError, DimensionError: an argument is wrong.
        """
        check(options)
        check_types(options)
        texts, sizes = checked_pins(options.pins), checked_dims(options.dims)
        target_model = cost_model_of(options.target)
        platform = target_model if isinstance(target_model, Platform) else None
        devices = checked_devices(options.devices, platform)
        runtime, dialect = runtime_and_dialect(options.runtime, options.dialect, target_model)
        check_dialect(options, dialect)
        if platform is not None and (dialect.is_native or runtime.engine):
            what, hint = "is not for the devices of a platform", "leave the dialect and the runtime out, or name others"
            raise ArgumentError(what, where=runtime.name if runtime.engine else dialect.name, hint=hint)
        stamp = {
            "target": target_model.name,
            "runtime": runtime.name,
            "dialect": dialect.name,
            "pins": texts,
            "dims": {name: as_range(given) for name, given in sizes.items()},
            **{name: getattr(options, name) for name in ("mode", "max_growth", "portable", "sessions")},
            **({"devices": devices} if devices else {}),
        }
        if platform is not None or ".toml" in str(options.target):  # a file that may change, unlike a built-in target
            stamp["prices"] = blake2b(repr(target_texts(target_model)).encode(), digest_size=8).hexdigest()
        context = PassContext(
            runtime.restricted(target_model),
            options.mode,
            time_limit=options.time_limit,
            kernels=dialect.kernels,
            keeps_qdq_groups=dialect.keeps_qdq_groups,
            sessions=options.sessions,
            find_epilogues=runtime.epilogues,
            platform=platform,
            devices=devices,
        )
        return cls(
            path_text(options.model) if isinstance(options.model, str | PathLike) else "model",
            options,
            as_message(options.model),
            input_sets(options.inputs),
            sizes,
            stamp,
            target_model,
            runtime,
            engine_of(runtime, options),
            dialect,
            options.pipeline or default_pipeline(options.mode),
            context,
        )

    def again(self, exact: frozenset[tuple[str, str]]) -> "Job":
        """The same call from its start, without some of the rewrites that change rounding: `PassContext.exact`."""
        job = Job.of(replace(self.options, model=self.given))
        job.name, job.start = self.name, self.start
        job.context.exact = exact
        return job

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context manager of the stages: an exception counts as caused by the model if onnxruntime refuses it as well."""
        libraries = kernel_libraries(self.options.custom_ops)
        with reduced_garbage_collection(), libraries, reporting_invalid_model(self.given, self.dims):
            yield

    @property
    def path(self) -> str | None:
        """The file of the model; None if the model was passed in memory."""
        return str(self.given) if isinstance(self.given, str | PathLike) else None

    @property
    def source(self) -> str | onnx.ModelProto | None:
        """The original, which is returned byte for byte if the model stays unchanged; None if it has no serialized form."""
        return self.given if isinstance(self.given, onnx.ModelProto) else self.path

    def progress(self, step: str) -> None:
        """Log the start of a stage, and report it to the caller."""
        _LOGGER.info("%s: %s", self.name, step)
        if self.options.progress is not None:
            self.options.progress(step)

    def watch(self, moment: Moment, step: Pass, graph: Graph) -> None:
        """Report the start of a pass, and call the caller's `watch`."""
        if moment == "before":
            self.progress(step.name)
        if self.options.watch is not None:
            self.options.watch(moment, step, graph)


# --- the pipeline ------------------------------------------------------------------------------------------


def lowered_passes(dialect: Dialect) -> tuple[Pass, ...]:
    """The passes of a dialect on the lowered graph, with the passes of installed packages that name one of them.

    Raises:
        ExtensionError: a pass of a package cannot be loaded, or names a pass that is in no pipeline.
    """
    added = extensions_behind_lowering()
    known = {step.name for each in DIALECTS.values() for step in each.passes} if added else set()
    known |= {each.name for each in added.values()}
    for name, each in added.items():
        if (neighbour := each.before or each.after) not in known and each.after != LOWER:
            where = f"package {package_of(EXTENSIONS.found[name])}: pass {each.name}"
            raise ExtensionError(f"no pass '{neighbour}' to run next to", where=where, hint="see layoutopt list passes")
    first = [each for each in added.values() if each.after == LOWER]
    return Pipeline((*first, *dialect.passes)).extended([each for each in added.values() if each not in first]).passes


@contextmanager
def reduced_garbage_collection() -> Iterator[None]:
    """Raise the collector's thresholds until the outermost call ends; a collector that is off stays off.

    Python's collector traverses all objects again whenever a quarter more of them have survived. A graph of 100,000 ops is ten
    million objects that stay until the end, and the collector takes a quarter of the time of `optimize` without any effect.
    """
    before = gc.get_threshold()
    is_outermost = 0 < before[0] < _THRESHOLDS[0]  # 0 means that there are no automatic collections
    if is_outermost:
        gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        if is_outermost:
            gc.set_threshold(*before)


# --- the arguments -----------------------------------------------------------------------------------------


def pin_text(pin: Format | str) -> str:
    """The text of a pin, with numbers for the axes of a Format, which has no letters.

    Raises:
        FormatError: a text is neither a name of the catalogue nor a notation, whatever the letters of the axes.
    """
    if isinstance(pin, Format):
        return pin.numbered()
    try:
        lookup(pin, DType.FLOAT32.label)  # any type: that of the value is not known yet
    except FormatError as error:
        try:
            Format.parse(pin, "".join(sorted({letter for letter in pin if letter.isupper()})))
        except FormatError:
            raise error from None
    return pin


def pinned_format(text: str, value: Value) -> tuple[Format, str]:
    """The format that a pin gives a value, and the letters of the axes under which it was read; empty for the default ones.

    Raises:
        FormatError: the text has neither the letters of the value's axes nor letters with a default meaning.
    """
    letters, dtype = value.axis_letters or "", None if value.dtype is None else value.dtype.label
    if letters:
        try:
            return lookup(text, dtype, letters), letters
        except FormatError:
            pass  # other letters
    return lookup(text, dtype), ""


def as_message(model: Model) -> str | PathLike[str] | onnx.ModelProto | onnx_ir.Model:
    """The model itself; the message if it is bytes, a file object, which is read from its current position, or a skeleton.

    Raises:
        ModelError: the bytes are no ONNX model.
        ArgumentError: it has another type, a path is empty, or a file object was opened as text.
    """
    if isinstance(model, str | PathLike):
        path = os.fspath(model)
        if not isinstance(path, str) or not path or "\0" in path:
            raise ArgumentError("not a path", where=f"model={path!r:.80}", hint=_MODEL_HINT)
        return onnx_io.filled_skeleton(model) or model
    if isinstance(model, onnx.ModelProto | onnx_ir.Model):
        return model
    read = getattr(model, "read", None)
    content: object = read() if callable(read) else model
    if isinstance(content, bytes | bytearray | memoryview):
        return onnx_io.parse_message(bytes(content))
    if isinstance(content, str):
        raise ArgumentError("the file was not opened as binary", where="model", hint="open it with mode 'rb'")
    raise ArgumentError(f"not a model but a {type(model).__name__}", where="model", hint=_MODEL_HINT)


def cost_model_of(target: Target) -> CostModel:
    """The cost model of a target, or of several that are planned for together.

    Raises:
        TargetError: it is neither a name nor a cost model nor a list of these, or there is no such target.
    """
    if isinstance(target, str):
        return find_target(target)
    if isinstance(target, CostModel) and not isinstance(target, type):  # a class with the methods of one is none
        return target
    if isinstance(target, bytes | Mapping) or not isinstance(target, Iterable):
        raise TargetError("not a target", where=f"target={target!r:.80}", hint=_TARGET_HINT)
    found = [cost_model_of(each) for each in target]
    models = [model for each in found for model in targets_of(each)]
    if not models:
        raise TargetError("the list of targets is empty", where="target", hint=_TARGET_HINT)
    names = [model.name for model in models]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise TargetError(f"{twice} is named twice", where="target", hint="give different targets")
    return for_targets(models)


def runtime_and_dialect(runtime: object, dialect: object, cost_model: CostModel) -> tuple[RuntimeSpec, Dialect]:
    """The runtime and the dialect of a call; if one is given the other follows from it, otherwise both from the target.

    Several targets that have a native dialect get `functions` by default, since a file has blocks of one size only.

    Raises:
        ArgumentError: there is no such runtime or dialect, or the runtime does not read the dialect.
    """
    written = _dialect(cost_model.dialect if dialect is None else dialect)
    if dialect is None and isinstance(cost_model, MultiTargetCostModel) and written.is_native:
        written = DIALECTS[Functions.name]
    if runtime is None:
        return runtime_of(written.name), written
    spec = find_runtime(runtime)
    if spec.reads(written.name):
        return spec, written
    if dialect is not None:
        what = f"the runtime {spec.name} does not read it"
        raise ArgumentError(what, where=f"dialect {written.name}", hint=f"it reads {', '.join(spec.dialects)}")
    return spec, _dialect(spec.dialects[0])


def engine_of(runtime: RuntimeSpec, options: Options) -> Engine | None:
    """The adapter of a runtime other than onnxruntime, if the options need it; None otherwise.

    Raises:
        LayoutoptError: it cannot be loaded, or its program is not installed.
    """
    is_needed = options.verify or options.measure or options.calibrate
    if not is_needed or runtime.engine in ("", OnnxRuntime.name):
        return None
    return find_engine(runtime.engine)


def _dialect(name: object) -> Dialect:
    if not isinstance(name, str) or name not in DIALECTS:
        where = name if isinstance(name, str) and name else f"dialect={name!r:.80}"
        raise ArgumentError("no such dialect", where=where, hint=f"there are {', '.join(sorted(DIALECTS))}")
    return DIALECTS[name]


def check_dialect(options: Options, dialect: Dialect) -> None:
    """Check that a dialect has the kernels, times and branches that other options require.

    Raises:
        ArgumentError: the dialect is not written for onnxruntime on CPUs, or a portable result is not possible.
    """
    profile = options.profile
    if profile is not None and not isinstance(profile, str | PathLike):
        raise ArgumentError("is no path", where=f"profile={profile!r:.80}", hint="give a file of kernel times")
    given = {"portable": options.portable, "sessions": options.sessions == "fast", "profile": profile is not None}
    for name in (name for name, is_given in given.items() if is_given and not dialect.is_native):
        hint = "leave it out, or give a target whose dialect is onnxruntime, such as cpu on x86"
        raise ArgumentError(f"needs a native dialect, not {dialect.name}", where=name, hint=hint)
    if options.portable and options.mode == "training":
        hint = "a weight would be in two branches"
        raise ArgumentError("needs the mode inference", where="portable", hint=hint)


def checked_pins(pins: Mapping[str, Format | str] | None) -> dict[str, str]:
    """The texts of pinned formats by the name of the tensor.

    Raises:
        ArgumentError: they are no mapping from names to formats.
        FormatError: there is no such format.
    """
    hint = 'give a mapping from names to formats, as in {"x": "NHWC"}'
    formats = {}
    for name, pin in _items("pins", pins, hint):
        if not isinstance(pin, str | Format):
            raise ArgumentError(f"not a format but a {type(pin).__name__}", where=f"pins[{name!r}]", hint=hint)
        formats[name] = pin_text(pin)
    return formats


def checked_dims(dims: Dims | None) -> dict[str, int | Range]:
    """The sizes of symbolic dimensions, or their ranges, by name.

    Raises:
        ArgumentError: they are no mapping from names to whole numbers or pairs of these.
        DimensionError: a range has no size that is at least 1.
    """
    hint = 'give a mapping from names to sizes or ranges, as in {"batch": 1, "height": (256, 1024)}'
    found: dict[str, int | Range] = {}
    for name, given in _items("dims", dims, hint):
        pair = given if isinstance(given, tuple | list) else (given, given)
        try:
            low, high = map(index, pair)
        except (TypeError, ValueError):
            raise ArgumentError(f"not a size: {given!r:.80}", where=f"dims[{name!r}]", hint=hint) from None
        if not 1 <= low <= high:
            what = f"{low} is no size" if low == high else f"{low}:{high} is no range of sizes"
            raise DimensionError(what, where=name, hint="give sizes of at least 1, the smaller one first")
        found[name] = low if pair is not given else (low, high)
    return found


def checked_devices(devices: Mapping[str, str] | None, platform: Platform | None) -> dict[str, str]:
    """The devices of ops by op type or beginning of the name.

    Raises:
        ArgumentError: they are no mapping to devices of the target, which is a platform.
    """
    hint = 'give a mapping from op types or beginnings of names to devices, as in {"Conv": "npu"}'
    found = dict(_items("devices", devices, hint))
    if found and platform is None:
        raise ArgumentError("the target is no platform", where="devices", hint="give a platform file as target")
    for key, name in found.items():
        if platform is not None and not (isinstance(name, str) and name in platform.models):
            names = ", ".join(platform.models)
            raise ArgumentError(f"no device '{name}'", where=f"device {name}={key}", hint=f"there are {names}")
    return found


def _items(argument: str, given: object, hint: str) -> Iterable[tuple[str, Any]]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise ArgumentError(f"not a mapping but a {type(given).__name__}", where=argument, hint=hint)
    if not all(isinstance(name, str) for name in given):
        raise ArgumentError("a name is not a string", where=argument, hint=hint)
    return given.items()


def check_types(options: Options) -> None:
    """Check the types of the arguments that the command line does not have.

    Raises:
        ArgumentError: a callback is no function, or the pipeline is none.
    """
    kinds: dict[str, Any] = {"pipeline": Pipeline, "watch": Callable, "progress": Callable, "sizes_found": Callable}
    for name, kind in kinds.items():
        value = getattr(options, name)
        if value is not None and not isinstance(value, kind):
            noun = "pipeline" if kind is Pipeline else "function"
            raise ArgumentError(
                f"not a {noun} but a {type(value).__name__}", where=name, hint=f"give a {noun}, or None"
            )
