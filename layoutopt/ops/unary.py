"""Element-wise ops of one operand.

`_UNARY` has the padding states of f(0) and of f(x) for finite x. The state for ANY is ANY.
"""

from typing import ClassVar

from typing_extensions import override

from layoutopt.ir.types import Op, Padding, Signature
from layoutopt.ops.base import register
from layoutopt.ops.elementwise import Elementwise
from layoutopt.ops.interfaces.numerics import SaturatingActivation
from layoutopt.ops.padding_transfer import PADDING_KEPT, PaddingTransfer

ZERO, FINITE, ANY = Padding.ZERO, Padding.FINITE, Padding.ANY


def _same(*kinds: str) -> dict[str, tuple[Padding, Padding]]:
    return dict.fromkeys(kinds, (ZERO, FINITE))


# op type -> the states of (f(0), f(a small finite number)). The second is FINITE only if |f(x)| is near |x|:
# padding that grows from op to op does not stay finite.
_UNARY: dict[str, tuple[Padding, Padding]] = {
    **_same("Abs", "Asinh", "Atan", "Ceil", "Elu", "Erf", "Floor", "Gelu", "HardSwish", "Identity", "Mish", "Neg"),
    **_same("Relu", "Round", "Sign", "Sin", "Softsign", "Swish", "Tanh", "ThresholdedRelu", "Celu"),
    **dict.fromkeys(("Asin", "Atanh", "Selu", "Sinh", "Sqrt", "Tan"), (ZERO, ANY)),
    **dict.fromkeys(("Cos", "HardSigmoid", "Sigmoid", "Softplus", "Not"), (FINITE, FINITE)),
    **dict.fromkeys(("Acos", "Cosh", "Exp"), (FINITE, ANY)),
    **dict.fromkeys(("Acosh", "Log", "Reciprocal", "BitwiseNot"), (ANY, ANY)),
}


@register
class Unary(Elementwise, SaturatingActivation):
    """One tensor in, one tensor out."""

    ops: ClassVar[tuple[str, ...]] = (*_UNARY, "IsNaN", "IsInf", "LeakyRelu", "Shrink")
    formats = "any"

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The transfer function of f; boolean results are finite for every input."""
        if kind in ("IsNaN", "IsInf", "Not"):
            return PaddingTransfer(FINITE, FINITE, FINITE)
        if kind == "Shrink":
            return PaddingTransfer(ANY, ANY, ANY)
        if kind == "LeakyRelu":
            return PaddingTransfer(ZERO, FINITE, ANY, "any for slopes above 1")
        return PaddingTransfer(*_UNARY[kind], ANY)

    @override
    def is_saturating_activation(self, op: Op) -> bool:
        return op.op_type in ("Sigmoid", "Tanh", "HardSigmoid")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer of f; any for LeakyRelu with a slope above 1, which enlarges finite elements."""
        slope = op.attributes.get("alpha", 0.01)
        if op.op_type == "LeakyRelu" and isinstance(slope, float | int) and abs(slope) > 1 and inputs[0]:
            return (ANY,)
        return super().transfer_padding(op, signature, inputs)


@register
class FusedGelu(Elementwise):
    """A tensor times a bounded function of itself, in one kernel of onnxruntime: |f(x)| is at most |x|."""

    ops = ("com.microsoft::Gelu", "com.microsoft::QuickGelu")
    formats = "any"
    padding = PADDING_KEPT


@register
class BitCast(Elementwise):
    """BitCast: the same bits as another type; the bits of zero are zero in every type."""

    ops = ("BitCast",)
    formats = "any"
    padding = PaddingTransfer(Padding.ZERO, Padding.ANY, Padding.ANY)
