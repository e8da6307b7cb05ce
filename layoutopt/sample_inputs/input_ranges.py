"""Ranges of the values of inputs, inferred from the ops that use them.

An input is tracked through ops that move, cast, round, clip, scale or shift its elements, and through Abs, Relu and ReduceMax,
also into subgraphs, to ops that restrict their operands:

    Gather, ScatterND, OneHot, embeddings      an index below the extent of the indexed axis
    comparison with a Range or 0, 1, 2, ...    a length: at most that of the Range or constant
    Range, Reshape, Expand, TopK, Slice ...    a size: a small positive integer
    Equal with one constant                    that constant (a sample rate, a language); for 0 and 1 a mask
    Equal with a constant 0, 1, 2, ...         an index below its size
    Mul by less than -100, condition of Where  an attention mask: ones, then zeros; Where has a branch below -100
    Div by 255, OneHot of 256 classes          bytes
    Log, Sqrt, GridSample, Asin                values in the domain of the function
    Resize scales, Mul and Div by one number   a factor near 1
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

import numpy as np

from layoutopt.formats import UNKNOWN, Dim, Extent
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Op, Value
from layoutopt.ops.axiswise import scale_and_shift

_MAX_TRACKED = 2000  # values that an input is tracked through


class RangeKind(Enum):
    """The kind of values of an input, the most restrictive first."""

    INDEX = "index"
    CHOICE = "one of some constants"
    BYTE = "byte"
    LENGTH = "length"
    SIZE = "size"
    MASK = "mask"
    POSITIVE = "positive"
    UNIT = "between -1 and 1"
    FACTOR = "factor near 1"


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The permitted values of the elements of an input.

    Attributes:
        kind: the kind of values.
        low: the smallest value.
        high: the largest value, possibly an expression of dimensions.
        choices: the possible values, for a choice.
        scale, shift: the restricting op reads scale * x + shift for an element x of the input, and low, high and choices
            restrict that number: low <= scale * x + shift <= high.
        is_integer: whether elements are integers, also in a floating-point type.
        unmasked_value: for a mask, the value of unmasked positions.
    """

    kind: RangeKind
    low: int = 0
    high: Dim | None = None
    choices: tuple[float, ...] = ()
    scale: float = 1.0
    shift: float = 0.0
    is_integer: bool = False
    unmasked_value: int = 1


@dataclass(frozen=True, slots=True)
class _TrackedValue:
    """A value whose elements are elements of an input times a scale plus a shift."""

    graph: Graph
    value: Value
    scale: float = 1.0
    shift: float = 0.0


_RANGE_PRESERVING = frozenset(
    {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Expand", "Tile", "Slice", "Split", "Cast"}
    | {"Concat", "Pad", "SequenceConstruct", "Dropout", "Abs", "Relu", "Clip", "Floor", "Ceil", "Round", "ReduceMax"}
)
"""Ops whose operand gets the range that is required of their result."""
_SIZES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "Range": (0, 1, 2),
        "Reshape": (1,),
        "Expand": (1,),
        "Tile": (1,),
        "ConstantOfShape": (0,),
        "Slice": (1, 2),
        "Pad": (1,),
        "TopK": (1,),
        "Resize": (3,),
        "Split": (1,),
        "AffineGrid": (1,),
        "Loop": (0,),
        "Col2Im": (1, 2),
        "Upsample": (1,),
    }
)
_COMPARISONS = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
_POSITIVE = frozenset({"Log", "Sqrt", "Reciprocal"})
_UNIT = frozenset({"Asin", "Acos", "Atanh"})
_MAX_POSITIONS = 1 << 16  # elements of the largest constant 0, 1, 2, ... that counts sequence positions or classes
_MASKING_LIMIT = -100.0  # factors and fill values below this limit mask logits
_BYTES = (255.0, 256.0)


def value_ranges(graph: Graph) -> dict[str, ValueRange]:
    """The ranges of the inputs that an op restricts, by name."""
    found = {}
    for value in graph.inputs:
        ranges = list(_ranges(graph, value))
        if ranges:
            found[value.name] = _combined_range(ranges)
    return found


def _combined_range(ranges: list[ValueRange]) -> ValueRange:
    """The most restrictive kind of range: the union of its choices, or the range with the smallest static upper bound."""
    order = list(RangeKind)
    best = min(ranges, key=lambda each: order.index(each.kind))
    alike = [each for each in ranges if each.kind is best.kind]
    if best.kind is RangeKind.CHOICE:
        return replace(best, choices=tuple(dict.fromkeys(choice for each in alike for choice in each.choices)))
    numbers = [each for each in alike if isinstance(each.high, int)]
    return min(numbers, key=lambda each: Extent.of(each.high or 0).number or 0) if numbers else best


def _ranges(graph: Graph, input: Value) -> Iterator[ValueRange]:
    pending, seen = deque([_TrackedValue(graph, input)]), {input}
    while pending and len(seen) < _MAX_TRACKED:
        tracked = pending.popleft()
        for use in tracked.graph.uses(tracked.value):
            found = _required_range(tracked, use.op, use.index)
            if found is not None:
                yield replace(found, scale=tracked.scale, shift=tracked.shift)
            for after in _tracked_results(tracked, use.op, use.index):
                if after.value not in seen:
                    seen.add(after.value)
                    pending.append(after)


def _tracked_results(tracked: _TrackedValue, op: Op, index: int) -> Iterator[_TrackedValue]:
    """The results whose elements are those of operand `index`, scaled and shifted; for a captured operand the body inputs."""
    if op.bodies and index >= op.uncaptured_input_count:
        for body in op.bodies.values():
            yield replace(tracked, graph=body, value=body.inputs[index - len(op.inputs)])
        return
    is_range_preserved = (op.op_type in _RANGE_PRESERVING and (index == 0 or op.op_type == "Concat")) or (
        op.op_type == "Gather" and index == 0
    )
    if is_range_preserved:
        yield from (replace(tracked, value=value) for value in op.outputs if value is not None)
        return
    other = op.constant(1 - index) if len(op.inputs) == 2 else None
    factors = (
        (-1.0, 0.0)
        if op.op_type == "Not"
        else scale_and_shift(op, index, other.reshape(()).astype(np.float64))
        if other is not None and other.size == 1 and other.dtype.kind in "iuf"
        else None
    )
    if factors is not None and op.outputs[0] is not None and factors[0] != 0:
        scale, shift = map(float, factors)
        yield replace(tracked, value=op.outputs[0], scale=tracked.scale * scale, shift=tracked.shift * scale + shift)


def _required_range(tracked: _TrackedValue, op: Op, index: int) -> ValueRange | None:
    """The range that an op requires of an operand; None if it requires none."""
    index_range = _index_range(op, index)
    if index_range is not None:
        return index_range
    kind, shape = op.op_type, tracked.value.shape
    if kind == "Equal" and (classes := _count_from_zero(op.constant(1 - index))):
        return ValueRange(RangeKind.INDEX, 0, classes - 1, is_integer=True)
    if index in _SIZES.get(kind, ()):
        return ValueRange(RangeKind.SIZE, 1, is_integer=True)
    if kind == "Resize" and index == 2:
        return ValueRange(RangeKind.FACTOR)
    if kind == "Equal" and (choices := op.constant(1 - index)) is not None and choices.size == 1:
        is_flag = choices.dtype == bool or float(choices.reshape(-1)[0]) in (0.0, 1.0)
        return ValueRange(
            RangeKind.MASK if is_flag else RangeKind.CHOICE, choices=() if is_flag else (float(choices.reshape(-1)[0]),)
        )
    if kind in _COMPARISONS and (positions := _positions(tracked.graph, op.inputs[1 - index])):
        return ValueRange(RangeKind.LENGTH, 1, positions, is_integer=True)
    if kind in ("Mul", "Where") and (unmasked := _unmasked_value(op, index)) is not None:
        return ValueRange(RangeKind.MASK, unmasked_value=unmasked)
    if kind == "Cast" and op.outputs[0] is not None and str(op.outputs[0].dtype) == "uint8":
        return ValueRange(RangeKind.BYTE, 0, 255, is_integer=True)
    if _scales_bytes(op, index):
        return ValueRange(RangeKind.BYTE, 0, 255)
    if kind in _POSITIVE:
        return ValueRange(RangeKind.POSITIVE)
    if kind in _UNIT or (kind == "GridSample" and index == 1):
        return ValueRange(RangeKind.UNIT)
    is_factor = kind in ("Mul", "Div") and shape is not None and all(dim == 1 for dim in shape)
    return ValueRange(RangeKind.FACTOR) if is_factor else None


def _index_range(op: Op, index: int) -> ValueRange | None:
    """The range of an operand that indexes another operand; None for other operands."""
    data = op.inputs[0].shape if op.inputs and op.inputs[0] is not None else None
    extent: Dim | None = None
    match op.op_type, index:
        case (("Gather" | "GatherElements" | "ScatterElements" | "Scatter"), 1) if data:
            extent = data[op.integer("axis") % len(data)]
        case (("GatherND" | "ScatterND"), 1) if data:
            tuple_size = op.inputs[1].shape[-1] if op.inputs[1] is not None and op.inputs[1].shape else 1
            indexed = data[op.integer("batch_dims") :][: tuple_size if isinstance(tuple_size, int) else 1]
            numbers = [dim for dim in indexed if isinstance(dim, int)]
            extent = min(numbers) if numbers else indexed[0]
        case "OneHot", 0:
            depth = op.constant(1)
            extent = int(depth.reshape(-1)[0]) if depth is not None else 2
        case "EmbedLayerNormalization", (0 | 1):
            table = op.inputs[2 + 2 * index]
            extent = table.shape[0] if table is not None and table.shape else 2
        case "RoiAlign", 2 if data:
            extent = data[0]
        case _:
            return None
    return ValueRange(RangeKind.INDEX, 0, None if extent is None else extent - 1, is_integer=True)


def _positions(graph: Graph, value: Value | None) -> Dim | None:
    """The number of positions in a value that lengths are compared with; None if it does not count positions."""
    while value is not None and (producer := graph.producer(value)) is not None:
        if producer.op_type == "Range":
            return value.shape[0] if value.shape else Extent.of_atom(UNKNOWN)
        if producer.op_type not in ("Unsqueeze", "Cast", "Reshape", "Expand", "Identity"):
            return None
        value = producer.inputs[0]
    if value is not None and value.data is not None and value.static_shape and value.dtype is not None:
        return _count_from_zero(value.data.numpy()) or None
    return None


def _count_from_zero(array: Array | None) -> int:
    """The size of a constant with the values 0, 1, 2, ...; 0 for other constants."""
    counts = (
        array is not None
        and 1 < array.size <= _MAX_POSITIONS
        and np.array_equal(array.reshape(-1), np.arange(array.size))
    )
    return array.size if array is not None and counts else 0


def _unmasked_value(op: Op, index: int) -> int | None:
    """The value of unmasked positions for an op that masks logits; None for other ops."""
    if op.op_type == "Where":
        fills = [position for position in (1, 2) if index == 0 and _is_masking(op.constant(position))]
        return fills[0] - 1 if fills else None
    return 0 if _is_masking(op.constant(1 - index)) else None


def _is_masking(fill: Array | None) -> bool:
    return (
        fill is not None and fill.size == 1 and fill.dtype.kind == "f" and float(fill.reshape(-1)[0]) < _MASKING_LIMIT
    )


def _scales_bytes(op: Op, index: int) -> bool:
    """Whether an op divides an operand by 255 or 256."""
    other = op.constant(1 - index) if op.op_type in ("Mul", "Div") and len(op.inputs) == 2 else None
    if other is None or other.size != 1 or other.dtype.kind != "f":
        return False
    number = float(other.reshape(-1)[0])
    factor = 1 / number if op.op_type == "Mul" and number else number
    return any(abs(factor - size) < 1e-3 * size for size in _BYTES) and index == 0
