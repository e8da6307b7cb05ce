"""Elements selected along one axis by value (TopK) or by a condition (Compress)."""

from layoutopt.ir.types import Op, Padding, Signature
from layoutopt.ops.axis import OneAxis
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import register
from layoutopt.ops.padding_transfer import PADDING_KEPT, PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X


@register
class TopK(OneAxis):
    """The largest or smallest elements and their indices along the axis; their number is an attribute before opset 10."""

    family = "selection"
    ops = ("TopK",)
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, None, "indices are finite")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes by position; Inapplicable for unsorted elements, whose order depends on the runtime."""
        if not op.integer("sorted", 1):
            return Inapplicable("unsorted elements have no defined order")
        axes = super().axes(op)
        if isinstance(axes, Inapplicable):
            return axes
        outputs = [slot for slot in op.slots() if slot.side == "out"]
        return dict.fromkeys((X, *outputs), axes[X])

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The state of x for the elements, finite for the indices; None for any, since NaN has no order."""
        return None if inputs[0] is Padding.ANY else (inputs[0], Padding.FINITE)


@register
class Compress(OneAxis):
    """The slices along an axis for which a condition is true."""

    family = "selection"
    ops = ("Compress",)
    padding = PADDING_KEPT

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of x and y; Inapplicable without an axis, since elements are then counted in row-major order."""
        return (
            super().axes(op)
            if "axis" in op.attributes
            else Inapplicable("without an axis it counts elements in row-major order")
        )


__all__ = ["Compress", "TopK"]
