"""Moves of whole rows: regions of Slice, Split, Concat, Transpose and Reshape with one source as one Gather.

Swin Transformers shift windows (Slices and Concats along two axes), partition images into windows (a Transpose of six axes),
undo both behind attention, and merge patches. Each move copies all elements; together they only permute rows of channels.
MobileViT does so with images whose channels come first: then the rows are those of the image with channels last.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Op, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.shape_functions.elements import moved_arrays
from layoutopt.ops.view import is_reshape
from layoutopt.patterns.base import reshaped
from layoutopt.record import Record

_SELECTIONS = frozenset({"Concat", "Gather", "Slice", "Split"})
_ON_IMAGES = frozenset({"convolution", "pooling", "resize"})
_MOST_OPS = 16  # of a region
_MOST_TRIED = 4  # regions with the same last op
_MOST_ELEMENTS = 1 << 22  # of the source and of each result: elements are numbered to find rows
_SHORTEST = 16
"""Elements of a row. Measured with onnxruntime 1.32, one thread, AVX2, 3136 rows: for rows of 8 elements a Gather takes 0.82 of
the time of a shift of windows, for 16 elements 0.70, for 32 elements 0.49 and for 96 elements 0.42."""


def gathered_rows(graph: Graph, op: Op) -> Value | None:
    """The result of a Concat or Transpose that ends a region of moves with one source, by one Gather of rows.

    before: x (1,H,W,C) -> Slice, Slice -> Concat -> Slice, Slice -> Concat -> Reshape -> Transpose
    after:  x -> Reshape (H*W,C) -> Gather(rows) -> Reshape

    None unless all moved pieces are rows of the last axis of the source, and the ops together copy each element twice; and
    where an op on images reads the result, since the planner may move blocks of images.
    """
    if any(rule is not None and rule.family in _ON_IMAGES for rule in map(rule_of, graph.readers(op.y))):
        return None
    return _gathered(graph, op, _moved_rows, has_selections=True)


def gathered_patches(graph: Graph, op: Op) -> Value | None:
    """The result of a Transpose or Reshape that ends a region of moves of an image's channels, by one Gather.

    before: x (1,C,H,W) -> Reshape -> Transpose -> Reshape -> Transpose
    after:  x -> Transpose (1,H,W,C) -> Reshape (H*W,C) -> Gather(rows) -> Reshape

    None unless two Transposes mix the axes of an image at one end. onnxruntime's Transpose takes 8 ns per element for them; on
    a GPU, estimates are 3 % higher for the Gather.
    """
    return _gathered(graph, op, _moved_patches, has_selections=False)


_Finder: TypeAlias = Callable[[Sequence[Op], Mapping[Value, Array]], "_Rows | None"]
"""Returns the rows that ops, first op first, move from their source to their last result; given the places of elements."""


def _gathered(graph: Graph, op: Op, find: _Finder, *, has_selections: bool) -> Value | None:
    """The result of an op by one Gather of rows, for the largest region of moves that ends with the op and moves rows.

    None without a region of which some op selects elements, or none does, as `has_selections` says.
    """
    ops, candidates = [op], list[tuple[int, Value]]()
    while _is_move(ops[-1]) and len(ops) <= _MOST_OPS:
        region = {*ops}
        moved = dict.fromkeys(value for each in ops for value in _moved_inputs(each))
        sources = [value for value in moved if graph.producer(value) not in region]
        is_kind = has_selections is any(each.kind in _SELECTIONS for each in ops)
        if len(sources) == 1 and is_kind and sum(map(_copied_elements, ops)) >= 2 * _elements(op.y):
            candidates.append((len(ops), sources[0]))
        steps = [each for each in map(graph.producer, sources) if each is not None and _is_inner(graph, each, region)]
        if not steps:
            break
        ops.append(steps[0])
    tried = candidates[: -_MOST_TRIED - 1 : -1]
    found = None
    for count, start in tried:
        places = _places(ops[count - 1 :: -1], start)
        if places and (found := find(ops[count - 1 :: -1], places)) is not None:
            break
    if found is None or found.source.is_constant:
        return None
    rows, y = found.rows, op.y
    width = _elements(y) // len(rows)
    source = _transposed(graph, op, found.source, found.source_order)
    matrix = reshaped(graph, op, source, (_elements(source) // width, width))
    inputs, type = (matrix, graph.new_constant(rows, f"{y.name}/rows")), source.type_with((len(rows), width))
    gathered = graph.new_result("Gather", inputs, type, f"{y.name}/gathered", op, attributes={"axis": 0})
    result = reshaped(graph, op, gathered, tuple(y.dims[axis] for axis in found.result_order))
    return _transposed(graph, op, result, np.argsort(found.result_order).tolist())


class _Rows(Record, eq=False):
    """The numbers of the rows of a source that become those of a result, both with their axes in an order."""

    source: Value
    rows: Array
    source_order: Sequence[int]
    result_order: Sequence[int]


def _transposed(graph: Graph, op: Op, value: Value, order: Sequence[int]) -> Value:
    perm = tuple(order)
    if perm == tuple(range(len(perm))):
        return value
    type = value.type_with(tuple(value.dims[axis] for axis in perm))
    return graph.new_result("Transpose", (value,), type, f"{op.y.name}/channels", op, attributes={"perm": perm})


def _moved_inputs(op: Op) -> list[Value]:
    """The inputs whose elements an op moves; further ones are parameters."""
    return [value for value in (op.inputs if op.kind == "Concat" else op.inputs[:1]) if value is not None]


def _is_move(op: Op) -> bool:
    """Whether an op moves elements of tensors of static shapes to places that do not depend on a computed parameter."""
    parameters = () if op.kind == "Concat" or is_reshape(op) else op.inputs[1:]
    is_known = all(value is not None and value.static_shape is not None for value in (*_moved_inputs(op), *op.outputs))
    is_fixed = all(value is None or value.is_constant for value in parameters)
    return is_known and is_fixed and (op.kind in _SELECTIONS or op.kind == "Transpose" or is_reshape(op))


def _is_inner(graph: Graph, op: Op, region: set[Op]) -> bool:
    """Whether only ops of a region read the results of a move."""
    is_hidden = all(
        not graph.is_output(value) and all(reader in region for reader in graph.readers(value))
        for value in op.present_outputs
    )
    return is_hidden and _is_move(op)


def _elements(value: Value) -> int:
    return prod(value.static_shape or ())


def _copied_elements(op: Op) -> int:
    return 0 if is_reshape(op) else sum(_elements(value) for value in op.outputs if value is not None)


_CHANNELS_LAST = 0, 2, 3, 1


def _places(ops: Sequence[Op], source: Value) -> dict[Value, Array]:
    """The places in the source of the elements of all results of ops, first op first; empty if they are not known."""
    shape, y = source.static_shape, ops[-1].y
    largest = max(_elements(value) for each in ops for value in (source, *each.present_outputs))
    if not shape or source.dtype is not DType.FLOAT32 or largest > _MOST_ELEMENTS:
        return {}
    places = {source: np.arange(_elements(source), dtype=np.int32).reshape(shape)}
    try:
        for op in ops:
            results = zip(op.outputs, _moved(op, places), strict=True)
            places |= {value: array for value, array in results if value is not None}
    except ValueError:  # of parameters that no kernel accepts
        return {}
    return places if places[y].shape == y.static_shape else {}


def _moved_rows(ops: Sequence[Op], places: Mapping[Value, Array]) -> "_Rows | None":
    """The rows of the last axis of the source, or equal parts of them.

    None if the rows are longer: whole channels are moved by an op that the planner may block.
    """
    source, y = next(iter(places)), ops[-1].y
    rows = _whole_rows(places[y].reshape(-1), places[source].shape[-1])
    return None if rows is None else _Rows(source, rows, range(source.rank or 0), range(y.rank or 0))


def _moved_patches(ops: Sequence[Op], places: Mapping[Value, Array]) -> "_Rows | None":
    """The channels of an image, at the begin or at the end of Transposes and Reshapes, if its pixels change their order."""
    source, y = next(iter(places)), ops[-1].y
    for image in (source, y):
        if image.rank != len(_CHANNELS_LAST):
            continue
        orders = [_CHANNELS_LAST if each is image else range(each.rank or 0) for each in (source, y)]
        numbers = places[source].transpose(orders[0]).reshape(-1)
        in_order = np.empty_like(numbers)
        in_order[numbers] = np.arange(numbers.size, dtype=numbers.dtype)
        width = places[image].shape[1]
        rows = _whole_rows(in_order[places[y].transpose(orders[1]).reshape(-1)], width)
        if rows is not None and len(rows) * width == places[y].size and (np.diff(rows) != 1).any():
            return _Rows(source, rows, *orders)
    return None


def _whole_rows(moved: Array, longest: int) -> Array | None:
    """The numbers of rows from the numbers of moved elements; None if equal parts of `longest` elements are no rows."""
    ends = np.flatnonzero(np.diff(moved) != 1) + 1
    if (ends.size + 1) * _SHORTEST > moved.size:
        return None
    width = int(np.gcd.reduce(np.concatenate([[moved.size, moved[0]], ends, moved[ends]])))
    return moved[::width] // width if longest % width == 0 and width >= _SHORTEST else None


def _moved(op: Op, places: Mapping[Value, Array]) -> Sequence[Array]:
    """The results of a move."""
    given = [places[value] for value in _moved_inputs(op)]
    if is_reshape(op):
        return [given[0].reshape(op.y.static_shape or ())]
    parameters = [op.constant(index) for index in range(len(given), len(op.inputs))]
    return moved_arrays(op.op_type, op.version, [*given, *parameters], len(op.outputs), op.attributes)
