"""The discrete Fourier transform along one axis; the last axis holds real and imaginary parts and stays innermost."""

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Attribute, Op, Padding, Signature, Value
from layoutopt.ops.axis import OneAxis, positions
from layoutopt.ops.axiswise import Axes, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.operands import rank_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X


@register
class FourierTransform(OneAxis):
    """DFT: the axis is an attribute before opset 20, an input from then on."""

    family = "spectrum"
    ops = ("DFT",)
    formats = "any, real and imaginary parts innermost; the axis must not be blocked"
    padding = PaddingTransfer(Padding.ZERO, Padding.ANY, Padding.ANY)

    def axis(self, op: Op) -> int:
        """The axis, counted from the front: the second one by default before opset 20, the last one of the signal since."""
        rank = rank_of(op.inputs[0])
        if op.version < 20:
            return op.integer("axis", 1) % rank
        axis = op.constant(2)
        return (rank - 2 if axis is None else int(axis.reshape(()))) % rank

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of x and y; Inapplicable if the axis is computed."""
        is_given = len(op.inputs) > 2 and op.inputs[2] is not None
        axis = op.constant(2)
        if is_given and (axis is None or axis.size != 1):
            return Inapplicable("the axis is computed")
        return super().axes(op)

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the axis of the op and the last axis cannot be blocked; empty for other axes."""
        is_last = axis == rank_of(op.inputs[0]) - 1
        return (
            "the axis of real and imaginary parts cannot be blocked"
            if is_last
            else super().unblockable_reason(op, axis, order)
        )

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if real and imaginary parts are innermost."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable):
            return signature
        for storage in (signature.inputs[0], signature.outputs[0]):
            if storage is not None and storage.format.parts[-1].axis != storage.format.rank - 1:
                return Inapplicable("real and imaginary parts have to be innermost")
        return signature

    @override
    def lower(self, op: Op, build: Builder) -> None:
        (axis,) = positions(build.format(X), (self.axis(op),))
        length = build.input(1) if len(op.inputs) > 1 else None
        inputs: list[Value | None] = [build.input(0), length]
        attributes: dict[str, Attribute] = {}
        if op.version < 20:
            attributes["axis"] = axis
        else:
            inputs.append(build.constant(np.asarray(axis, dtype=np.int64), "axis"))
        lower_directly(op, build, attributes, inputs)


__all__ = ["FourierTransform"]
