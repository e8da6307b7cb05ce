"""Writers of resampling on blocked images.

integer scales  com.microsoft.nchwc.Upsample: nearest as fast as a copy, linear four times as fast as Resize on NCHW
other scales    Resize on (N * C/b, H, W, b), the stored order, whose last axis is not scaled: twice as fast
"""

import numpy as np

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import BlockedArrays, float32_type, kernel_call, native_writer
from layoutopt.formats import Shape, product
from layoutopt.ir.types import Array, Attribute, DType, Op, TensorType, Value
from layoutopt.ops import X, Y, estimated_extent, rule_of
from layoutopt.ops.feature_maps import Resize

# The kernel's mode for each mode of ONNX. With integer scales the variants of half_pixel are equal: they differ only for
# results of one element, or if the ratio of the extents differs from the given scale.
_COORDINATES = {
    "asymmetric": "asymmetric",
    "align_corners": "align_corners",
    "half_pixel": "half_pixel",
    "pytorch_half_pixel": "half_pixel",
    "half_pixel_symmetric": "half_pixel",
}


@native_writer("Resize", "Upsample")
def write_resize(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a nearest or linear resampling of an image with blocked channels, which are not resized."""
    rule = rule_of(op)
    if (
        not isinstance(rule, Resize)
        or builder.format(X).rank != 4
        or not arrays.feature_block(builder.format(X))
        or not arrays.feature_block(builder.format(Y))
        or _resizes_outer_axis(op, builder)
    ):
        return False
    return _write_integer_scales(op, builder, rule, arrays) or _write_any_scales(op, builder, rule, arrays)


def _resizes_outer_axis(op: Op, builder: OpBuilder) -> bool:
    """Whether an axis other than the two image axes of the array is resized."""
    x, y = op.inputs[0], op.outputs[0]
    assert x is not None and y is not None and x.shape is not None and y.shape is not None
    outer = {part.axis for part in builder.format(X).parts[:2]}
    return any(x.shape[axis] != y.shape[axis] for axis in outer)


def _write_integer_scales(op: Op, builder: OpBuilder, rule: Resize, arrays: BlockedArrays) -> bool:
    """Record a call of the kernel for blocked arrays, if all scales are integers."""
    batch, channels, height, width, _ = (part.axis for part in builder.format(X).parts)
    scales, coordinates = rule.integer_scales(op), _COORDINATES.get(rule.coordinate_mode(op))
    if scales is None or scales[batch] != 1 or scales[channels] != 1:
        return False
    if rule.is_repetition(op):
        coordinates = "asymmetric"
    elif rule.variant(op) != "whole linear" or coordinates is None:
        return False
    fields: dict[str, Attribute] = {
        "mode": rule.mode(op),
        "coordinate_transformation_mode": coordinates,
        "scales": (1, 1, scales[height], scales[width]),
    }
    builder.set_output(
        0, kernel_call(builder, "Upsample", [builder.declared_input(0)], arrays.declared(op, builder, Y), **fields)
    )
    return True


def _write_any_scales(op: Op, builder: OpBuilder, rule: Resize, arrays: BlockedArrays) -> bool:
    """Record the op itself on the array reshaped to (N * C/b, H, W, b)."""
    x, y, raw = op.inputs[0], op.outputs[0], builder.declared_input(0)
    assert x is not None and y is not None and raw is not None and x.shape is not None and y.shape is not None
    batch, outer, _, _, block = builder.format(X).physical_shape(x.shape)
    first = product((batch, outer))
    image = tuple(part.axis for part in builder.format(X).parts[2:4])
    numbers = _scales_or_sizes(op, rule, (None, *image, None), (first, *(y.shape[axis] for axis in image), block))
    is_computed = numbers is None and op.version >= 18 and rule.has_sizes(op) and x.shape[0] == y.shape[0]
    if rule.mode(op) not in ("nearest", "linear") or (numbers is None and not is_computed):
        return False
    attributes = dict(op.attributes)
    inputs: list[Value | None] = [builder.reshape(raw, (first, *(x.shape[axis] for axis in image), block))]
    if op.version >= 18:
        # Only the image axes: the first axis may be symbolic.
        attributes["axes"] = (1, 2)
        numbers = numbers[1:3] if numbers is not None else None
    if numbers is None:
        inputs += [builder.declared_input(1), None, _computed_sizes(op, builder, image)]
    elif "scales" in attributes:
        attributes["scales"] = tuple(numbers.tolist())
    else:
        position = _operand_index(op, numbers)
        inputs += [builder.declared_input(index) for index in range(1, position)]
        inputs.append(builder.constant(numbers, "scales"))
    types = [float32_type((first, *(y.shape[axis] for axis in image), block))]
    (result,) = builder.op(op.op_type, inputs, types, attributes)
    builder.set_output(0, builder.reshape(result, arrays.declared(op, builder, Y)))
    return True


def _scales_or_sizes(op: Op, rule: Resize, axes: tuple[int | None, ...], target: Shape) -> Array | None:
    """The operand for the axes of the array: scales (float32) or sizes (int64); None if they are unknown."""
    scales = rule.scales(op)
    if scales is not None:
        others = [scale for axis, scale in scales.items() if axis not in axes]
        if any(scale != 1.0 for scale in others):
            return None
        return np.asarray([1.0 if axis is None else scales.get(axis, 1.0) for axis in axes], dtype=np.float32)
    sizes = [estimated_extent(dim) for dim in target]
    needed = target[1:3] if op.version >= 18 else target
    return np.asarray(sizes, dtype=np.int64) if all(isinstance(dim, int) for dim in needed) else None


def _computed_sizes(op: Op, builder: OpBuilder, axes: tuple[int, ...]) -> Value:
    """The computed sizes of the given axes."""
    named = op.integers("axes", (0, 1, 2, 3))
    positions = np.asarray([named.index(axis) for axis in axes], dtype=np.int64)
    sizes = [builder.declared_input(3), builder.constant(positions, "indices")]
    (result,) = builder.op("Gather", sizes, [TensorType(DType.INT64, (len(axes),))])
    return result


def _operand_index(op: Op, numbers: Array) -> int:
    """The index of the input with the scales or sizes."""
    if op.op_type == "Upsample" or op.version < 11:
        return 1
    return 2 if numbers.dtype == np.float32 else 3
