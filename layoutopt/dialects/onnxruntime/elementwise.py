"""Element-wise ops on blocked arrays, and per-channel products and sums as depthwise convolutions."""

import numpy as np

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import BlockedArrays, float32_type, kernel_call, native_writer
from layoutopt.formats import Shape, product
from layoutopt.ir.types import Array, Op, Slot, TensorType, Value
from layoutopt.ops import Y, estimated_extent, estimated_volume


def write_elementwise(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record the op on the declared arrays, if all operands have the format of the result or are scalars."""
    if not arrays.is_blocked(op, Y):
        return False
    y = op.outputs[0]
    assert y is not None and y.shape is not None
    for index, value in enumerate(op.inputs):
        if value is None:
            continue
        is_full = value.shape == y.shape and op.signature is not None and op.signature.inputs[index] is not None
        if is_full and builder.format(Slot("in", index)) != builder.format(Y):
            return False
        if not is_full and (value.static_shape is None or estimated_volume(value.static_shape) != 1):
            return False
    target = arrays.declared(op, builder, Y)
    types = [None if each is None or each.dtype is None else TensorType(each.dtype, target) for each in op.outputs]
    results = builder.op(
        op.op_type, [builder.declared_input(index) for index in range(len(op.inputs))], types, op.attributes
    )
    present = [index for index, each in enumerate(op.outputs) if each is not None]
    for index, result in zip(present, results, strict=True):
        builder.set_output(index, result)
    return True


PER_CHANNEL_KINDS = ("Add", "Mul", "Sub")


@native_writer(*PER_CHANNEL_KINDS)
def write_per_channel(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a product, sum or difference with one number per channel as a depthwise 1x1 convolution.

    A gate has computed numbers for each sample and channel. (N, C, H, W) has the same bytes as (1, NC, H, W), so every channel
    of every sample has its own filter.
    The groups of a convolution are an attribute, so with a symbolic batch, or computed numbers to add, the op runs on rows of
    the image.
    """
    y = op.outputs[0]
    if write_elementwise(op, builder, arrays):
        return True
    if not arrays.is_blocked(op, Y) or y is None or y.shape is None or len(op.inputs) != 2:
        return False
    for index in (0, 1):
        x, other, array = op.inputs[index], op.inputs[1 - index], builder.declared_input(index)
        if x is None or other is None or x.shape != y.shape or builder.format(Slot("in", index)) != builder.format(Y):
            continue
        shape = arrays.declared(op, builder, Y)
        filters = _scale_and_shift(op, builder, 1 - index, estimated_extent(shape[1])) or _gate(
            op, builder, 1 - index, shape
        )
        if filters is None and array is not None and _write_by_rows(op, builder, arrays, index):
            return True
        if filters is None or array is None or filters[0].shape is None:
            continue
        groups = estimated_extent(filters[0].shape[0])
        folded = shape if groups == shape[1] else (1, groups, *shape[2:])
        operands = [builder.reshape(array, folded), *filters]
        result = kernel_call(builder, "Conv", operands, folded, group=groups, kernel_shape=(1, 1))
        builder.set_output(0, builder.reshape(result, shape))
        return True
    return False


def _scale_and_shift(op: Op, builder: OpBuilder, index: int, channels: int) -> list[Value] | None:
    """Filter and bias of the convolution that multiplies by, adds or subtracts the constant input `index`, if it can."""
    numbers, y = op.constant(index), op.outputs[0]
    assert y is not None and y.shape is not None
    axis = builder.format(Y).parts[1].axis
    expected = tuple(y.shape[position] if position == axis else 1 for position in range(len(y.shape)))
    if numbers is None or _aligned(numbers.shape, len(y.shape)) != expected:
        return None
    if op.op_type == "Sub" and index == 0:
        return None
    flat: Array = np.pad(numbers.reshape(-1), (0, channels - numbers.size))
    scale = flat if op.op_type == "Mul" else np.ones_like(flat)
    filters = [builder.constant(scale.reshape(-1, 1, 1, 1), "scale")]
    if op.op_type != "Mul":
        filters.append(builder.constant(flat if op.op_type == "Add" else -flat, "shift"))
    return filters


def _gate(op: Op, builder: OpBuilder, index: int, shape: Shape) -> list[Value] | None:
    """The filter of the convolution that multiplies by the computed input `index`, a number per sample and channel."""
    gate, value, y = builder.declared_input(index), op.inputs[index], op.outputs[0]
    assert y is not None and y.shape is not None
    if op.op_type != "Mul" or value is None or value.shape is None or gate is None or not isinstance(shape[0], int):
        return None
    batch, channels = (part.axis for part in builder.format(Y).parts[:2])
    expected = tuple(y.shape[position] if position in (batch, channels) else 1 for position in range(len(y.shape)))
    groups = shape[0] * estimated_extent(shape[1])
    if _aligned(value.shape, len(y.shape)) != expected or estimated_volume(gate.shape or ()) != groups:
        return None
    return [builder.reshape(gate, (groups, 1, 1, 1))]


def _write_by_rows(op: Op, builder: OpBuilder, arrays: BlockedArrays, index: int) -> bool:
    """Write an op with a number per channel on rows of input `index`, for which the numbers are repeated.

    onnxruntime runs a broadcast in spans, as long as the innermost axes that are not broadcast: a row of W columns of a
    block each has W times as many elements as the block alone, which takes 5 times as long for W = 160.
    """
    y, numbers, array = op.outputs[0], builder.declared_input(1 - index), builder.declared_input(index)
    value = op.inputs[1 - index]
    if y is None or y.shape is None or numbers is None or array is None or value is None or value.shape is None:
        return False
    batch, channels, height, width = arrays.declared(op, builder, Y)
    block = arrays.feature_block(builder.format(Y))
    first, second = (part.axis for part in builder.format(Y).parts[:2])
    aligned = _aligned(value.shape, len(y.shape))
    expected = tuple(extent if axis == second else 1 for axis, extent in enumerate(y.shape))
    samples = aligned[first]
    without = tuple(1 if axis == first else extent for axis, extent in enumerate(aligned))
    if without != expected or samples not in (1, batch) or product(numbers.shape or ()) != product((samples, channels)):
        return False
    blocks = estimated_extent(channels) // block
    image = builder.reshape(array, (batch, blocks, height, width, block))
    operands = [image]
    operands.insert(1 - index, builder.expand(builder.reshape(numbers, (samples, blocks, 1, 1, block)), image, 2))
    (result,) = builder.op(op.op_type, operands, [float32_type(image.shape or ())])
    builder.set_output(0, builder.reshape(result, arrays.declared(op, builder, Y)))
    return True


def _aligned(shape: Shape, rank: int) -> Shape:
    """A shape with extents of 1 in front, up to a rank."""
    return (1,) * (rank - len(shape)) + tuple(shape)
