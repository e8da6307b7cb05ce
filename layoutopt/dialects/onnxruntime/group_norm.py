"""Group normalisation on blocked images.

whole blocks in a group   a group is contiguous: InstanceNormalization on the array as (N, G, -1), then scale and shift as one
                          depthwise 1x1 convolution, unless scale and shift are neutral
other groups              statistics per channel, averaged over groups by a small convolution:

    -mean  (N, C, 1, 1)  GlobalAveragePool, averaged, negative
    c = x - mean         a depthwise 1x1 convolution with a computed bias
    var    (N, C, 1, 1)  a depthwise convolution of the rows of c with themselves as filters, averaged
    y                    c in a depthwise 1x1 convolution with the computed filter scale / sqrt(var + epsilon)

A filter of (C, 1, 1, W) is stored like an image of W columns, so that sums of squares require no array of squares. They are
computed row by row, since long sums lose digits. (N, C, H, W) is stored like (1, NC, H, W), so every sample has filters of its
own.

This takes four reads and two writes of x; reordering, normalising and reordering back takes seven and five. The variance is
computed from centred values, because mean(x^2) - mean(x)^2 saves one read but cancels.
"""

from math import lcm, prod

import numpy as np

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import BlockedArrays, float32_type, kernel_call, native_writer
from layoutopt.formats import Format, Part, Shape, pack
from layoutopt.ir.graph import DOMAIN
from layoutopt.ir.types import Attribute, Op, Slot, TensorType, Value
from layoutopt.ops import X, Y, estimated_extent
from layoutopt.ops.normalization import KIND, normalized, per_channel

_PER_CHANNEL = 21  # the opset since which scale and bias are per channel, and not per group
_LONGEST_SUM = 1024  # elements that one kernel adds up in sequence


@native_writer(KIND, f"{DOMAIN}::{KIND}")
def write_group_norm(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a group normalisation of blocked channels, whose number is known; batch and image may be symbolic."""
    format = builder.format(X)
    block = _block(format)
    if block not in arrays.blocks or format != builder.format(Y) or (not op.domain and op.version < _PER_CHANNEL):
        return False
    shape, target = _image(op, builder, X), _image(op, builder, Y)
    array = builder.declared_input(0)
    if shape is None or target is None or array is None or not isinstance(shape[1], int) or shape[1] % block:
        return False
    array, type = builder.reshape(array, shape), float32_type(target)
    numbers = tuple(dim for dim in shape if isinstance(dim, int))
    if shape[1] // op.integer("num_groups") % block == 0:
        result = _scaled_and_shifted(op, builder, normalized(op, builder, array, type))
    elif len(numbers) == len(shape) and (numbers[0] == 1 or op.constant(2) is not None):
        result = _by_channels(op, builder, array, numbers)
    else:
        result = _reordered(op, builder, array, type)
    builder.set_output(0, result)
    return True


def _image(op: Op, builder: OpBuilder, slot: Slot) -> Shape | None:
    """The shape (N, C, H, W) of an operand in the order of its format; None for other ranks with a symbolic image."""
    value = op.operand(slot)
    assert value is not None and value.shape is not None
    batch, channels = value.shape[:2]
    extents = [value.shape[part.axis] for part in builder.format(slot).parts[2:-1]]
    if len(extents) == 2:
        return (batch, channels, *extents)
    known = [dim for dim in extents if isinstance(dim, int)]
    return (batch, channels, prod(known[:-1]), known[-1]) if len(known) == len(extents) else None


def _by_channels(op: Op, builder: OpBuilder, x: Value, shape: tuple[int, ...]) -> Value:
    """The normalised value, computed from statistics of the channels, for any number of groups; all extents are known."""
    batch, channels, *image = shape
    folded, pixel = (1, batch * channels, *image), (batch, channels, 1, 1)

    def depthwise(value: Value, filters: Value, bias: Value) -> Value:
        return kernel_call(builder, "Conv", [value, filters, bias], folded, group=folded[1], kernel_shape=(1, 1))

    means = _averaged(op, builder, kernel_call(builder, "GlobalAveragePool", [x], pixel), -1.0)
    one = builder.constant(np.ones((folded[1], 1, 1, 1), dtype=np.float32), "one")
    centred = depthwise(builder.reshape(x, folded), one, builder.reshape(means, folded[1:2]))
    squares, count = _sums_of_squares(builder, centred, folded)
    epsilon = op.attributes.get("epsilon", 1e-5)
    assert isinstance(epsilon, float | int)
    variances = _averaged(op, builder, builder.reshape(squares, pixel), 1 / count, epsilon)
    (deviations,) = builder.op("Sqrt", [variances], [float32_type(pixel)])
    scale = per_channel(op, builder, 1, (channels, 1, 1))
    (filters,) = builder.op("Div", [scale, deviations], [float32_type(pixel)])
    filters = builder.reshape(filters, (folded[1], 1, 1, 1))
    return builder.reshape(depthwise(centred, filters, _bias(op, builder, batch, channels)), shape)


def _averaged(op: Op, builder: OpBuilder, value: Value, factor: float, added: float = 0.0) -> Value:
    """`factor` times the mean of each group, plus `added`, for every channel, by a grouped 1x1 convolution.

    A group of the convolution is the smallest number of channels that consists of whole groups and of whole blocks.
    """
    assert value.shape is not None
    channels, block = estimated_extent(value.shape[1]), _block(builder.format(X))
    size = channels // op.integer("num_groups")
    width = lcm(size, block)
    averages = np.kron(np.eye(width // size, dtype=np.float32), np.full((size, size), factor / size, dtype=np.float32))
    matrix = np.tile(averages, (channels // width, 1)).reshape(channels, width, 1, 1)
    packed = pack(matrix, Format.parse(f"NCHW{block}c{block}n")).reshape(matrix.shape)
    operands = [value, builder.constant(packed, "average")]
    if added:
        operands.append(builder.constant(np.full(channels, added, dtype=np.float32), "epsilon"))
    return kernel_call(builder, "Conv", operands, value.shape, group=channels // width, kernel_shape=(1, 1))


def _sums_of_squares(builder: OpBuilder, x: Value, shape: tuple[int, ...]) -> tuple[Value, int]:
    """The sum of squares per channel (1, C, 1, 1) and the number of summed elements; for large images, the mean over rows."""
    _, channels, height, width = shape
    if height * width <= _LONGEST_SUM:
        filters = builder.reshape(x, (channels, 1, height, width))
        fields: dict[str, Attribute] = {"group": channels, "kernel_shape": (height, width)}
        return kernel_call(builder, "Conv", [x, filters], (1, channels, 1, 1), **fields), height * width
    rows = channels * height
    operands = [builder.reshape(x, (1, rows, 1, width)), builder.reshape(x, (rows, 1, 1, width))]
    sums = kernel_call(builder, "Conv", operands, (1, rows, 1, 1), group=rows, kernel_shape=(1, width))
    by_row = builder.reshape(sums, (1, channels, height, 1))
    return kernel_call(builder, "GlobalAveragePool", [by_row], (1, channels, 1, 1)), width


def _reordered(op: Op, builder: OpBuilder, x: Value, type: TensorType) -> Value:
    """The value normalised in plain order, for a symbolic batch or image, for which there are no computed filters."""
    assert x.shape is not None and type.shape is not None
    plain = kernel_call(builder, "ReorderOutput", [x], x.shape, channels=estimated_extent(x.shape[1]), channels_last=0)
    blocked = kernel_call(builder, "ReorderInput", [normalized(op, builder, plain, type)], type.shape, channels_last=0)
    return _scaled_and_shifted(op, builder, blocked)


def _scaled_and_shifted(op: Op, builder: OpBuilder, x: Value) -> Value:
    """The value times scale plus bias, by a depthwise 1x1 convolution; the value itself if both are neutral."""
    assert x.shape is not None
    scale, bias, channels = op.constant(1), op.constant(2), estimated_extent(x.shape[1])
    if scale is not None and bias is not None and bool((scale == 1).all()) and not bias.any():
        return x
    operands = [x, per_channel(op, builder, 1, (channels, 1, 1, 1)), per_channel(op, builder, 2, (channels,))]
    return kernel_call(builder, "Conv", operands, x.shape, group=channels, kernel_shape=(1, 1))


def _bias(op: Op, builder: OpBuilder, batch: int, channels: int) -> Value:
    """The bias of every channel of every sample; a batch of several samples requires a constant bias."""
    numbers = op.constant(2)
    if numbers is None or batch == 1:
        return per_channel(op, builder, 2, (channels,))
    return builder.constant(np.tile(numbers, batch), "bias")


def _block(format: Format) -> int:
    """The block of the channels, if the parts are N, C, the image axes in any order, c; else 0."""
    *outer, last = format.parts
    has_leading_batch = outer[:2] == [Part(0), Part(1)] and not any(part.block for part in outer) and len(outer) > 2
    return last.block if has_leading_batch and last.axis == 1 else 0


__all__ = ["write_group_norm"]
