"""Ranges of the values of inputs, inferred from the ops that use them.

An input is tracked through ops that move or cast its elements, and those that invert a mask, also into subgraphs, to ops that
restrict their operands:

    Gather, ScatterND, OneHot, embeddings      an index below the extent of the indexed axis
    comparison with a Range or a list          a length
    Range, Reshape, Expand, TopK, Slice ...    a size: a small positive integer
    Equal with one constant                    that constant (a sample rate, a language); for 0 and 1 a mask
    Mul by less than -100, condition of Where  a mask
    Log, Sqrt, Reciprocal                      positive numbers
"""

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType

from msgspec.structs import replace

from layoutopt.formats import Dim, Extent
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.record import Record

_MAX_TRACKED = 2000  # values that an input is tracked through


class RangeKind(Enum):
    """The kind of values of an input, the most restrictive first."""

    INDEX = "index"
    CHOICE = "one of some constants"
    LENGTH = "length"
    SIZE = "size"
    MASK = "mask"
    POSITIVE = "positive"


class ValueRange(Record):
    """The permitted values of the elements of an input.

    Attributes:
        kind: the kind of values.
        high: the largest index, possibly an expression of dimensions.
        choices: the possible values, for a choice.
    """

    kind: RangeKind
    high: Dim | None = None
    choices: tuple[float, ...] = ()


_TRACKED = frozenset(
    {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Expand", "Tile", "Slice", "Split", "Cast"}
    | {"Pad", "SequenceConstruct", "Dropout", "Abs", "Relu", "Clip", "Floor", "Ceil", "Round", "ReduceMax", "Gather"}
)
"""Ops whose first operand gets the range that is required of their result."""
_TRACKED_IN_ANY_OPERAND = frozenset({"Concat", "Not", "Sub"})
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
_INDEXED_ALONG_AXIS = frozenset({"Gather", "GatherElements", "ScatterElements", "Scatter"})
_MASKING_LIMIT = -100.0  # factors below this limit mask logits


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
    numbers = [each.high for each in alike if isinstance(each.high, int)]
    choices = tuple(dict.fromkeys(choice for each in alike for choice in each.choices))
    return replace(best, high=min(numbers, default=best.high), choices=choices)


def _ranges(graph: Graph, input: Value) -> Iterator[ValueRange]:
    pending, seen = deque([(graph, input)]), {input}
    while pending and len(seen) < _MAX_TRACKED:
        region, value = pending.popleft()
        for use in region.uses(value):
            found = _required_range(use.op, use.index)
            if found is not None:
                yield found
            for after in _tracked_results(region, use.op, use.index):
                if after[1] not in seen:
                    seen.add(after[1])
                    pending.append(after)


def _tracked_results(graph: Graph, op: Op, index: int) -> Iterator[tuple[Graph, Value]]:
    """The results with the elements of operand `index`; for a captured operand the inputs of bodies."""
    if op.bodies and index >= op.uncaptured_input_count:
        yield from ((body, body.inputs[index - len(op.inputs)]) for body in op.bodies.values())
    elif (op.op_type in _TRACKED and index == 0) or op.op_type in _TRACKED_IN_ANY_OPERAND:
        yield from ((graph, value) for value in op.present_outputs)


def _required_range(op: Op, index: int) -> ValueRange | None:
    """The range that an op requires of an operand; None if it requires none."""
    extent = _indexed_extent(op, index)
    if extent is not None:
        return ValueRange(RangeKind.INDEX, Extent.of(extent - 1).dim)
    kind, other = op.op_type, op.constant(1 - index) if len(op.inputs) == 2 else None
    if index in _SIZES.get(kind, ()):
        return ValueRange(RangeKind.SIZE)
    dtype = None if (value := op.inputs[index]) is None else value.dtype
    if kind in _COMPARISONS and (other is None or other.size > 1) and not (dtype and dtype.is_float):
        return ValueRange(RangeKind.LENGTH, None if other is None else other.size)
    if kind == "Equal" and other is not None:
        if other.size > 1:
            return ValueRange(RangeKind.INDEX, other.size - 1)
        choice = float(other.reshape(-1)[0])
        is_flag = choice in (0.0, 1.0)
        return ValueRange(RangeKind.MASK) if is_flag else ValueRange(RangeKind.CHOICE, choices=(choice,))
    is_masking = kind == "Mul" and other is not None and other.size == 1 and other.reshape(-1)[0] < _MASKING_LIMIT
    if is_masking or (kind == "Where" and index == 0):
        return ValueRange(RangeKind.MASK)
    return ValueRange(RangeKind.POSITIVE) if kind in _POSITIVE else None


def _indexed_extent(op: Op, index: int) -> Dim | None:
    """The extent that an operand indexes, the smallest if its elements index several axes; None for other operands."""
    data = op.inputs[0].shape if op.inputs and op.inputs[0] is not None else None
    if op.op_type in _INDEXED_ALONG_AXIS and index == 1 and data:
        return data[op.integer("axis") % len(data)]
    if op.op_type in ("GatherND", "ScatterND") and index == 1 and data:
        return min((dim for dim in data if isinstance(dim, int)), default=data[op.integer("batch_dims")])
    if op.op_type == "OneHot" and index == 0:
        depth = op.constant(1)
        return 2 if depth is None else int(depth.reshape(-1)[0])
    if op.op_type == "EmbedLayerNormalization" and index < 2:
        table = op.inputs[2 + 2 * index]
        return table.shape[0] if table is not None and table.shape else 2
    return data[0] if op.op_type == "RoiAlign" and index == 2 and data else None
