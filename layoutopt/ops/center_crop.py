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

    def chosen(self, op: Op) -> tuple[int, ...]:
        """The axes whose extents are given; all by default."""
        rank = rank_of(op.inputs[0])
        return tuple(axis % rank for axis in op.integers("axes", tuple(range(rank))))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Axes that are cut or padded cannot be blocked."""
        return "an axis that is cut or padded cannot be blocked" if axis in self.chosen(op) else ""

    def lower(self, op: Op, build: Builder) -> None:
        """The same op with extents for all physical axes.

        onnxruntime 1.31 moves a Transpose past the Pad that it expands the op to, and computes a wrong result if that Pad has
        axes.
        """
        x, extents = build.input(0), present(build.input(1))
        order, chosen = build.format(X).parts, self.chosen(op)
        if extents.dtype is not DType.INT64:
            (extents,) = build.op("Cast", [extents], [TensorType(DType.INT64, shape_of(extents))], {"to": _INT64})
        if len(chosen) < len(order):
            (own,) = build.op("Shape", [x], [TensorType(DType.INT64, (len(order),))])
            both = TensorType(DType.INT64, (len(chosen) + len(order),))
            (extents,) = build.op("Concat", [extents, own], [both], {"axis": 0})
        sources = {positions(build.format(X), (axis,))[0]: index for index, axis in enumerate(chosen)}
        taken = build.constant(np.asarray([sources.get(at, len(chosen) + at) for at in range(len(order))]), "places")
        (target_shape,) = build.op("Gather", [extents, taken], [TensorType(DType.INT64, (len(order),))])
        attributes = {name: value for name, value in op.attributes.items() if name != "axes"}
        (result,) = build.op(op.op_type, [x, target_shape], [build.output_type(0)], attributes)
        build.set_output(0, result)


__all__ = ["CenterCrop"]
