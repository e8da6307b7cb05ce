"""Passes on lowered graphs that every dialect can run."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from layoutopt.formats import Format
from layoutopt.ir.constants import LARGE, Deferred, Rearranged, expanded_constant, with_narrow_elements
from layoutopt.ir.graph import DOMAIN, Graph
from layoutopt.ir.types import DType, Op, Value
from layoutopt.ops import Inapplicable, X, Y, rule_of
from layoutopt.ops.axiswise import Nary, Unary
from layoutopt.ops.builder import Packed, replace_op, rewriting
from layoutopt.passes import RemoveDead, ShareConstants
from layoutopt.passes.base import Pass, PassContext


class EqualizeMatmulRanks(Pass):
    """Reshape the operand of lower rank of a float16 MatMul behind a conversion, because onnxruntime would crash.

    before: x -> Transpose(0, 2, 1) -> MatMul(w: [8,8])
    after:  x -> Transpose(0, 2, 1) -> MatMul(Reshape(w): [1,8,8])

    At its default level, onnxruntime 1.31 fuses a Transpose that moves the batch into a product, even through a Cast to
    float32 that it inserts; if the other operand has fewer axes, the process crashes. Only a Transpose that layoutopt inserts
    is relevant: an original with such a Transpose crashes too.
    """

    name = "equalize-matmul-ranks"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the products whose operands are both float16."""
        for op in graph.ops:
            operands = [value for value in op.present_inputs if value.dtype is DType.FLOAT16 and value.rank]
            if op.kind == "MatMul" and len(operands) == 2:
                smaller, larger = sorted(operands, key=lambda value: len(value.dims))
                missing = len(larger.dims) - len(smaller.dims)
                if len(smaller.dims) > 1 and missing and _is_inserted(graph, larger):
                    builder = rewriting(graph, op, "raised")
                    raised = builder.reshape(smaller, (*(1,) * missing, *smaller.dims))
                    inputs = [raised if value is smaller else value for value in op.inputs]
                    product = builder.result("MatMul", inputs, op.y.type_with(op.y.shape), op.attributes)
                    builder.set_output(0, product)
                    replace_op(graph, op, builder)


def _is_inserted(graph: Graph, value: Value) -> bool:
    """Whether a Transpose, or a function with one, computes a value, and layoutopt inserted it."""
    op = graph.producer(value)
    return op is not None and op.origin is None and (op.kind == "Transpose" or op.domain.startswith(DOMAIN))


class RematerializeConstants(Pass):
    """Store the smaller operands of a folded constant, and the ops that compute it.

    before: c: float32, folded from a Cast of float16, and packed
    after:  s: float16, packed -> Cast -> c

    Any other constant that is larger than its operands becomes the ops that compute it, and those that convert it to its
    format. Runtimes compute both when they load the model.
    """

    name = "rematerialize-constants"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the constants above 1 KiB."""
        for value in graph.values:
            deferred = expanded_constant(value.data) if value.data is not None else None
            if deferred is None or value.data is None or value.data.nbytes <= LARGE or graph.is_output(value):
                continue
            if deferred.narrow_source is not None:
                _cast(graph, value, deferred, deferred.narrow_source)
            else:
                _compute(graph, value, deferred)


def _cast(graph: Graph, value: Value, deferred: Deferred, narrow: Value) -> None:
    """Store the narrow elements in the format that readers of the wide ones require."""
    assert value.data is not None and value.dtype is not None and narrow.dtype is not None
    data = with_narrow_elements(value.data, value.dtype, narrow)
    stored = graph.new_value(f"{value.name}__{narrow.dtype.label}", narrow.type_with(value.shape), data=data)
    (cast,) = deferred.graph.ops
    value.data = None
    name, version, attributes = f"{value.name}__cast", graph.opsets[""], dict(cast.attributes)
    graph.add_op(Op("Cast", (stored,), (value,), version=version, name=name, attributes=attributes), first=True)


def _compute(graph: Graph, value: Value, deferred: Deferred) -> None:
    """Insert the ops that compute the constant, then those that move it."""
    moves: list[Rearranged] = []
    data, part = value.data, deferred.graph
    while isinstance(data, Rearranged):
        moves.append(data)
        data = data.data
    copies = {each: graph.new_value(f"{value.name}/{each.name}", each.type, data=each.data) for each in part.values}
    for number, op in enumerate(part.ops):
        name = f"{value.name}/{op.name or number}"
        graph.add_op(op.copy_on(copies, name=name, order=(), origin=None), first=True)
    source = result = copies[part.outputs[0]]
    value.data = None
    layout = graph.add_op(Op("Identity", (source,), (value,), name=f"{value.name}__layout"), first=True)
    builder = rewriting(graph, layout, "layout")
    for move in reversed(moves):
        if isinstance(move, Packed):
            result = builder.convert(result, Format.canonical(len(source.dims)), move.format, source.dims)
    builder.set_output(0, result)
    replace_op(graph, layout, builder)


class ShareTransposes(Pass):
    """Let all readers of equal Transposes, or Reshapes, of a value read one of them.

    before: x -> Transpose(0, 2, 1) -> MatMul      x -> Transpose(0, 2, 1) -> MatMul
    after:  x -> Transpose(0, 2, 1) -> MatMul, MatMul

    Every op that is written as Transpose, op, Transpose inserts its own Transposes.
    """

    name = "share-transposes"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the ops in topological order, so that equal Transposes of equal Reshapes are found."""
        kept: dict[Hashable, Value] = {}
        for op in graph.ops:
            target = op.constant(1) if op.kind == "Reshape" else None
            effect = None if target is None else (*target.tolist(), op.integer("allowzero"))
            if op.kind != "Transpose" and effect is None:
                continue
            first = kept.setdefault((op.x, op.kind, op.integers("perm"), effect), op.y)
            if first is not op.y and not graph.is_output(op.y):
                graph.replace_uses(op.y, first)
                graph.remove_op(op)


@dataclass(frozen=True, slots=True)
class SimplifyReshapes(Pass):
    """Bypass a Reshape that another one reads, and remove Reshapes to the same shape.

    before: (1, 64, 7, 7) -> Reshape -> (1, 4, 7, 7, 16) -> Relu -> Reshape -> (1, 64, 7, 7)
    after:  (1, 64, 7, 7) -> Relu -> (1, 64, 7, 7)

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
                target = graph.new_constant(np.asarray(op.y.static_shape, dtype=np.int64), f"{op.y.name}/shape")
                op.op_type, op.version, op.origin, op.attributes = "Reshape", graph.opsets[""], None, {}
                graph.set_inputs(op, (op.x, target))
        for op in graph.ops if self.moves_past_elementwise else ():
            if _is_fixed(op):
                _move_behind_elementwise(graph, op)
        for op in graph.ops:
            if _is_fixed(op):
                _skip_chain(graph, op)
        for op in graph.ops:
            if _is_fixed(op) and op.x.shape is not None and op.x.shape == op.y.shape and not graph.is_output(op.y):
                graph.bypass(op)
        for op in reversed(graph.ops):
            if _is_fixed(op) and not graph.is_used(op.y):
                graph.remove_op(op)


def _skip_chain(graph: Graph, op: Op) -> None:
    """Let a Reshape read the source of the chain of Reshapes before it.

    It goes on reading an output: onnxruntime rounds an output that only a Transpose before a QuantizeLinear reads.
    """
    source = op.x
    while (before := graph.producer(source)) is not None and _is_fixed(before) and not graph.is_output(source):
        source = before.x
    if source is not op.x:
        graph.set_input(op, 0, source)


def _move_behind_elementwise(graph: Graph, op: Op) -> None:
    """Move a Reshape behind the element-wise ops between it and another Reshape, which then bypasses it."""
    source, value = op.x, op.y
    chain: list[Op] = []
    while (reader := graph.only_reader(value)) is not None and not _is_fixed(reader):
        if source.rank is None or reader.input(0) is not value or not _is_elementwise(reader, source.rank):
            return
        chain.append(reader)
        value = reader.y
    if reader is None or not chain:
        return
    graph.set_input(chain[0], 0, source)
    for each in chain:
        each.y.give_type(each.y.type_with(source.shape))
    graph.touch()


def _is_elementwise(op: Op, rank: int) -> bool:
    """Whether an op computes one tensor from its first operand, of that rank, element by element; all others are scalars."""
    rule = rule_of(op)
    if not isinstance(rule, Unary | Nary) or len(op.outputs) != 1:
        return False
    axes = rule.iteration_axes(op)
    if isinstance(axes, Inapplicable):
        return False
    others = (op.operand(slot) for slot in axes.keys() - {X, Y})
    return all(value is not None and value.shape in ((), (1,)[:rank]) for value in others)


def _is_fixed(op: Op) -> bool:
    """Whether an op is a Reshape whose output shape does not depend on its input."""
    target = op.constant(1) if op.kind == "Reshape" else None
    return target is not None and bool((target > 0).all())


def _moves_nothing(op: Op) -> bool:
    """Whether a Transpose moves axes of extent 1 only."""
    extents = op.x.static_shape
    if extents is None or op.y.static_shape is None or 0 in extents:
        return False
    wide = [axis for axis in op.integers("perm") or reversed(range(len(extents))) if extents[axis] != 1]
    return wide == sorted(wide)


COMPACT: tuple[Pass, ...] = (ShareConstants(), RematerializeConstants(), ShareConstants(), RemoveDead())
"""The last passes of every dialect, which store constants in as few bytes as possible and remove unused values: a lowered op
may compute a shape from its operands that the planned op read."""
