"""Passes on QDQ groups: they hoist view ops out of them, give each its own DequantizeLinear, and dequantise weights."""

from collections.abc import Collection

from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.types import Op
from layoutopt.ops.builder import replace_op, rewriting
from layoutopt.ops.qdq import (
    commuted_attributes,
    define_dequantizer,
    has_definition,
    has_float_kernel,
    is_dequantizer,
    is_lossless_round_trip,
    is_quantizer,
)
from layoutopt.passes.base import Pass, PassContext
from layoutopt.planner import planned_qdq_groups


class HoistFromQdqGroups(Pass):
    """Move Transposes and Reshapes out of QDQ groups, onto integers, and Slices in front of DequantizeLinears per tensor.

    before: q -> DequantizeLinear -> Transpose -> Conv -> Reshape -> QuantizeLinear -> p
    after:  q -> Transpose -> DequantizeLinear -> Conv -> QuantizeLinear -> Reshape -> p

    A runtime that looks for DequantizeLinear -> Conv -> QuantizeLinear then finds it.
    """

    name = "hoist-from-qdq-groups"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Move the view ops in front of quantisers behind them, and those behind dequantisers in front of them."""
        if context.keeps_qdq_groups:
            return
        pending = [op for op in graph.ops if is_quantizer(op)]
        while pending:
            quantizer = pending.pop()
            view = graph.producer(quantizer.x)
            pending += _exchange(graph, view, quantizer, quantizer) if view is not None else []
        pending = [op for op in graph.ops if is_dequantizer(op)]
        while pending:
            dequantizer = pending.pop()
            for use in graph.uses(dequantizer.y):
                pending += _exchange(graph, dequantizer, use.op, dequantizer) if use.index == 0 else []


def _exchange(graph: Graph, first: Op, second: Op, qdq_op: Op) -> list[Op]:
    """Exchange an op and one that reads its result, a view op and a Q/DQ op.

    Returns:
        The new Q/DQ op; none if the two do not commute.
    """
    attributes = commuted_attributes(qdq_op, second if qdq_op is first else first)
    if attributes is None:
        return []
    source, result = first.x, second.y
    integers, viewed = (source, result) if qdq_op is first else (result, source)
    if viewed.shape is None:
        return []
    stem = f"{source.name}__{'moved' if qdq_op is first else 'quantized'}"
    inner = graph.new_value(stem, integers.type_with(viewed.shape))
    outer = graph.new_value(f"{result.name}__moved", result.type)
    name = first.name if graph.has_one_use(first.y) else ""
    moved = []
    for op, name_of_copy, operand, value in ((second, second.name, source, inner), (first, name, inner, outer)):
        changes = {"attributes": attributes} if op is qdq_op else {}
        copy = graph.add_copy(op, (value,), (operand, *op.inputs[1:]), name=name_of_copy, **changes)
        moved += [copy] if op is qdq_op else []
    graph.replace_value(result, outer)
    return moved


class IsolateQdqGroups(Pass):
    """Give each QDQ group its own DequantizeLinear, and remove pairs of DequantizeLinear and QuantizeLinear that cancel.

    before: q -> DequantizeLinear -> d -> Conv ... , d -> Add ...
    after:  q -> DequantizeLinear -> Conv ...       q -> DequantizeLinear -> Add ...

    A DequantizeLinear followed by a QuantizeLinear with the same parameters is removed.
    """

    name = "isolate-qdq-groups"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Isolate the groups, unless the context keeps QDQ groups as the model has them."""
        if context.keeps_qdq_groups:
            return
        for op in graph.ops:
            _remove_round_trip(graph, op)
        groups = planned_qdq_groups([graph], context.prices_at(context.sizes))
        for op in graph.ops:
            if is_dequantizer(op):
                _isolate(graph, op, groups.integer_ops)


def _remove_round_trip(graph: Graph, op: Op) -> None:
    """Remove an op and its producer if they are a QuantizeLinear and a DequantizeLinear that cancel."""
    dequantizer = graph.producer(op.x) if is_quantizer(op) else None
    if dequantizer is not None and is_lossless_round_trip(op, dequantizer) and not graph.is_output(op.y):
        graph.replace_uses(op.y, dequantizer.x)
        graph.remove_if_dead(op)


def _isolate(graph: Graph, dequantizer: Op, grouped_ops: Collection[Op]) -> None:
    """Copy a DequantizeLinear for every op of a QDQ group that reads it.

    If no other op reads it, the first of these ops keeps the original.
    """
    value = dequantizer.y
    uses: dict[Op, list[Use]] = {}
    for use in graph.uses(value):
        uses.setdefault(use.op, []).append(use)
    readers = list(uses)
    grouped = [reader for reader in readers if reader in grouped_ops]
    if len(grouped) == len(readers) and not graph.is_output(value):
        grouped = grouped[1:]
    for reader in grouped:
        copy = graph.new_copy(dequantizer, dequantizer.inputs, dequantizer.y.type, value.name)
        graph.replace_uses(value, copy, uses[reader])


class DequantizeWeights(Pass):
    """Write DequantizeLinear of the weights of convolutions that have no integer kernel as ops that can be folded.

    before: w: int8 -> DequantizeLinear(scale, zero) -> Conv, whose result is not quantised
    after:  w: int8 -> Cast -> Sub(zero) -> Mul(scale) -> Conv

    onnxruntime computes such a convolution in floating point, and folds no DequantizeLinear. The folded weights are a constant,
    so that the convolution is planned as in any other model. The file has the integers if they are smaller.
    """

    name = "dequantize-weights"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the DequantizeLinears of constants, unless the target's QDQ groups are planned."""
        if not context.keeps_qdq_groups or graph.root is not graph:
            return  # sums of bodies cannot be compared one by one
        convolutions = {
            op for op in graph.ops if has_float_kernel(graph, op) and context.may_change_rounding(self, op.y)
        }
        for op in graph.ops:
            readers = list(graph.readers(op.y)) if is_dequantizer(op) else []
            if readers and convolutions.issuperset(readers) and has_definition(op) and not graph.is_output(op.y):
                builder = rewriting(graph, op, "dequantized")
                define_dequantizer(op, builder)
                replace_op(graph, op, builder)
                for each in readers:
                    context.changed_rounding(self, each.y)
