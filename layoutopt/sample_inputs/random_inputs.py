"""Random values of the inputs of a model, within the ranges that its graph allows."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from layoutopt.errors import LayoutoptError
from layoutopt.formats import Dim
from layoutopt.ir.types import Array, DType
from layoutopt.sample_inputs.input_ranges import RangeKind, ValueRange

_LABELS = {"float": "float32", "double": "float64"}  # by onnxruntime's names
_INDICES = (0, 2)  # range of integers that may be indices
_MAX_ELEMENTS = 1 << 40  # no memory is large enough for more
_CHUNK = 1 << 20  # elements that are drawn at a time
_LARGEST_SIZE = 4  # of an extent that is the value of an input
_RANGES = {
    DType.INT8: (-100, 100),
    DType.UINT8: (0, 256),
    DType.INT4: (-8, 8),
    DType.UINT4: (0, 16),
    DType.INT2: (-2, 2),
    DType.UINT2: (0, 4),
}
"""Ranges of integer types that hold quantised values rather than indices."""


class Style(Enum):
    """The distribution of values; later styles are used only if a model does not run with earlier ones."""

    RANDOM = "random"
    ONES = "integers are 1, floating-point values between 0 and 1"
    TWOS = "integers are 2, floating-point values between 0 and 1"
    ZEROS = "zeros"


def dtype_of(type: str) -> DType | None:
    """The element type of a type name of onnxruntime, such as `tensor(float)`."""
    kind = type.removeprefix("tensor(").removesuffix(")")
    return next((each for each in DType if each.label == _LABELS.get(kind, kind)), None)


def random_values(
    name: str,
    type: str,
    shape: Sequence[int],
    generator: np.random.Generator,
    range: ValueRange | None = None,
    at: Mapping[str, int] | None = None,
    *,
    style: Style = Style.RANDOM,
    is_first: bool = False,
) -> Array:
    """Random values of one input: normally distributed floating-point values, or values in the given range.

    Args:
        name: the name of the input, for error messages.
        type: its type name of onnxruntime.
        shape: its extents.
        generator: of random numbers.
        range: the values that the graph allows; None for all.
        at: sizes of the dimensions in the bounds of the range.
        style: the distribution of values.
        is_first: whether masks are all ones and lengths as long as possible, as in the first set of inputs.

    Raises:
        LayoutoptError: the type has no random values, or there are too many of them.
    """
    dtype = dtype_of(type)
    if dtype is None or dtype in (DType.COMPLEX64, DType.COMPLEX128):
        raise LayoutoptError(f"no random values for the type {type}", where=name)
    if prod(shape) > _MAX_ELEMENTS:
        raise LayoutoptError(f"{prod(shape)} elements are too many for any memory", where=name)
    if dtype is DType.STRING:
        return np.full(shape, "a", dtype=object)
    if style is not Style.RANDOM and (range is None or range.kind is not RangeKind.CHOICE):
        return _simple_values(dtype, shape, generator, style)
    if range is None:
        return _unrestricted_values(dtype, shape, generator)
    values = _values_in_range(range, shape, generator, at or {}, is_first, dtype.is_float)
    if range.kind in (RangeKind.INDEX, RangeKind.BYTE, RangeKind.CHOICE):
        values = (values - range.shift) / range.scale
    if not dtype.is_float:
        values = np.round(values)
    return np.asarray(values).astype(dtype.numpy)


def _simple_values(dtype: DType, shape: Sequence[int], generator: np.random.Generator, style: Style) -> Array:
    if style is Style.ZEROS:
        return np.zeros(shape, dtype.numpy)
    if dtype.is_float:
        return _drawn(lambda count: generator.uniform(size=count), shape, dtype)
    return np.full(shape, 1 if style is Style.ONES else 2).astype(dtype.numpy)


def _unrestricted_values(dtype: DType, shape: Sequence[int], generator: np.random.Generator) -> Array:
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype is DType.FLOAT8E8M0:  # a type of powers of two
        return np.exp2(generator.integers(-2, 3, shape)).astype(dtype.numpy)
    if dtype.is_float:
        return _drawn(lambda count: generator.normal(size=count), shape, dtype)
    return np.asarray(generator.integers(*_RANGES.get(dtype, _INDICES), shape)).astype(dtype.numpy)


def _drawn(draw: Callable[[int], Array], shape: Sequence[int], dtype: DType) -> Array:
    """The float64 values of `draw` in another type, drawn in chunks because float64 takes up to eight times the memory."""
    values = np.empty(prod(shape), dtype.numpy)
    for start in range(0, values.size, _CHUNK):
        piece = values[start : start + _CHUNK]
        piece[:] = draw(piece.size).astype(dtype.numpy)
    return values.reshape(shape)


def _values_in_range(
    range: ValueRange,
    shape: Sequence[int],
    generator: np.random.Generator,
    at: Mapping[str, int],
    is_first: bool,
    is_float: bool,
) -> Array:
    """Values in a range, as floating-point numbers."""
    high = _number(range.high, at)
    match range.kind:
        case RangeKind.INDEX:
            return generator.integers(0, max(1 if high is None else high, 0) + 1, shape).astype(np.float64)
        case RangeKind.BYTE:
            whole = generator.integers(0, 256, shape).astype(np.float64)
            return whole if range.is_integer or not is_float else generator.uniform(0, 255, shape)
        case RangeKind.CHOICE:
            return np.full(shape, range.choices[0] if is_first else generator.choice(range.choices))
        case RangeKind.LENGTH:
            return _lengths(shape, generator, high or max(at.values(), default=_LARGEST_SIZE), is_first)
        case RangeKind.SIZE:
            return generator.integers(1, _LARGEST_SIZE + 1, shape).astype(np.float64)
        case RangeKind.MASK:
            mask = np.ones(shape) if is_first else _suffix_of_zeros(shape, generator)
            is_one = (range.unmasked_value == 1) == (range.scale > 0)
            return mask if is_one else 1 - mask
        case RangeKind.POSITIVE:
            return np.abs(generator.normal(size=shape)) + 0.1
        case RangeKind.UNIT:
            return generator.uniform(-1, 1, shape)
        case RangeKind.FACTOR:
            return generator.uniform(0.8, 1.2, shape)


def _number(dim: Dim | None, at: Mapping[str, int]) -> int | None:
    return dim if dim is None or isinstance(dim, int) else dim.at(at)


def _lengths(shape: Sequence[int], generator: np.random.Generator, longest: int, is_first: bool) -> Array:
    """Random lengths, the first of which is the longest."""
    lengths = generator.integers(max(1, longest // 2), longest + 1, shape).astype(np.float64)
    if is_first:
        return np.full(shape, float(longest))
    if lengths.size:
        lengths.reshape(-1)[0] = longest
    return lengths


def _suffix_of_zeros(shape: Sequence[int], generator: np.random.Generator) -> Array:
    """Ones followed by zeros along the last axis, with at least one 1."""
    if not shape:
        return np.ones(())
    length = shape[-1]
    kept = generator.integers(min(1, length), length + 1, (*shape[:-1], 1))
    return np.asarray(np.arange(length) < kept, dtype=np.float64)


def perturbed(value: Array, generator: np.random.Generator) -> Array:
    """The values with every floating-point one changed by up to a hundredth of the largest magnitude."""
    if value.dtype.kind != "f" and not str(value.dtype).startswith(("bfloat", "float")):
        return value
    wide = value.astype(np.float64)
    largest: Any = np.abs(wide[np.isfinite(wide)]).max(initial=0.0)
    return np.asarray(wide + 0.01 * largest * generator.uniform(-1, 1, value.shape)).astype(value.dtype)


__all__ = ["Style", "dtype_of", "perturbed", "random_values"]
