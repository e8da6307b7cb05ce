"""Element-wise ops of one tensor, whose other operands have no format: Cast, Clip, Dropout."""

from types import MappingProxyType

import numpy as np

from layoutopt.ir.types import Op, Padding, Signature, Slot
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import register
from layoutopt.ops.elementwise import Elementwise
from layoutopt.ops.operands import rank_of
from layoutopt.ops.padding_state import state_of
from layoutopt.ops.padding_transfer import PADDING_KEPT, PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y


@register
class Cast(Elementwise):
    """Conversion to another element type."""

    ops = ("Cast", "CastLike")
    formats = "any"
    padding = PADDING_KEPT

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond by position; the second operand of CastLike, which gives the type, has no format."""
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {slot: axes[slot] for slot in axes if slot != Slot("in", 1)}


@register
class Clip(Elementwise):
    """Limits the elements to bounds, which are attributes (opset 6) or scalars."""

    ops = ("Clip",)
    formats = "any"
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.ANY, "zero is clipped to the bounds")
    ranks = MappingProxyType({X: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond by position; the bounds have no format."""
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...]:
        """Zero stays zero if the bounds are constants with zero between them; otherwise it becomes a bound, which is finite."""
        low, high = self._bound(op, "min", 1), self._bound(op, "max", 2)
        if low is None or high is None:
            return (max(Padding.FINITE, inputs[0]),)
        return (max(inputs[0], state_of(np.minimum(np.maximum(0.0, low), high))),)

    def _bound(self, op: Op, name: str, index: int) -> float | None:
        """A bound as a number, infinite if it is absent; None if it is computed."""
        default = float("-inf") if name == "min" else float("inf")
        if index < len(op.inputs) and op.inputs[index] is not None:
            array = op.constant(index)
            return None if array is None or array.size != 1 else float(array.reshape(()).astype(float))
        bound = op.attributes.get(name, default)
        return float(bound) if isinstance(bound, float | int) else None


@register
class Dropout(Elementwise):
    """The identity at inference. Ops with a mask output or in training mode have no signature."""

    ops = ("Dropout",)
    formats = "any"
    padding = PADDING_KEPT
    ranks = MappingProxyType({X: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond by position; the ratio has no format."""
        if len([value for value in op.outputs if value is not None]) > 1:
            return Inapplicable("the mask is used")
        training = op.constant(2)
        if len(op.inputs) > 2 and op.inputs[2] is not None and (training is None or training.any()):
            return Inapplicable("the training mode is computed, or on")
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))
