"""Removes redundant Reshapes; a Transpose that moves axes of extent 1 only counts as a Reshape.

before: (1, 64, 7, 7) -> Reshape -> (1, 4, 7, 7, 16) -> Relu -> Reshape -> (1, 64, 7, 7)
after:  (1, 64, 7, 7) -> Relu -> (1, 64, 7, 7)
"""

from dataclasses import dataclass

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.ops import Inapplicable, X, Y, rule_of
from layoutopt.ops.elementwise import Cast, Clip, Nary, Unary
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class SimplifyReshapes(Pass):
    """Bypass a Reshape that another one reads, and remove Reshapes to the same shape.

    Attributes:
        moves_past_elementwise: whether element-wise ops may be between two Reshapes. These ops then have the shape on the
            other side of the first Reshape, which the blocked kernels of onnxruntime would have to change back.
    """

    moves_past_elementwise: bool = False

    name = "simplify-reshapes"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the Reshapes to constant, positive extents, whose outputs do not depend on the shape of their inputs."""
        for op in graph.ops:
            if op.kind == "Transpose" and _moves_nothing(op):
                _replace_by_reshape(graph, op)
        for op in graph.ops if self.moves_past_elementwise else ():
            if _is_fixed(op):
                _move_behind_elementwise(graph, op)
        for op in graph.ops:
            if _is_fixed(op):
                _skip_chain(graph, op)
        for op in graph.ops:
            if _is_fixed(op) and _keeps_shape(graph, op):
                graph.bypass(op)
        for op in reversed(graph.ops):
            if _is_fixed(op) and _is_unread(graph, op.outputs[0]):
                graph.remove_op(op)


def _skip_chain(graph: Graph, op: Op) -> None:
    """Let a Reshape read the source of the chain of Reshapes before it."""
    source = op.inputs[0]
    assert source is not None
    before = graph.producer(source)
    while before is not None and _is_fixed(before) and before.inputs[0] is not None:
        source = before.inputs[0]
        before = graph.producer(source)
    if source is not op.inputs[0]:
        graph.set_inputs(op, (source, *op.inputs[1:]))


def _move_behind_elementwise(graph: Graph, op: Op) -> None:
    """Move a Reshape behind the element-wise ops between it and another Reshape, which then bypasses it."""
    source, reshaped = op.inputs[0], op.outputs[0]
    assert source is not None and reshaped is not None
    if source.rank is None:
        return
    chain: list[Op] = []
    value = reshaped
    while graph.has_one_use(value):
        reader = next(graph.readers(value))
        if _is_fixed(reader):
            break
        if reader.inputs[0] is not value or not _is_elementwise(reader, source.rank):
            return
        chain.append(reader)
        assert reader.outputs[0] is not None
        value = reader.outputs[0]
    else:
        return
    if not chain:
        return
    graph.set_input(chain[0], 0, source)
    for each in chain:
        result = each.outputs[0]
        assert result is not None and isinstance(result.type, TensorType)
        result.give_type(TensorType(result.type.dtype, source.shape))
    graph.touch()


def _is_elementwise(op: Op, rank: int) -> bool:
    """Whether an op computes one tensor from its first operand, of that rank, element by element; all others are scalars."""
    rule = rule_of(op)
    if not isinstance(rule, Unary | Cast | Clip | Nary) or len(op.outputs) != 1 or rule.missing_rank(op) is not None:
        return False
    axes = rule.axes(op)
    if isinstance(axes, Inapplicable):
        return False
    others = (op.operand(slot) for slot in axes.keys() - {X, Y})
    return all(value is not None and value.shape in ((), (1,)[:rank]) for value in others)


def _is_fixed(op: Op) -> bool:
    """Whether an op is a Reshape whose output shape does not depend on its input."""
    if op.kind != "Reshape" or op.outputs[0] is None or op.inputs[0] is None:
        return False
    target = op.constant(1) if len(op.inputs) > 1 else None
    return target is not None and bool((target > 0).all())


def _moves_nothing(op: Op) -> bool:
    """Whether a Transpose moves axes of extent 1 only."""
    x, y = op.inputs[0], op.outputs[0]
    if x is None or y is None or x.static_shape is None or y.static_shape is None or 0 in x.static_shape:
        return False
    perm = op.integers("perm") or tuple(reversed(range(len(x.static_shape))))
    wide = [axis for axis in perm if x.static_shape[axis] != 1]
    return wide == sorted(wide)


def _replace_by_reshape(graph: Graph, op: Op) -> None:
    x, y = op.inputs[0], op.outputs[0]
    assert x is not None and y is not None and y.static_shape is not None
    target = graph.new_constant(np.asarray(y.static_shape, dtype=np.int64), f"{y.name}/shape")
    op.op_type, op.version, op.origin = "Reshape", graph.opsets[""], None
    op.attributes = {}
    graph.set_inputs(op, (x, target))


def _is_unread(graph: Graph, value: Value | None) -> bool:
    return value is None or not graph.is_used(value)


def _keeps_shape(graph: Graph, op: Op) -> bool:
    x, y = op.inputs[0], op.outputs[0]
    assert x is not None and y is not None
    return x.shape is not None and x.shape == y.shape and not graph.is_output(y)
