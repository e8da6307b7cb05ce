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
        """Axes correspond by position; the order of unsorted elements depends on the runtime."""
        if not op.integer("sorted", 1):
            return Inapplicable("unsorted elements have no defined order")
        axes = super().axes(op)
        if isinstance(axes, Inapplicable):
            return axes
        outputs = [slot for slot in op.slots() if slot.side == "out"]
        return dict.fromkeys((X, *outputs), axes[X])

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Padding elements are rows of their own; NaN cannot be sorted. Indices are finite."""
        return None if inputs[0] is Padding.ANY else (inputs[0], Padding.FINITE)


@register
class Compress(OneAxis):
    """The slices along an axis for which a condition is true."""

    family = "selection"
    ops = ("Compress",)
    padding = PADDING_KEPT

    def axes(self, op: Op) -> Axes | Inapplicable:
        """As for one axis; without an axis, elements are counted in canonical order."""
        return (
            super().axes(op)
            if "axis" in op.attributes
            else Inapplicable("without an axis it counts elements in canonical order")
        )


__all__ = ["Compress", "TopK"]
