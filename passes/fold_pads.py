"""Fold a Pad with zeros into the `pads` of the convolution that reads it.

before: x -> Pad(zeros) -> Transpose -> Conv(pads = 0)
after:  x -> Transpose -> Conv(pads = 1)
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.ops import View, rule_of
from layoutopt.ops.interfaces import Pads, folded_pads, zero_pads_of
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class FoldPads(Pass):
    """Fold Pads into the convolutions behind them, also across metadata-only ops."""

    name = "fold-pads"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fold every op that only pads with zeros, and remove those that add no element."""
        for op in graph.ops:
            padding = zero_pads_of(op)
            if padding is None:
                continue
            reason = self._fold(graph, op, padding) if padding else self._drop(graph, op)
            if reason:
                context.note(self, op.name or op.kind, reason)

    def _drop(self, graph: Graph, pad: Op) -> str:
        """Remove a Pad that adds no element. Returns the reason why it stays; empty if it was removed."""
        y = pad.outputs[0]
        assert y is not None
        if graph.is_output(y):
            return f"{y.name} is an output"
        graph.bypass(pad)
        return ""

    def _fold(self, graph: Graph, pad: Op, padding: Pads) -> str:
        """Add the padding to the `pads` of the reader. Returns the reason why the Pad stays; empty if it was folded."""
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
            moved = {rule.permuted_axis(use.op, axis): ends for axis, ends in padding.items()}
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
    """Change the shape of a value to that without the padding, and rename it."""
    assert isinstance(value.type, TensorType) and value.shape is not None
    shape = list(value.shape)
    for axis, ends in padding.items():
        extent = shape[axis]
        assert isinstance(extent, int)
        shape[axis] = extent - sum(ends)
    value.type = TensorType(value.type.dtype, tuple(shape))
    graph.rename(value, graph.fresh_name(f"{value.name}__unpadded"))
    value.tensor = value.name
