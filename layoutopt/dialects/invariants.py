"""Invariants of lowered graphs: plain ops and function calls on arrays, without formats."""

from collections.abc import Iterator
from math import prod

from layoutopt.ir.graph import DOMAIN, Graph
from layoutopt.ir.types import DType, Op
from layoutopt.ir.verify import invariant

_BYTE = 8


def _is_lowered(graph: Graph) -> bool:
    return graph.stage == "lowered"


@invariant
def lowered_values_have_no_format(graph: Graph) -> Iterator[str]:
    """A lowered value is an array in row-major order; its shape is the physical one."""
    for value in graph.values if _is_lowered(graph) else ():
        if value.storage is not None and not value.storage.format.is_canonical:
            yield f"{value.name}: {value.storage}"


@invariant
def lowered_ops_have_no_signature(graph: Graph) -> Iterator[str]:
    """A lowered op has no signature; its formats are expanded to ops, or are attributes of a function call."""
    for op in graph.ops if _is_lowered(graph) else ():
        if op.signature is not None:
            yield f"{op!r}: {op.signature}"


@invariant
def lowered_ops_of_layoutopt_are_calls(graph: Graph) -> Iterator[str]:
    """An op in a domain of layoutopt is a call of a function in the graph, with the function's parameters and attributes."""
    if not _is_lowered(graph):
        return
    functions = {(each.domain, each.name, each.overload): each for each in graph.functions}
    for op in graph.ops:
        if op.domain != DOMAIN and not op.domain.startswith(f"{DOMAIN}."):
            continue
        function = functions.get((op.domain, op.op_type, op.overload))
        if function is None:
            yield f"{op!r}, which has no function"
        elif len(op.inputs) > len(function.inputs) or not set(op.attributes) <= set(function.attributes):
            yield f"{op!r}, whose function has other parameters"


@invariant
def lowered_ops_have_a_version(graph: Graph) -> Iterator[str]:
    """The model imports the domain of every op."""
    for op in graph.ops if _is_lowered(graph) else ():
        if op.domain not in graph.opsets:
            yield f"{op!r}: {op.domain or 'ai.onnx'}"


@invariant
def lowered_constants_fill_their_shapes(graph: Graph) -> Iterator[str]:
    """A constant that layoutopt created has the bytes of its shape; element types of less than a byte may be unpacked."""
    for value in graph.values if _is_lowered(graph) else ():
        dtype, shape = value.dtype, value.static_shape
        if value.data is None or value.origin is not None or shape is None or dtype is None:
            continue
        if dtype is DType.STRING or dtype.bits < _BYTE:
            continue
        if value.data.nbytes != prod(shape) * dtype.bits // _BYTE:
            yield f"{value.name}: {value.data.nbytes} bytes for {value.type}"


@invariant
def lowered_arrays_have_the_shapes_that_views_give_them(graph: Graph) -> Iterator[str]:
    """A Transpose that layoutopt created permutes the extents of its input, a Reshape keeps the number of elements."""
    for op in graph.ops if _is_lowered(graph) else ():
        if op.origin is None and op.kind in ("Reshape", "Transpose") and not _is_consistent(op):
            yield f"{op!r}"


def _is_consistent(op: Op) -> bool:
    x, y = op.inputs[0], op.outputs[0]
    before, after = (None if value is None else value.static_shape for value in (x, y))
    if before is None or after is None:
        return True
    if op.kind == "Reshape":
        return prod(before) == prod(after)
    return after == tuple(before[axis] for axis in op.integers("perm", tuple(reversed(range(len(before))))))


__all__: list[str] = []
