"""Writers of ops on blocked arrays, by op type."""

from math import lcm, prod

import numpy as np

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import (
    BLOCKS,
    BlockedArrays,
    float32_type,
    image_attributes,
    kernel_call,
    native_writer,
)
from layoutopt.formats import Format, Part, Shape, pack, product
from layoutopt.ir.graph import DOMAIN
from layoutopt.ir.types import Array, Attribute, DType, Op, Slot, TensorType, Value
from layoutopt.ops import X, Y, estimated_extent, estimated_volume, rule_of
from layoutopt.ops.feature_maps import Resize
from layoutopt.ops.normalization import KIND, normalized, per_channel
from layoutopt.ops.rearrangement import Slice

_W = Slot("in", 1)
_SUM = Slot("in", 3)
KINDS = ("Conv", "com.microsoft::FusedConv")
"""The op types whose filters are packed for a block."""


@native_writer(*KINDS)
def write_conv(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a convolution of a plain or blocked input with a blocked output, a residual and an activation if it has them.

    Formats are compared by the bytes that they store: for an image of a single element, plain and blocked formats are equal,
    and signatures contain the plain one.
    """
    x, w, y = op.inputs[0], op.inputs[1], op.outputs[0]
    block = _block(op, builder, arrays)
    if not block or x is None or w is None or y is None or w.shape is None or x.shape is None or y.shape is None:
        return False
    is_depthwise = op.integer("group", 1) != 1 and w.shape[1] == 1
    axes = "NCHW" if len(w.shape) == 4 else "NCW"
    blocked = Format.parse(f"{axes}{block}c")
    is_plain_input = builder.format(X).is_canonical and estimated_extent(x.shape[1]) < BLOCKS[0] and not is_depthwise
    filters = Format.parse(f"{axes}{block}n" if is_depthwise or is_plain_input else f"{axes}{block}c{block}n")
    if not (_is_stored_in(builder, Y, y, blocked) and _is_stored_in(builder, _W, w, filters)):
        return False
    if not (is_plain_input or _is_stored_in(builder, X, x, blocked)):
        return False
    image, weight = builder.declared_input(0), builder.declared_input(1)
    assert image is not None and weight is not None
    target = arrays.declared_shape(blocked, y.shape)
    groups = estimated_extent(target[1]) if is_depthwise else op.integer("group", 1)
    shape = (
        (*x.shape[:2], *(1,) * (4 - len(x.shape)), *x.shape[2:])
        if is_plain_input
        else arrays.declared_shape(blocked, x.shape)
    )
    image = builder.reshape(image, shape)
    inputs: list[Value | None] = [image, builder.reshape(weight, arrays.declared_shape(filters, w.shape))]
    if len(op.inputs) > 2 and op.inputs[2] is not None:
        bias = op.constant(2)
        if bias is None:
            return False
        inputs.append(builder.constant(np.pad(bias, (0, estimated_extent(target[1]) - bias.size)), "bias"))
    if len(op.inputs) > 3 and (added := builder.declared_input(3)) is not None:
        if builder.format(_SUM) != builder.format(Y):
            return False
        inputs += [*[None] * (3 - len(inputs)), builder.reshape(added, target)]
    kernel = (*(1,) * (4 - len(w.shape)), *map(estimated_extent, w.shape[2:]))
    fields = {**image_attributes(op), "group": groups, "kernel_shape": kernel}
    result = kernel_call(builder, "Conv", inputs, target, **fields)
    builder.set_output(0, result)
    return True


def _block(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> int:
    """The block of the operands; 0 if all are plain or an operand has another rank than 3 or 4."""
    values = (op.inputs[0], op.inputs[1], op.outputs[0])
    if any(value is None or value.rank not in (3, 4) for value in values):
        return 0
    formats = builder.format(X), builder.format(Y)
    return max(*map(arrays.feature_block, formats), arrays.filter_block(builder.format(_W)))


def _is_stored_in(builder: OpBuilder, slot: Slot, value: Value, format: Format) -> bool:
    """Whether an operand has the bytes that it would have in a format."""
    assert value.shape is not None
    return format.fits(value.shape) and builder.format(slot).same_bytes(format, value.shape)


@native_writer("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
def write_pool(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a pooling; not an AveragePool with `ceil_mode` that counts padding, which the kernel computes differently."""
    if not arrays.is_blocked(op, X) or any(value is not None for value in op.outputs[1:]):
        return False
    *outer, channels = builder.format(X).parts
    if [part.axis for part in outer] != list(range(len(outer))) or channels.axis != 1:
        return False  # the windows run along other axes of the array than the kernels'
    kind = op.op_type
    if kind == "AveragePool" and _has_one_window(op):
        kind = "GlobalAveragePool"
    elif kind == "AveragePool" and op.integer("ceil_mode") and op.integer("count_include_pad"):
        return False
    attributes = {} if kind.startswith("Global") else image_attributes(op)
    builder.set_output(
        0, kernel_call(builder, kind, [builder.declared_input(0)], arrays.declared(op, builder, Y), **attributes)
    )
    return True


def _has_one_window(op: Op) -> bool:
    """Whether there is one window, without padding, that contains the whole image."""
    x, y, kernel = op.inputs[0], op.outputs[0], op.integers("kernel_shape")
    if x is None or y is None or x.shape is None or y.shape is None:
        return False
    if any(op.integers("pads")) or str(op.attributes.get("auto_pad", "NOTSET")) not in ("NOTSET", "VALID"):
        return False
    inside = all(isinstance(dim, int) and dim <= size for dim, size in zip(x.shape[2:], kernel, strict=True))
    return inside and all(dim == 1 for dim in y.shape[2:])


@native_writer("ReduceMean")
def write_reduce_mean(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a mean over the whole image as GlobalAveragePool."""
    x, y = op.inputs[0], op.outputs[0]
    if not arrays.is_blocked(op, X) or x is None or y is None or x.shape is None or y.shape is None:
        return False
    if len(y.shape) != len(x.shape):
        return False
    image = {part.axis for part in builder.format(X).parts[2:-1]}
    kept = all(y.shape[axis] == x.shape[axis] for axis in range(len(x.shape)) if axis not in image)
    if not kept or any(y.shape[axis] != 1 for axis in image):
        return False
    batch, channels, *_ = arrays.declared(op, builder, X)
    builder.set_output(
        0, kernel_call(builder, "GlobalAveragePool", [builder.declared_input(0)], (batch, channels, 1, 1))
    )
    return True


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


@native_writer("Concat", "Split")
def write_concat_or_split(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a Concat or Split of whole blocks along the channels, or along the batch."""
    storages = (
        [] if op.signature is None else [op.signature[slot] for slot in op.slots() if slot in _operands_with_format(op)]
    )
    if any(storage is None or not arrays.feature_block(storage.format) for storage in storages) or not storages:
        return False
    format = builder.format(_operands_with_format(op)[0])
    value = op.operand(_operands_with_format(op)[0])
    assert value is not None and value.rank is not None
    axis = op.integer("axis", 1 if op.op_type == "Concat" else 0) % value.rank
    position = next(number for number, part in enumerate(format.parts) if part.axis == axis)
    if position > 1:
        return False  # the image is not an outer axis: its blocks are inner ones
    shapes = [arrays.declared(op, builder, Slot("out", index)) for index in range(len(op.outputs))]
    attributes: dict[str, Attribute] = {**op.attributes, "axis": position}
    if op.op_type == "Concat":
        inputs = [builder.declared_input(index) for index in range(len(op.inputs))]
    else:
        attributes.pop("split", None)
        attributes.pop("num_outputs", None)
        lengths = np.asarray([estimated_extent(shape[position]) for shape in shapes], dtype=np.int64)
        if op.version < 13:
            inputs, attributes["split"] = [builder.declared_input(0)], tuple(int(length) for length in lengths)
        else:
            inputs = [builder.declared_input(0), builder.constant(lengths, "split")]
    results = builder.op(op.op_type, inputs, [float32_type(shape) for shape in shapes], attributes)
    for index, result in enumerate(results):
        builder.set_output(index, result)
    return True


@native_writer("Slice")
def write_slice(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a Slice of whole blocks along the channels, as a range of the declared array."""
    rule, source = rule_of(op), op.inputs[0]
    if not isinstance(rule, Slice) or source is None or not arrays.is_blocked(op, X) or not arrays.is_blocked(op, Y):
        return False
    (axis, *others), channels = rule.sliced_axes(op) or (-1,), builder.format(X).parts[1].axis
    found = rule.range_of(op, axis) if axis == channels and not others else None
    if found is None:
        return False
    block = arrays.feature_block(builder.format(X))
    start, stop = found[0], -(-found[1] // block) * block
    target = [float32_type(arrays.declared(op, builder, Y))]
    if op.version < 10:
        fields: dict[str, Attribute] = {"starts": (start,), "ends": (stop,), "axes": (1,)}
        (result,) = builder.op("Slice", [builder.declared_input(0)], target, fields)
    else:
        numbers = [builder.constant(np.asarray([each], dtype=np.int64), "range") for each in (start, stop, 1)]
        (result,) = builder.op("Slice", [builder.declared_input(0), *numbers], target)
    builder.set_output(0, result)
    return True


def _operands_with_format(op: Op) -> list[Slot]:
    """The operands with a format: all of a Concat, all but the lengths of a Split."""
    return [slot for slot in op.slots() if op.op_type == "Concat" or slot.side == "out" or slot.index == 0]


_REORDERED_CHANNELS = 4  # the kernels accept multiples of 4 channels only


def write_reorder(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a CastData between a plain format, with channels first or last, and a blocked one."""
    source, x = op.inputs[0], builder.declared_input(0)
    src, dst = builder.format(X), builder.format(Y)
    if (
        source is None
        or source.shape is None
        or x is None
        or src.same_bytes(dst, source.shape)
        or bool(arrays.feature_block(src)) == bool(arrays.feature_block(dst))
    ):
        return False
    blocked, plain = (src, dst) if arrays.feature_block(src) else (dst, src)
    batch, channels, *image = (part.axis for part in blocked.parts[:-1])
    is_channels_last = plain.order == (batch, *image, channels)
    if not plain.is_plain or not (is_channels_last or plain.order == (batch, channels, *image)):
        return False
    count = source.shape[channels]
    if not isinstance(count, int) or count % _REORDERED_CHANNELS:
        return False
    extents = (1,) * (2 - len(image)) + tuple(source.shape[axis] for axis in image)
    plain_shape = (source.shape[batch], *extents, count) if is_channels_last else (source.shape[batch], count, *extents)
    if arrays.feature_block(dst):
        array = builder.reshape(x, plain_shape)
        result = kernel_call(
            builder, "ReorderInput", [array], arrays.declared(op, builder, Y), channels_last=int(is_channels_last)
        )
    else:
        result = kernel_call(
            builder, "ReorderOutput", [x], plain_shape, channels=count, channels_last=int(is_channels_last)
        )
    builder.set_output(0, result)
    return True


# Writers of resampling on blocked images.
#
# integer scales  com.microsoft.nchwc.Upsample: nearest as fast as a copy, linear four times as fast as Resize on NCHW
# other scales    Resize on (N * C/b, H, W, b), the stored order, whose last axis is not scaled: twice as fast

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


# Group normalisation on blocked images.
#
# whole blocks in a group   a group is contiguous: InstanceNormalization on the array as (N, G, -1), then scale and shift as one
#                           depthwise 1x1 convolution, unless scale and shift are neutral
# other groups              statistics per channel, averaged over groups by a small convolution:
#
#     -mean  (N, C, 1, 1)  GlobalAveragePool, averaged, negative
#     c = x - mean         a depthwise 1x1 convolution with a computed bias
#     var    (N, C, 1, 1)  a depthwise convolution of the rows of c with themselves as filters, averaged
#     y                    c in a depthwise 1x1 convolution with the computed filter scale / sqrt(var + epsilon)
#
# A filter of (C, 1, 1, W) is stored like an image of W columns, so that sums of squares require no array of squares. They
# are computed row by row, since long sums lose digits. (N, C, H, W) is stored like (1, NC, H, W), so every sample has
# filters of its own.
#
# This takes four reads and two writes of x; reordering, normalising and reordering back takes seven and five. The
# variance is computed from centred values, because mean(x^2) - mean(x)^2 saves one read but cancels.

_PER_CHANNEL = 21  # the opset since which scale and bias are per channel, and not per group
_LONGEST_SUM = 1024  # elements that one kernel adds up in sequence


@native_writer(KIND, f"{DOMAIN}::{KIND}")
def write_group_norm(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a group normalisation of blocked channels, whose number is known; batch and image may be symbolic."""
    format = builder.format(X)
    block = _block_of_channels(format)
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
    channels, block = estimated_extent(value.shape[1]), _block_of_channels(builder.format(X))
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


def _block_of_channels(format: Format) -> int:
    """The block of the channels, if the parts are N, C, the image axes in any order, c; else 0."""
    *outer, last = format.parts
    has_leading_batch = outer[:2] == [Part(0), Part(1)] and not any(part.block for part in outer) and len(outer) > 2
    return last.block if has_leading_batch and last.axis == 1 else 0


__all__ = ["write_group_norm"]
