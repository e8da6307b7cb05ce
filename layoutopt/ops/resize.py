"""Resampling of the spatial axes. Channels go along, in any format."""

import numpy as np

from layoutopt.ir.types import Lanes, Op, Signature, TensorType, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.signatures import Inapplicable, X, Y, extent, padded_type


@register
class Resize(AxiswiseRule):
    """Resize (X, scales before opset 11; X, roi, scales, sizes from then on) and its predecessor Upsample."""

    family = "resize"
    ops = ("Resize", "Upsample")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position."""
        x, y = op.inputs[0], op.outputs[0]
        if x is None or y is None or x.shape is None or y.shape is None:
            return Inapplicable("the rank is unknown")
        if op.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            return Inapplicable("what lies outside of the crop is extrapolated")
        return dict.fromkeys((X, Y), tuple(range(len(x.shape))))

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Axes that keep their extent, if the sizes of the result can be rewritten."""
        x, y = op.inputs[0], op.outputs[0]
        assert x is not None and y is not None and x.shape is not None and y.shape is not None
        scales, sizes = self._scales(op), op.constant(3)
        if sizes is not None and op.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return "the scales depend on all sizes"
        if sizes is None and scales is None:
            return "the scales or sizes are computed"
        scale = scales.get(axis, 1.0) if scales is not None else 1.0
        return "a resized axis cannot be blocked" if x.shape[axis] != y.shape[axis] or scale != 1.0 else ""

    def _scales(self, op: Op) -> dict[int, float] | None:
        """The scale of every axis that has one; None if they are computed, or sizes are given instead."""
        scales = op.attributes.get("scales")
        place = 1 if op.op_type == "Upsample" or op.version < 11 else 2
        found = np.asarray(scales) if isinstance(scales, tuple) else op.constant(place)
        return None if found is None or not found.size else dict(zip(_named(op), found.tolist(), strict=True))

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """Interpolation between zeros is zero; a cubic one may overshoot."""
        return ((Lanes.ZERO, Lanes.ANY, Lanes.ANY)[inputs[0]],)

    def lower(self, op: Op, build: Builder) -> None:
        """The op in canonical order; sizes that name the channels name the padded ones."""
        assert op.signature is not None
        y_type = padded_type(op.outputs[0], op.signature.outputs[0])
        y = op.outputs[0]
        assert y_type is not None and y is not None and y_type.shape is not None
        if y_type.shape == y.shape or len(op.inputs) < 4 or op.inputs[3] is None:
            super().lower(op, build)
            return
        storage, sizes = op.signature.outputs[0], op.constant(3)
        assert storage is not None and sizes is not None
        padded = [
            extent(y_type.shape[axis]) if axis in storage.format.blocked_axes else int(size)
            for axis, size in zip(_named(op), sizes, strict=True)
        ]
        inputs: list[Value | None] = [build.padded(index) for index in range(3)]
        inputs.append(build.constant(np.asarray(padded, dtype=np.int64), "sizes"))
        types: list[TensorType | None] = [y_type]
        (result,) = build.op(op.op_type, inputs, types, op.attributes)
        build.set_padded_output(0, result)


def _named(op: Op) -> tuple[int, ...]:
    """The axes that scales or sizes speak of."""
    x = op.inputs[0]
    assert x is not None and x.rank is not None
    return tuple(axis % x.rank for axis in op.integers("axes", tuple(range(x.rank))))


@register
class DepthToSpace(AxiswiseRule):
    """DepthToSpace and SpaceToDepth: channels against space, so channels must be whole."""

    family = "depth_to_space"
    ops = ("DepthToSpace", "SpaceToDepth")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position, whatever their extents."""
        x = op.inputs[0]
        return (
            Inapplicable("the rank is unknown")
            if x is None or x.rank is None
            else dict.fromkeys((X, Y), tuple(range(x.rank)))
        )

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """All axes but the batch change."""
        return "the axis is rearranged and cannot be blocked" if axis else ""

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """Lanes can only be images of their own."""
        return (inputs[0],)
