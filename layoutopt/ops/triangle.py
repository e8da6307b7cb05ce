"""The upper or lower triangle of matrices, the other elements set to zero."""

from types import MappingProxyType

from layoutopt.ir.types import Op, Signature
from layoutopt.ops.axiswise import AxiswiseRule
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.operands import chosen_signature
from layoutopt.ops.padding_transfer import PADDING_KEPT
from layoutopt.ops.signatures import X, is_canonical


@register
class Triangle(AxiswiseRule):
    """Trilu. Each matrix is computed from its row and column indices, which padding behind them does not change."""

    family = "triangle"
    ops = ("Trilu", "com.microsoft::Trilu")
    formats = "any; one kernel where rows and columns are the innermost axes"
    padding = PADDING_KEPT
    ranks = MappingProxyType({X: 2})

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether rows and columns are the innermost axes."""
        x = signature.inputs[0]
        if x is None or is_canonical(signature):
            return True
        *_, rows, columns = x.format.parts
        matrix = (x.format.rank - 2, x.format.rank - 1)
        return not rows.block and not columns.block and (rows.axis, columns.axis) == matrix

    def lower(self, op: Op, build: Builder) -> None:
        """The same op on the physical array, or emulated."""
        if self.is_layout_agnostic(op, chosen_signature(op)):
            lower_directly(op, build)
        else:
            super().lower(op, build)


__all__ = ["Triangle"]
