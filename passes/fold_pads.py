"""Fold a Pad with zeros into the `pads` of the convolution that reads it.

before: x -> Pad(zeros) -> Transpose -> Conv(pads = 0)
after:  x -> Transpose -> Conv(pads = 1)
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.ops import View, rule_of
from layoutopt.ops.interfaces.pads import Pads, folded_pads, zero_pads_of
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class FoldPads(Pass):
    """Fold Pads into the convolutions behind them, also across metadata-only ops."""

    name = "fold-pads"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Every op that does nothing but pad with zeros, if that."""
        for op in graph.ops:
            padding = zero_pads_of(op)
            if padding is None:
                continue
            reason = self._fold(graph, op, padding) if padding else self._drop(graph, op)
            if reason:
                context.note(self, op.name or op.kind, reason)

    def _drop(self, graph: Graph, pad: Op) -> str:
        """Let readers read what a Pad adds nothing to. Returns why not; empty if done."""
        y = pad.outputs[0]
        assert y is not None
        if graph.is_output(y):
            return f"{y.name} is an output"
        graph.bypass(pad)
        return ""

    def _fold(self, graph: Graph, pad: Op, padding: Pads) -> str:
        """Give the padding to the reader. Returns why not; empty if done."""
        value = pad.outputs[0]
        between: list[tuple[Value, Pads]] = []
        while True:
            assert value is not None
            if not graph.has_one_use(value):
                return f"{value.name} is read more than once or is an output"
            (use,) = graph.uses(value)
            rule = rule_of(use.op)
            if not isinstance(rule, View):
                break
            moved = {rule.axis_after(use.op, axis): ends for axis, ends in padding.items()}
            padding = {axis: ends for axis, ends in moved.items() if axis is not None}
            value = use.op.outputs[0]
            if len(padding) < len(moved) or value is None or value.shape is None:
                return f"{use.op.kind} behind it splits or merges axes"
            between.append((value, padding))
        attributes = folded_pads(use.op, padding) if use.index == 0 else None
        if attributes is None:
            return f"{use.op.kind} behind it does not pad with zeros"
        use.op.attributes = {**use.op.attributes, **attributes}
        for inner, ends in between:
            _shrink(graph, inner, ends)
        graph.bypass(pad)
        return ""


def _shrink(graph: Graph, value: Value, padding: Pads) -> None:
    """Make a value the tensor without the padding, under a name of its own."""
    assert isinstance(value.type, TensorType) and value.shape is not None
    shape = list(value.shape)
    for axis, ends in padding.items():
        extent = shape[axis]
        assert isinstance(extent, int)
        shape[axis] = extent - sum(ends)
    value.type = TensorType(value.type.dtype, tuple(shape))
    graph.rename(value, graph.fresh_name(f"{value.name}__unpadded"))
    value.tensor = value.name
