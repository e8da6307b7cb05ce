"""Axes cropped or padded to given extents around their centres."""

import numpy as np

from layoutopt.ir.types import DType, Op, TensorType
from layoutopt.ops.axis import positions
from layoutopt.ops.axiswise import AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.operands import present, rank_of, shape_of
from layoutopt.ops.padding_transfer import PADDING_KEPT
from layoutopt.ops.signatures import X

_INT64 = 7  # TensorProto.INT64


@register
class CenterCrop(AxiswiseRule):
    """CenterCropPad: the extents are an input, in the order of the attribute `axes`."""

    family = "rearrangement"
    ops = ("CenterCropPad",)
    formats = "any; axes that are cut or padded must not be blocked"
    padding = PADDING_KEPT
    is_always_agnostic = True

    def cropped_axes(self, op: Op) -> tuple[int, ...]:
        """The axes whose extents are given; all by default."""
        rank = rank_of(op.inputs[0])
        return tuple(axis % rank for axis in op.integers("axes", tuple(range(rank))))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why an axis that is cut or padded cannot be blocked; empty for other axes."""
        return "an axis that is cut or padded cannot be blocked" if axis in self.cropped_axes(op) else ""

    def lower(self, op: Op, build: Builder) -> None:
        """The same op with extents for all physical axes.

        onnxruntime 1.31 moves a Transpose past the Pad that it expands the op to, and computes a wrong result if that Pad has
        axes.
        """
        x, extents = build.input(0), present(build.input(1))
        order, cropped_axes = build.format(X).parts, self.cropped_axes(op)
        if extents.dtype is not DType.INT64:
            (extents,) = build.op("Cast", [extents], [TensorType(DType.INT64, shape_of(extents))], {"to": _INT64})
        if len(cropped_axes) < len(order):
            (own,) = build.op("Shape", [x], [TensorType(DType.INT64, (len(order),))])
            both = TensorType(DType.INT64, (len(cropped_axes) + len(order),))
            (extents,) = build.op("Concat", [extents, own], [both], {"axis": 0})
        sources = {positions(build.format(X), (axis,))[0]: index for index, axis in enumerate(cropped_axes)}
        indices = build.constant(
            np.asarray([sources.get(at, len(cropped_axes) + at) for at in range(len(order))]), "indices"
        )
        (target_shape,) = build.op("Gather", [extents, indices], [TensorType(DType.INT64, (len(order),))])
        attributes = {name: value for name, value in op.attributes.items() if name != "axes"}
        (result,) = build.op(op.op_type, [x, target_shape], [build.output_type(0)], attributes)
        build.set_output(0, result)


__all__ = ["CenterCrop"]
