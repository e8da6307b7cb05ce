"""Remove an Expand before an op that broadcasts its operands itself.

before: n (8, 64, 1) -> Expand -> (8, 64, 32) -> Div(x, .)
after:  n (8, 64, 1) -> Div(x, .)
"""

from dataclasses import dataclass

from layoutopt.formats import Dim, Shape
from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.types import Op, Value
from layoutopt.ops import rule_of
from layoutopt.ops.interfaces import BroadcastingOp, PureBroadcast
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class FoldBroadcasts(Pass):
    """Remove Expands whose readers broadcast, if the shape of the result stays the same."""

    name = "fold-broadcasts"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Redirect the readers of every Expand that broadcast themselves to its input; `remove-dead` removes the Expand."""
        for op in graph.ops:
            rule = rule_of(op)
            x, y = op.inputs[0] if op.inputs else None, op.outputs[0] if op.outputs else None
            if not isinstance(rule, PureBroadcast) or x is None or y is None:
                continue
            for use in graph.uses(y):
                if _broadcasts(use, x):  # one Expand at a time: the other operands decide the shape of the result
                    graph.set_input(use.op, use.index, x)


def _broadcasts(use: Use, x: Value) -> bool:
    """Whether the reader gives a result of the same shape if it reads `x`."""
    op: Op = use.op
    rule = rule_of(op)
    result = op.outputs[0] if op.outputs else None
    if not isinstance(rule, BroadcastingOp) or result is None or result.shape is None:
        return False
    operands = [x if index == use.index else value for index, value in enumerate(op.inputs)]
    shapes = [value.shape for value in operands if value is not None and value.shape is not None]
    return len(shapes) == len(operands) and _broadcast(shapes) == tuple(result.shape)


def _broadcast(shapes: list[Shape]) -> tuple[Dim | None, ...]:
    """The shape that shapes are broadcast to; None for an extent that is not certain."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(_common({dim for dim in dims if dim != 1}) for dims in zip(*padded, strict=True))


def _common(dims: set[Dim]) -> Dim | None:
    return 1 if not dims else dims.pop() if len(dims) == 1 else None
