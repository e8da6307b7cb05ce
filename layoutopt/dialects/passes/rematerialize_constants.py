"""Replaces a folded constant that is larger than its operands by these operands and the ops that compute it.

before: c: float32, folded from a Cast of float16, and packed
after:  s: float16, packed -> Cast -> c

Any other constant that is larger than its operands becomes the ops that compute it, and those that convert it to its format.
Runtimes compute both when they load the model.
"""

from dataclasses import dataclass

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.packed import Packed
from layoutopt.dialects.write_plain import write_plain
from layoutopt.formats import Format
from layoutopt.ir.constants import LARGE, Deferred, Rearranged, expanded_constant, with_narrow_elements
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.ops import estimated_extent
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class RematerializeConstants(Pass):
    """Store the smaller operands of a folded constant, and the ops that compute it."""

    name = "rematerialize-constants"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the constants above 1 KiB."""
        for value in graph.values:
            deferred = expanded_constant(value.data) if value.data is not None else None
            if deferred is not None and value.data is not None and value.data.nbytes > LARGE:
                _expand(graph, value, deferred)


def _expand(graph: Graph, value: Value, deferred: Deferred) -> None:
    """Replace a constant that is no graph output by ops that compute it."""
    if graph.is_output(value) or not isinstance(value.type, TensorType):
        return
    if deferred.narrow_source is not None:
        _cast(graph, value, deferred, deferred.narrow_source)
    else:
        _compute(graph, value, deferred)


def _cast(graph: Graph, value: Value, deferred: Deferred, narrow: Value) -> None:
    """Store the narrow elements in the format that readers of the wide ones require."""
    assert value.data is not None and value.dtype is not None and narrow.dtype is not None
    data = with_narrow_elements(value.data, value.dtype, narrow)
    stored = graph.new_value(f"{value.name}__{narrow.dtype.label}", TensorType(narrow.dtype, value.shape), data=data)
    (cast,) = deferred.graph.ops
    value.data = None
    name = f"{value.name}__cast"
    attributes = dict(cast.attributes)
    graph.add_op(
        Op("Cast", (stored,), (value,), version=graph.opsets[""], name=name, attributes=attributes), first=True
    )


def _compute(graph: Graph, value: Value, deferred: Deferred) -> None:
    """Insert the ops that compute the constant, then those that move it."""
    moves: list[Rearranged] = []
    data = value.data
    while isinstance(data, Rearranged):
        moves.append(data)
        data = data.data
    source = _insert_copies(graph, value, deferred)
    shape = source.static_shape
    assert shape is not None and value.shape is not None
    op = Op("Identity", (source,), (value,), name=f"{value.name}__layout", order=(-1, len(graph)))
    builder = OpBuilder(op, [source], [value], {}, graph.opsets[""], op.name, Format.physical_shape)
    result = source
    for move in reversed(moves):
        if isinstance(move, Packed):
            result = builder.convert(result, Format.canonical(len(shape)), move.format, shape)
    result = builder.reshape(result, tuple(estimated_extent(dim) for dim in value.shape))
    value.data = None
    builder.outputs[0] = result
    write_plain(graph, op, builder, [value])


def _insert_copies(graph: Graph, value: Value, deferred: Deferred) -> Value:
    """Copy the ops that compute a constant into the graph; returns their result."""
    part = deferred.graph
    copies = {each: graph.new_value(f"{value.name}/{each.name}", each.type, data=each.data) for each in part.values}
    for number, op in enumerate(part.ops):
        inputs, outputs = (tuple(each and copies[each] for each in side) for side in (op.inputs, op.outputs))
        copy = op.copy(inputs, outputs, name=f"{value.name}/{op.name or number}", order=(), origin=None)
        graph.add_op(copy, first=True)
    return copies[part.outputs[0]]


__all__ = ["RematerializeConstants"]
