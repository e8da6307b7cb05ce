"""Give every QDQ group its own DequantizeLinear.

before: q -> DequantizeLinear -> d -> Conv ... , d -> Add ...
after:  q -> DequantizeLinear -> Conv ...       q -> DequantizeLinear -> Add ...

A DequantizeLinear followed by a QuantizeLinear with the same parameters is removed.
"""

from collections.abc import Collection
from dataclasses import dataclass

from layoutopt.cost import sized
from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.types import Op
from layoutopt.ops import is_dequantizer, is_lossless_round_trip
from layoutopt.passes.base import Pass, PassContext
from layoutopt.planner import planned_qdq_groups


@dataclass(frozen=True, slots=True)
class IsolateQdqGroups(Pass):
    """Give each QDQ group its own DequantizeLinear, and remove pairs of DequantizeLinear and QuantizeLinear that cancel."""

    name = "isolate-qdq-groups"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Isolate the groups, unless the context keeps QDQ groups as the model has them."""
        if context.keeps_qdq_groups:
            return
        for op in graph.ops:
            _remove_round_trip(graph, op)
        groups = planned_qdq_groups([graph], sized(context.cost_model, context.sizes))
        for op in graph.ops:
            if is_dequantizer(op):
                _isolate(graph, op, groups.integer_ops)


def _remove_round_trip(graph: Graph, op: Op) -> None:
    """Remove an op and its producer if they are a QuantizeLinear and a DequantizeLinear that cancel."""
    value, result = op.inputs[0] if op.inputs else None, op.outputs[0] if op.outputs else None
    dequantizer = graph.producer(value) if value is not None else None
    if dequantizer is None or result is None or value is None or not is_lossless_round_trip(op, dequantizer):
        return
    source = dequantizer.inputs[0]
    if source is None or graph.is_output(result):
        return
    graph.replace_uses(result, source)
    graph.remove_if_dead(op)


def _isolate(graph: Graph, dequantizer: Op, grouped_ops: Collection[Op]) -> None:
    """Copy a DequantizeLinear for every op of a QDQ group that reads it.

    If no other op reads it, the first of these ops keeps the original.
    """
    value = dequantizer.outputs[0]
    if value is None:
        return
    uses: dict[Op, list[Use]] = {}
    for use in graph.uses(value):
        uses.setdefault(use.op, []).append(use)
    readers = list(uses)
    grouped = [reader for reader in readers if reader in grouped_ops]
    if len(grouped) == len(readers) and not graph.is_output(value):
        grouped = grouped[1:]
    for reader in grouped:
        copy = graph.new_value(value.name, value.type)
        graph.add_copy(dequantizer, (copy,))
        graph.replace_uses(value, copy, uses[reader])
