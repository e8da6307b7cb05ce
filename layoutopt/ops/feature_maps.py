"""Ops on feature maps (N, C, *spatial) other than convolutions: pooling and resampling."""

from collections.abc import Collection, Mapping
from math import prod

import numpy as np
from typing_extensions import override

from layoutopt.formats import Dim, Extent
from layoutopt.ir.types import Op
from layoutopt.ops.axiswise import AxiswiseRule
from layoutopt.ops.base import ShapeEdits, add_rule, register
from layoutopt.ops.interfaces import FEATURE_MAPS
from layoutopt.ops.signatures import (
    ANY,
    PADDING_KEPT,
    ZERO,
    PaddingTransfer,
    estimated_extent,
    rank_of,
    volume_of,
)

# --- Pooling: a window per channel. Any order of axes is legal, and channels may be blocked ---


class SpatialRule(AxiswiseRule):
    """An op on (N, C, *spatial) that computes every channel in the same way and keeps batch and channels."""

    formats = "any order; batch and channels may be blocked"
    letters = FEATURE_MAPS
    least_rank = 3
    has_one_result = True
    whole_reason = "a spatial axis cannot be blocked"

    def whole_axes(self, op: Op) -> Collection[int]:
        """The spatial axes: windows cross the boundaries of blocks."""
        return range(2, rank_of(op.x))


class Pooling(SpatialRule):
    """Pooling with a moving window, or with one window that is as large as the image."""

    family = "pooling"
    padding = PADDING_KEPT

    @override
    def shape_edits(self, op: Op, axis: int, extent: int) -> ShapeEdits:
        return {} if axis < 2 else None  # no operand contains extents of batch or channels

    def averaged_axes(self, op: Op) -> frozenset[int] | None:
        """The spatial axes of an average over elements of the image."""
        if not op.op_type.endswith("AveragePool") or op.integer("ceil_mode"):
            return None
        pads = any(op.integers("pads")) or op.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
        return None if pads and op.integer("count_include_pad") else frozenset(range(2, rank_of(op.x)))

    def flops(self, op: Op) -> float:
        """One per element of the window, up to the extent of the image: some exporters write larger windows."""
        image = op.x.dims[2:]
        window = op.integers("kernel_shape") or tuple(map(estimated_extent, image))
        sides = zip(window, image, strict=False)
        return prod(min(side, dim) if isinstance(dim, int) else side for side, dim in sides) * volume_of(op.y)


_POWERS = PaddingTransfer(ZERO, ANY, ANY)
add_rule(Pooling("MaxPool", "AveragePool"))
add_rule(Pooling("LpPool", padding=_POWERS))
add_rule(Pooling("GlobalAveragePool", "GlobalMaxPool", family="global_pooling"))
add_rule(Pooling("GlobalLpPool", family="global_pooling", padding=_POWERS))


# --- Resampling of spatial axes; channels may have any format ---


_HALVES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")

# With these modes, element i of a nearest resampling by an integer s is element i // s of x: i / s rounded down, or
# (i + 1/2) / s - 1/2 rounded, which never falls on a half, or (i + 1/2) / s rounded down.
REPEATING_MODES = {
    ("asymmetric", "floor"),
    ("tf_half_pixel_for_nn", "floor"),
    *((pixel, f"round_prefer_{side}") for pixel in _HALVES for side in ("floor", "ceil")),
}


@register
class Resize(AxiswiseRule):
    """Resize (X, scales before opset 11; X, roi, scales, sizes from then on) and its predecessor Upsample."""

    family = "resize"
    ops = ("Resize", "Upsample")
    formats = "any; resized axes must not be blocked"
    padding = PaddingTransfer(ZERO, ANY, ANY)

    def mode(self, op: Op) -> str:
        """The interpolation: nearest, linear or cubic."""
        return str(op.attributes.get("mode", "nearest"))

    def coordinate_mode(self, op: Op) -> str:
        """The coordinate transformation mode of ONNX; asymmetric before opset 11."""
        return (
            "asymmetric" if _is_legacy(op) else str(op.attributes.get("coordinate_transformation_mode", "half_pixel"))
        )

    def integer_scales(self, op: Op) -> Mapping[int, int] | None:
        """The scale of every axis, if all scales are integers."""
        scales = self.scales(op)
        if self._keeps_aspect_ratio(op):
            return None
        found: dict[int, int] = {}
        for axis, (before, after) in enumerate(zip(op.x.dims, op.y.dims, strict=True)):
            scale = scales.get(axis, 1.0) if scales is not None else _ratio(before, after)
            if scale < 1.0 or scale != int(scale):
                return None
            found[axis] = int(scale)
        return found

    def is_repetition(self, op: Op) -> bool:
        """Whether every element of x is repeated along each axis, as often as the integer scale."""
        rounding = "floor" if _is_legacy(op) else str(op.attributes.get("nearest_mode", "round_prefer_floor"))
        has_repeating_mode = self.mode(op) == "nearest" and (self.coordinate_mode(op), rounding) in REPEATING_MODES
        return has_repeating_mode and self.integer_scales(op) is not None

    def variant(self, op: Op) -> str:
        """The mode; `repeat` and `whole linear` for integer scales, which have fast kernels."""
        if self.is_repetition(op):
            return "repeat"
        is_linear = self.mode(op) == "linear" and not op.integer("antialias") and self.integer_scales(op) is not None
        return "whole linear" if is_linear else self.mode(op)

    @override
    def inapplicability(self, op: Op) -> str:
        is_cropped = op.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        return "elements outside of the crop are extrapolated" if is_cropped else ""

    def whole_axes(self, op: Op) -> Collection[int]:
        """The resized axes; all if the sizes of the result cannot be rewritten, or the scales depend on all sizes."""
        scales, x, y = self.scales(op), op.x.dims, op.y.dims
        if self._keeps_aspect_ratio(op) or (scales is None and not self.has_sizes(op)):
            return range(len(x))
        return [axis for axis, dim in enumerate(x) if dim != y[axis] or (scales or {}).get(axis, 1.0) != 1.0]

    def scales(self, op: Op) -> dict[int, float] | None:
        """The scale of every axis that has one; None if the scales are unknown, or sizes are given."""
        scales = op.attributes.get("scales")
        position = 1 if _is_legacy(op) else 2
        found = np.asarray(scales) if isinstance(scales, tuple) else op.constant(position)
        if found is None or found.ndim != 1 or not found.size:
            return None
        return dict(zip(_listed_axes(op), found.tolist(), strict=True))

    def has_sizes(self, op: Op) -> bool:
        """Whether sizes are given, constant or computed, instead of scales."""
        return op.input(3) is not None

    def _keeps_aspect_ratio(self, op: Op) -> bool:
        """Whether the sizes are adjusted to keep the aspect ratio."""
        return self.has_sizes(op) and op.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch"

    def averaged_axes(self, op: Op) -> frozenset[int] | None:
        """The scaled axes: every interpolation has weights that sum to one."""
        if self.canonical_reason(op) or (self.scales(op) is None and not self.has_sizes(op)):
            return None
        if self.coordinate_mode(op) == "tf_half_pixel_for_nn" and not self.is_repetition(op):
            return None  # with a scale of one the result still differs from x
        return frozenset(self.whole_axes(op))

    def shape_edits(self, op: Op, axis: int, extent: int) -> ShapeEdits:
        """The element of the sizes for the axis, if they contain one."""
        if not self.has_sizes(op) or axis not in _listed_axes(op):
            return {}
        sizes, position = op.elements(3), _listed_axes(op).index(axis)
        return {3: {position: extent}} if sizes is not None and isinstance(sizes[position], int) else None


def _is_legacy(op: Op) -> bool:
    """Whether the op divides coordinates by the scale and rounds down, without options."""
    return op.op_type == "Upsample" or op.version < 11


def _ratio(before: Dim, after: Dim) -> float:
    """The ratio of two extents, if it is the same for all sizes of the dimensions; else 0."""
    if isinstance(before, int) and isinstance(after, int):
        return after / before if before else 0.0
    if before == 0:
        return 0.0
    times = (Extent.of(after) // Extent.of(before)).number
    return float(times) if times is not None and (Extent.of(before) * times).dim == after else 0.0


def _listed_axes(op: Op) -> tuple[int, ...]:
    """The axes that scales or sizes have elements for."""
    rank = rank_of(op.x)
    return tuple(axis % rank for axis in op.integers("axes", tuple(range(rank))))
