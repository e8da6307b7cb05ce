"""Gives every QDQ group its own DequantizeLinear.

before: q -> DequantizeLinear -> d -> Conv ... , d -> Add ...
after:  q -> DequantizeLinear -> Conv ...       q -> DequantizeLinear -> Add ...

A DequantizeLinear followed by a QuantizeLinear with the same parameters is removed.
"""

from dataclasses import dataclass

from layoutopt.cost import sized
from layoutopt.ir.def_use import Use
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.ops import is_dequantizer, is_lossless_round_trip
from layoutopt.passes.base import Pass, PassContext
from layoutopt.planner import planned_qdq_groups


@dataclass(frozen=True, slots=True)
class IsolateQdqGroups(Pass):
    """Give each QDQ group its own DequantizeLinear, and remove pairs of DequantizeLinear and QuantizeLinear that cancel."""

    name = "isolate-qdq-groups"
    is_reason = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Change nothing if QDQ groups stay as they are."""
        if context.keeps_qdq_groups:
            return
        for op in graph.ops:
            _drop_pair(graph, op)
        groups = planned_qdq_groups([graph], sized(context.cost_model, context.sizes))
        for op in graph.ops:
            if is_dequantizer(op):
                _split(graph, op, groups.integer)


def _drop_pair(graph: Graph, op: Op) -> None:
    """Remove a QuantizeLinear, and the DequantizeLinear before it, if they cancel."""
    value, result = op.inputs[0] if op.inputs else None, op.outputs[0] if op.outputs else None
    before = graph.producer(value) if value is not None else None
    if before is None or result is None or value is None or not is_lossless_round_trip(op, before):
        return
    source = before.inputs[0]
    if source is None or graph.is_output(result):
        return
    graph.replace_uses(result, source)
    graph.remove_unread(op)


def _split(graph: Graph, dequantizer: Op, integer: dict[Op, Op]) -> None:
    """Copy a DequantizeLinear for every QDQ group except the first reader."""
    value = dequantizer.outputs[0]
    if value is None:
        return
    uses: dict[Op, list[Use]] = {}
    for use in graph.uses(value):
        uses.setdefault(use.op, []).append(use)
    readers = list(uses)
    grouped = [reader for reader in readers if reader in integer]
    if len(grouped) == len(readers) and not graph.is_output(value):
        grouped = grouped[1:]
    for reader in grouped:
        copy = graph.new_value(value.name, value.type)
        graph.add_copy(dequantizer, (copy,))
        graph.replace_uses(value, copy, uses[reader])
