"""Passes on QDQ groups: view ops are hoisted out of them, and every group gets its own DequantizeLinear."""

from collections.abc import Collection

from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.types import Op
from layoutopt.ops.qdq import commuted_attributes, is_dequantizer, is_lossless_round_trip, is_quantizer
from layoutopt.passes.base import Pass, PassContext
from layoutopt.planner import planned_qdq_groups


class HoistFromQdqGroups(Pass):
    """Move Transposes and Reshapes out of QDQ groups, onto integers.

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
            pending += _quantize_first(graph, pending.pop())
        pending = [op for op in graph.ops if is_dequantizer(op)]
        while pending:
            dequantizer = pending.pop()
            for use in graph.uses(dequantizer.y):
                pending += _dequantize_last(graph, dequantizer, use)


def _quantize_first(graph: Graph, quantizer: Op) -> list[Op]:
    """Exchange a QuantizeLinear and the view op in front of it; the new QuantizeLinear, or none if they do not commute."""
    result, view = quantizer.y, graph.producer(quantizer.x)
    attributes = commuted_attributes(quantizer, view) if view is not None else None
    if view is None or attributes is None or view.x.shape is None:
        return []
    source, inputs = view.x, (view.x, *quantizer.inputs[1:])
    quantized = graph.new_value(f"{source.name}__quantized", result.type_with(source.shape))
    moved = graph.add_copy(quantizer, (quantized,), inputs, attributes=attributes, name=quantizer.name)
    name = view.name if graph.has_one_use(quantizer.x) else ""
    integers = (quantized, *view.inputs[1:])
    graph.replace_value(result, graph.new_copy(view, integers, result.type, f"{result.name}__moved", name=name))
    return [moved]


def _dequantize_last(graph: Graph, dequantizer: Op, use: Use) -> list[Op]:
    """Exchange a DequantizeLinear and a view op that reads it; the new DequantizeLinear, or none if they do not commute."""
    source, view = dequantizer.x, use.op
    attributes = commuted_attributes(dequantizer, view) if use.index == 0 else None
    if attributes is None or view.y.shape is None:
        return []
    result, name = view.y, dequantizer.name if graph.has_one_use(dequantizer.y) else ""
    type, integers = source.type_with(result.shape), (source, *view.inputs[1:])
    viewed = graph.new_copy(view, integers, type, f"{source.name}__moved", name=view.name)
    new_result, inputs = graph.new_value(f"{result.name}__dequantized", result.type), (viewed, *dequantizer.inputs[1:])
    moved = graph.add_copy(dequantizer, (new_result,), inputs, attributes=attributes, name=name)
    graph.replace_value(result, new_result)
    return [moved]


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
