"""Pinned formats: from the text of a pin to the format of a value.

The letters of a pin are those of the value's axes, as reports and `inspect` print them. Other letters have their default
meaning: NCHW are the axes of a feature map in logical order. A name whose blocks depend on the element type, such as NC1HWC0,
has those of the value's type.

Checks of the arguments of `layoutopt.optimize`, which raise errors before a model is read.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from operator import index
from os import PathLike
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import onnx
import onnx_ir

from layoutopt import onnx_io
from layoutopt.cost import CostModel, MultiTargetCostModel, for_targets, targets_of
from layoutopt.cost_models import RuntimeSpec, find_runtime, find_target, runtime_of
from layoutopt.dialects import DIALECTS, Dialect, Functions, Lower
from layoutopt.errors import ArgumentError, DimensionError, FormatError, TargetError
from layoutopt.formats import Format, lookup
from layoutopt.ir.sizes import Dims, Range
from layoutopt.ir.types import DType, Value
from layoutopt.passes.base import Pipeline


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


if TYPE_CHECKING:
    from layoutopt.driver.options import Options

Model: TypeAlias = str | PathLike[str] | bytes | BinaryIO | onnx.ModelProto | onnx_ir.Model
Target: TypeAlias = str | CostModel | Iterable[str | CostModel]

_MODEL_HINT = "give a path, bytes, a binary file, an onnx.ModelProto or an onnx_ir.Model"
_TARGET_HINT = "give a name, the path of a .toml file, a cost model, or a list of these"


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


def _dialect(name: object) -> Dialect:
    if not isinstance(name, str) or name not in DIALECTS:
        where = name if isinstance(name, str) and name else f"dialect={name!r:.80}"
        raise ArgumentError("no such dialect", where=where, hint=f"there are {', '.join(sorted(DIALECTS))}")
    return DIALECTS[name]


def check_dialect(options: "Options", dialect: Dialect) -> None:
    """Check that a dialect has the kernels, times and branches that other options require.

    Raises:
        ArgumentError: the dialect is not written for onnxruntime on CPUs, or a portable result is not possible.
    """
    native = "give a target whose dialect is onnxruntime, such as cpu on x86, or"
    if options.portable:
        if not dialect.is_native:
            hint = f"leave it out: the dialect {dialect.name} has no blocks of a particular CPU"
            raise ArgumentError("needs a native dialect", where="portable", hint=hint)
        if options.mode == "training":
            hint = "a weight would be in two branches"
            raise ArgumentError("needs the mode inference", where="portable", hint=hint)
        if options.pipeline is not None and any(isinstance(step, Lower) for step in options.pipeline.passes):
            hint = "give a pipeline without Lower"
            raise ArgumentError("needs to choose the dialects", where="portable", hint=hint)
    if options.sessions == "fast" and not dialect.is_native:
        hint = f"{native} leave the sessions balanced"
        raise ArgumentError("the dialect has no fast sessions", where=dialect.name, hint=hint)
    if options.profile is not None:
        if not isinstance(options.profile, str | PathLike):
            raise ArgumentError("is no path", where=f"profile={options.profile!r:.80}")
        if not dialect.is_native:
            raise ArgumentError("the dialect has no kernel times", where=dialect.name, hint=f"{native} no profile")


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


def _items(argument: str, given: object, hint: str) -> Iterable[tuple[str, Any]]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise ArgumentError(f"not a mapping but a {type(given).__name__}", where=argument, hint=hint)
    if not all(isinstance(name, str) for name in given):
        raise ArgumentError("a name is not a string", where=argument, hint=hint)
    return given.items()


def check_types(options: "Options") -> None:
    """Check the types of the arguments that the command line does not have.

    Raises:
        ArgumentError: a callback is no function, or the pipeline is none.
    """
    kinds: dict[str, Any] = {"pipeline": Pipeline, "watch": Callable, "progress": Callable}
    for name, kind in kinds.items():
        value = getattr(options, name)
        if value is not None and not isinstance(value, kind):
            noun = "pipeline" if kind is Pipeline else "function"
            raise ArgumentError(
                f"not a {noun} but a {type(value).__name__}", where=name, hint=f"give a {noun}, or None"
            )
