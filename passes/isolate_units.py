"""Gives every QDQ group its own DequantizeLinear.

before: q -> DequantizeLinear -> d -> Conv ... , d -> Add ...
after:  q -> DequantizeLinear -> Conv ...       q -> DequantizeLinear -> Add ...

What is dequantised and quantised again by the same numbers is what it was.
"""

from dataclasses import dataclass

from layoutopt.cost import sized
from layoutopt.ir.def_use import Use
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.ops import is_dequantizer, is_lossless_round_trip
from layoutopt.passes.base import Pass, PassContext
from layoutopt.planner import integers_of


@dataclass(frozen=True, slots=True)
class IsolateUnits(Pass):
    """Give each QDQ group its own DequantizeLinear, and remove a DequantizeLinear the QuantizeLinear that undoes it."""

    name = "isolate-units"
    is_reason = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Skip graphs whose QDQ groups stay as the model has them."""
        if context.whole_units:
            return
        for op in graph.ops:
            _drop_pair(graph, op)
        integers = integers_of([graph], sized(context.cost_model, context.sizes))
        for op in graph.ops:
            if is_dequantizer(op):
                _split(graph, op, integers.integer)


def _drop_pair(graph: Graph, op: Op) -> None:
    """A quantisation of what was just dequantised by the same numbers."""
    value, result = op.inputs[0] if op.inputs else None, op.outputs[0] if op.outputs else None
    before = graph.producer(value) if value is not None else None
    if before is None or result is None or value is None or not is_lossless_round_trip(op, before):
        return
    source = before.inputs[0]
    if source is None or graph.is_output(result):
        return
    graph.replace_uses(result, source)
    graph.remove_unread(op)


def _split(graph: Graph, step: Op, integer: dict[Op, Op]) -> None:
    """A dequantisation of its own for every unit but the first reader."""
    value = step.outputs[0]
    if value is None:
        return
    uses: dict[Op, list[Use]] = {}
    for use in graph.uses(value):
        uses.setdefault(use.op, []).append(use)
    readers = list(uses)
    units = [reader for reader in readers if reader in integer]
    if len(units) == len(readers) and not graph.is_output(value):
        units = units[1:]
    for reader in units:
        copy = graph.new_value(value.name, value.type)
        graph.add_copy(step, (copy,))
        graph.replace_uses(value, copy, uses[reader])
