"""Blocked arrays for onnxruntime, and the writers of ops on them, by op type.

An array is declared as (N, C, H, W), C padded to the block, and stored as (N, C/b, H, W, b).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from layoutopt.cost.prices import BLOCKS
from layoutopt.formats import Format, Part, Shape, product
from layoutopt.ir.types import Array, Attribute, Attributes, Op, Slot, Value, float32_type
from layoutopt.ops import X, Y, estimated_extent, estimated_volume, rule_of
from layoutopt.ops.along_axis import Slice
from layoutopt.ops.builder import OpBuilder
from layoutopt.ops.feature_maps import Resize
from layoutopt.ops.normalization import KIND, ExportedGroupNormalization, normalized, per_channel
from layoutopt.record import Record

DOMAIN = "com.microsoft.nchwc"


class BlockedArrays(Record):
    """The block sizes of onnxruntime's blocked kernels, and the declared shapes of blocked arrays.

    Attributes:
        blocks: the block sizes of the kernels. Formats with other blocks are not blocked arrays: a split of heads by
            8 is none for kernels with blocks of 16.
    """

    blocks: tuple[int, ...] = BLOCKS

    def declared_shape(self, format: Format, shape: Shape) -> Shape:
        """The shape of an array: four axes for blocked feature maps and filters; signals are 1 high."""
        if self.feature_block(format):
            batch, channels, *image, block = format.physical_shape(shape)
            return (batch, estimated_extent(channels) * estimated_extent(block), *(1,) * (2 - len(image)), *image)
        if self.filter_block(format):
            filters, channels, *kernel = format.padded_shape(shape)[:: -1 if format.rank == 2 else 1]
            return (filters, channels, *(1,) * (2 - len(kernel)), *kernel)
        return format.physical_shape(shape)

    def feature_block(self, format: Format) -> int:
        """The block b of a format with the parts (N, C/b, H, W, b) or (N, C/b, W, b), for axes in any order; else 0."""
        parts = format.parts
        if format.rank not in (3, 4) or len(parts) != format.rank + 1 or any(part.block for part in parts[:-1]):
            return 0
        channels = parts[-1]
        return channels.block if channels.axis == parts[1].axis and channels.block in self.blocks else 0

    def filter_block(self, format: Format) -> int:
        """The block of OIHW{b}i{b}o or OIHW{b}o, of those without H, or of a matrix IO as OI{b}i{b}o; else 0."""
        for block in self.blocks:
            filters = (f"{axes}{blocks}" for axes in ("NCHW", "NCW") for blocks in (f"{block}c{block}n", f"{block}n"))
            if str(format) in (*filters, f"NM{block}m{block}n"):
                return block
        return 0

    def is_blocked(self, op: Op, slot: Slot) -> bool:
        """Whether an operand is a blocked feature map."""
        storage = op.signature[slot] if op.signature is not None else None
        return storage is not None and bool(self.feature_block(storage.format))


def kernel_call(
    builder: OpBuilder, kind: str, inputs: Sequence[Value | None], shape: Shape, **fields: Attribute
) -> Value:
    """The output of a new kernel call of the domain."""
    return builder.result(kind, inputs, float32_type(shape), fields, DOMAIN)


_W = Slot("in", 1)
_SUM = Slot("in", 3)
KINDS = ("Conv", "com.microsoft::FusedConv", "MatMul")
"""The op types that blocked convolutions compute, with filters packed for a block."""

Results: TypeAlias = Sequence[Value] | None
"""The present outputs of an op in native kernels; None if these do not have it."""

NativeWriter: TypeAlias = Callable[[Op, OpBuilder, BlockedArrays], Results]
"""Records an op with a kernel of the runtime; returns its outputs, or None if there is no kernel for these operands."""


def image_attributes(op: Op) -> Attributes:
    """The attributes of a convolution or pooling, those of signals for images of height 1."""
    attributes = dict(op.attributes)
    for name in ("kernel_shape", "strides", "dilations"):
        if len(numbers := op.integers(name)) == 1:
            attributes[name] = (1, *numbers)
    if len(pads := op.integers("pads")) == 2:
        attributes["pads"] = (0, pads[0], 0, pads[1])
    return attributes


def write_conv(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> Results:
    """Record a convolution of a plain or blocked input with a blocked output, a residual and an activation if it has them.

    Formats are compared by the bytes that they store: for an image of a single element, plain and blocked formats are equal,
    and signatures contain the plain one.
    """
    x, w, y = op.x, op.inputs[1], op.y
    if w is None or not {x.rank, w.rank, y.rank} <= {3, 4}:
        return None
    block = max(
        *(arrays.feature_block(builder.format(each)) for each in (X, Y)), arrays.filter_block(builder.format(_W))
    )
    if not block:
        return None
    is_depthwise = op.integer("group", 1) != 1 and w.dims[1] == 1
    axes = "NCHW" if w.rank == 4 else "NCW"
    blocked = Format.parse(f"{axes}{block}c")
    is_plain_input = builder.format(X).is_canonical and estimated_extent(x.dims[1]) < BLOCKS[0] and not is_depthwise
    filters = Format.parse(f"{axes}{block}n" if is_depthwise or is_plain_input else f"{axes}{block}c{block}n")
    expected = {_W: filters, Y: blocked} if is_plain_input else {X: blocked, _W: filters, Y: blocked}
    if not all(_is_stored_in(op, builder, slot, format) for slot, format in expected.items()):
        return None
    image, weight = builder.declared_input(0), builder.declared_input(1)
    assert image is not None and weight is not None
    target = arrays.declared_shape(blocked, y.dims)
    groups = estimated_extent(target[1]) if is_depthwise else op.integer("group", 1)
    plain = (*x.dims[:2], *(1,) * (4 - len(x.dims)), *x.dims[2:])
    image = builder.reshape(image, plain if is_plain_input else arrays.declared_shape(blocked, x.dims))
    inputs: list[Value | None] = [image, builder.reshape(weight, arrays.declared_shape(filters, w.dims))]
    if op.input(2) is not None:
        bias = op.constant(2)
        if bias is None:
            return None
        inputs.append(builder.constant(np.pad(bias, (0, estimated_extent(target[1]) - bias.size)), "bias"))
    if len(op.inputs) > 3 and (added := builder.declared_input(3)) is not None:
        if builder.format(_SUM) != builder.format(Y):
            return None
        inputs += [*[None] * (3 - len(inputs)), builder.reshape(added, target)]
    kernel = (*(1,) * (4 - len(w.dims)), *map(estimated_extent, w.dims[2:]))
    fields = {**image_attributes(op), "group": groups, "kernel_shape": kernel}
    return [kernel_call(builder, "Conv", inputs, target, **fields)]


def _is_stored_in(op: Op, builder: OpBuilder, slot: Slot, format: Format) -> bool:
    """Whether an operand has the bytes that it would have in a format."""
    value = op.operand(slot)
    return value is not None and format.fits(value.dims) and builder.format(slot).same_bytes(format, value.dims)


def write_product(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> Results:
    """Record a product of rows (N, *, K), stored as (N, K/b, *, b), with a packed matrix as a 1x1 convolution."""
    array, block, last = builder.given_input(0), arrays.filter_block(builder.format(_W)), len(op.y.dims) - 1
    if array is None or not block or len(op.x.dims) != last + 1:
        return None
    blocked = Format((*map(Part, (0, last, *range(1, last))), Part(last, block)))
    if not all(_is_stored_in(op, builder, slot, blocked) for slot in (X, Y)):
        return None
    image, target = (arrays.declared_shape(blocked, each.dims) for each in (op.x, op.y))
    inputs = [builder.reshape(array, image), builder.declared_input(1)]
    result = kernel_call(builder, "Conv", inputs, target, group=1, kernel_shape=(1, 1))
    return [builder.reshape(result, builder.declared(Y))]


def write_pool(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> Results:
    """Record a pooling; not an AveragePool with `ceil_mode` that counts padding, which the kernel computes differently."""
    if not arrays.is_blocked(op, X) or any(value is not None for value in op.outputs[1:]):
        return None
    if builder.format(X).order != tuple(range(len(op.x.dims))):
        return None  # the windows run along other axes of the array than the kernels'
    if op.op_type == "AveragePool" and op.integer("ceil_mode") and op.integer("count_include_pad"):
        return None
    attributes = {} if op.op_type.startswith("Global") else image_attributes(op)
    return [kernel_call(builder, op.op_type, [builder.declared_input(0)], builder.declared(Y), **attributes)]


def write_reduce_mean(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> Results:
    """Record a mean over the whole image as GlobalAveragePool."""
    if not arrays.is_blocked(op, X) or op.x.rank != op.y.rank:
        return None
    image = {part.axis for part in builder.format(X).parts[2:-1]}
    if op.y.dims != tuple(1 if axis in image else extent for axis, extent in enumerate(op.x.dims)):
        return None
    shape = (*builder.declared(X)[:2], 1, 1)
    return [kernel_call(builder, "GlobalAveragePool", [builder.declared_input(0)], shape)]


def write_elementwise(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> Results:
    """Record the op on the declared arrays, if all operands have the format of the result or are scalars."""
    if not arrays.is_blocked(op, Y):
        return None
    for index, value in enumerate(op.inputs):
        if value is None:
            continue
        is_full = value.shape == op.y.shape and op.signature is not None and op.signature.inputs[index] is not None
        if is_full and builder.format(Slot("in", index)) != builder.format(Y):
            return None
        if not is_full and (value.static_shape is None or estimated_volume(value.static_shape) != 1):
            return None
    types = [None if each is None else each.type_with(builder.declared(Y)) for each in op.outputs]
    return builder.op(op.op_type, builder.declared_inputs(), types, op.attributes)


PER_CHANNEL_KINDS = ("Add", "Mul", "Sub")


def write_per_channel(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> Results:
    """Record a product, sum or difference with one number per channel as a depthwise 1x1 convolution.

    A gate has computed numbers for each sample and channel. (N, C, H, W) has the same bytes as (1, NC, H, W), so every channel
    of every sample has its own filter.
    The groups of a convolution are an attribute, so with a symbolic batch, or computed numbers to add, the op runs on rows of
    the image.
    """
    if not arrays.is_blocked(op, Y) or len(op.inputs) != 2:
        return None
    for index in (0, 1):
        x, other, array = op.inputs[index], op.inputs[1 - index], builder.declared_input(index)
        if x is None or other is None or array is None or x.shape != op.y.shape:
            continue
        if builder.format(Slot("in", index)) != builder.format(Y):
            continue
        shape, numbers = builder.declared(Y), _aligned(other.dims, len(op.y.dims))
        filters = _scale_and_shift(op, builder, 1 - index, numbers) or _gate(op, builder, 1 - index, numbers)
        if filters is None:
            block = arrays.feature_block(builder.format(Y))
            if (result := _by_rows(op, builder, index, block, numbers)) is not None:
                return [result]
            continue
        groups = estimated_extent(filters[0].dims[0])
        folded = shape if groups == shape[1] else (1, groups, *shape[2:])
        operands = [builder.reshape(array, folded), *filters]
        result = kernel_call(builder, "Conv", operands, folded, group=groups, kernel_shape=(1, 1))
        return [builder.reshape(result, shape)]
    return None


def _aligned(shape: Shape, rank: int) -> Shape:
    """A shape with extents of 1 in front, up to a rank."""
    return (1,) * (rank - len(shape)) + tuple(shape)


def _only(op: Op, builder: OpBuilder, first: int = 0) -> Shape:
    """The shape of the result with extents of 1, but for the outer parts from `first` on: batch and channels."""
    kept = {part.axis for part in builder.format(Y).parts[first:2]}
    return tuple(extent if axis in kept else 1 for axis, extent in enumerate(op.y.dims))


def _scale_and_shift(op: Op, builder: OpBuilder, index: int, shape: Shape) -> list[Value] | None:
    """Filter and bias of the convolution that multiplies by, adds or subtracts the constant input `index`, if it can."""
    numbers = op.constant(index)
    if numbers is None or shape != _only(op, builder, 1) or (op.op_type == "Sub" and index == 0):
        return None
    flat: Array = np.pad(numbers.reshape(-1), (0, estimated_extent(builder.declared(Y)[1]) - numbers.size))
    scale = flat if op.op_type == "Mul" else np.ones_like(flat)
    filters = [builder.constant(scale.reshape(-1, 1, 1, 1), "scale")]
    if op.op_type != "Mul":
        filters.append(builder.constant(flat if op.op_type == "Add" else -flat, "shift"))
    return filters


def _gate(op: Op, builder: OpBuilder, index: int, shape: Shape) -> list[Value] | None:
    """The filter of the convolution that multiplies by the computed input `index`, a number per sample and channel."""
    gate, (batch, channels, *_) = builder.declared_input(index), builder.declared(Y)
    if op.op_type != "Mul" or gate is None or not isinstance(batch, int) or shape != _only(op, builder):
        return None
    groups = batch * estimated_extent(channels)
    return [builder.reshape(gate, (groups, 1, 1, 1))] if estimated_volume(gate.dims) == groups else None


def _by_rows(op: Op, builder: OpBuilder, index: int, block: int, shape: Shape) -> Value | None:
    """An op with a number per channel on rows of input `index`, for which the numbers are repeated.

    onnxruntime runs a broadcast in spans, as long as the innermost axes that are not broadcast: a row of W columns of a
    block each has W times as many elements as the block alone, which takes 5 times as long for W = 160.
    """
    numbers, array = builder.declared_input(1 - index), builder.declared_input(index)
    batch, channels, height, width = builder.declared(Y)
    first = builder.format(Y).parts[0].axis
    samples, without = shape[first], tuple(1 if axis == first else extent for axis, extent in enumerate(shape))
    if numbers is None or array is None or without != _only(op, builder, 1) or samples not in (1, batch):
        return None
    if product(numbers.dims) != product((samples, channels)):
        return None
    blocks = estimated_extent(channels) // block
    image = builder.reshape(array, (batch, blocks, height, width, block))
    operands = [image]
    operands.insert(1 - index, builder.expand(builder.reshape(numbers, (samples, blocks, 1, 1, block)), image, 2))
    result = builder.result(op.op_type, operands, float32_type(image.dims))
    return builder.reshape(result, builder.declared(Y))


def write_pieces(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> Results:
    """Record a Concat, Slice or Split of whole blocks along the channels, or along the batch: the op itself.

    An image whose channels are whole blocks is declared with the shape that it has in the model.
    """
    for slot in op.slots():
        value, is_tensor = op.operand(slot), slot.side == "out" or op.op_type == "Concat" or slot.index == 0
        if value is None or not is_tensor:
            continue
        is_declared = arrays.is_blocked(op, slot) and builder.declared(slot) == value.dims
        if not is_declared or builder.format(slot).order != tuple(range(4)):
            return None
    rule = rule_of(op)
    axes = rule.sliced_axes(op) if isinstance(rule, Slice) else (op.integer("axis", op.op_type == "Concat") % 4,)
    if axes is None or max(axes, default=0) > 1:
        return None  # the image is not an outer axis of the array
    types = [None if each is None else float32_type(each.dims) for each in op.outputs]
    return builder.op(op.op_type, builder.declared_inputs(), types, op.attributes)


_REORDERED_CHANNELS = 4  # the kernels accept multiples of 4 channels only


def write_reorder(
    builder: OpBuilder, value: Value, src: Format, dst: Format, shape: Shape, arrays: BlockedArrays
) -> Value | None:
    """Record a conversion between a plain format, with channels first or last, and a blocked one."""
    blocks = arrays.feature_block(src), arrays.feature_block(dst)
    if src.same_bytes(dst, shape) or bool(blocks[0]) == bool(blocks[1]):
        return None
    blocked, plain = (src, dst) if blocks[0] else (dst, src)
    batch, channels, *image = (part.axis for part in blocked.parts[:-1])
    is_channels_last = plain.order == (batch, *image, channels)
    if not plain.is_plain or not (is_channels_last or plain.order == (batch, channels, *image)):
        return None
    count = shape[channels]
    if not isinstance(count, int) or count % _REORDERED_CHANNELS:
        return None
    extents = (1,) * (2 - len(image)) + tuple(shape[axis] for axis in image)
    plain_shape = (shape[batch], *extents, count) if is_channels_last else (shape[batch], count, *extents)
    last = int(is_channels_last)
    array = builder.reshape(value, plain_shape if blocks[1] else arrays.declared_shape(src, shape))
    if blocks[1]:
        return kernel_call(builder, "ReorderInput", [array], arrays.declared_shape(dst, shape), channels_last=last)
    return kernel_call(builder, "ReorderOutput", [array], plain_shape, channels=count, channels_last=last)


# Writers of resampling on blocked images.
#
# integer scales  com.microsoft.nchwc.Upsample: nearest as fast as a copy, linear four times as fast as Resize on NCHW
# other scales    Resize on (N * C/b, H, W, b), the stored order, whose last axis is not scaled: twice as fast

# The kernel's mode for each mode of ONNX. With integer scales the variants of half_pixel are equal: they differ only for
# results of one element, or if the ratio of the extents differs from the given scale.
_COORDINATES = {each: each for each in ("asymmetric", "align_corners", "half_pixel")}
_COORDINATES |= dict.fromkeys(("pytorch_half_pixel", "half_pixel_symmetric"), "half_pixel")


def write_resize(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> Results:
    """Record a nearest or linear resampling of an image with blocked channels, which are not resized."""
    rule = rule_of(op)
    blocks = [arrays.feature_block(builder.format(slot)) for slot in (X, Y)]
    if not isinstance(rule, Resize) or op.x.rank != 4 or not all(blocks):
        return None
    batch, channels, height, width, _ = (part.axis for part in builder.format(X).parts)
    if any(op.x.dims[axis] != op.y.dims[axis] for axis in (batch, channels)):
        return None
    scales, coordinates = rule.integer_scales(op), _COORDINATES.get(rule.coordinate_mode(op))
    if rule.is_repetition(op):
        coordinates = "asymmetric"
    elif rule.variant(op) != "whole linear":
        coordinates = None
    if scales is None or coordinates is None or scales[batch] != 1 or scales[channels] != 1:
        return _write_any_scales(op, builder, rule, (height, width))
    fields: Attributes = {
        "mode": rule.mode(op),
        "coordinate_transformation_mode": coordinates,
        "scales": (1, 1, scales[height], scales[width]),
    }
    return [kernel_call(builder, "Upsample", [builder.declared_input(0)], builder.declared(Y), **fields)]


def _write_any_scales(op: Op, builder: OpBuilder, rule: Resize, image: tuple[int, int]) -> Results:
    """Record a Resize since opset 11 itself on the array reshaped to (N * C/b, H, W, b)."""
    raw, scales = builder.declared_input(0), rule.scales(op)
    is_resized = any(scale != 1.0 for axis, scale in (scales or {}).items() if axis not in image)
    if raw is None or op.version < 11 or is_resized or rule.mode(op) not in ("nearest", "linear"):
        return None
    batch, outer, _, _, block = builder.format(X).physical_shape(op.x.dims)
    before, after = ((product((batch, outer)), *(each.dims[axis] for axis in image), block) for each in (op.x, op.y))
    numbers = after if scales is None else (1.0, *(scales.get(axis, 1.0) for axis in image), 1.0)
    attributes = dict(op.attributes)
    if op.version >= 18:  # only the image axes: the first axis may be symbolic
        attributes["axes"], numbers = (1, 2), numbers[1:3]
    if not all(isinstance(each, int | float) for each in numbers):
        return None
    given = builder.constant(np.asarray(numbers, np.int64 if scales is None else np.float32), "scales")
    inputs = [builder.reshape(raw, before), builder.declared_input(1), *([None] if scales is None else []), given]
    result = builder.result(op.op_type, inputs, float32_type(after), attributes)
    return [builder.reshape(result, builder.declared(Y))]


# Group normalisation on blocked images.
#
# whole blocks in a group   a group is contiguous: InstanceNormalization on the array as (N, G, -1)
# other groups              the same in the plain format, between two reorders
#
# Then scale and shift as one depthwise 1x1 convolution, unless they are neutral.

_PER_CHANNEL = 21  # the opset since which scale and bias are per channel, and not per group


def write_group_norm(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> Results:
    """Record a group normalisation of blocked channels, whose number is known; batch and image may be symbolic."""
    format, channels = builder.format(X), op.x.dims[1]
    block = arrays.feature_block(format)
    if not block or format != builder.format(Y) or format.order[:2] != (0, 1):
        return None
    if not isinstance(channels, int) or channels % block or (not op.domain and op.version < _PER_CHANNEL):
        return None
    array, target = builder.declared_input(0), builder.declared(Y)
    assert array is not None
    type = float32_type(target)
    if channels // op.integer("num_groups") % block == 0:
        return [_scaled_and_shifted(op, builder, normalized(op, builder, array, type))]
    plain = kernel_call(builder, "ReorderOutput", [array], array.dims, channels=channels, channels_last=0)
    result = normalized(op, builder, plain, type)
    blocked = kernel_call(builder, "ReorderInput", [result], target, channels_last=0)
    return [_scaled_and_shifted(op, builder, blocked)]


def _scaled_and_shifted(op: Op, builder: OpBuilder, x: Value) -> Value:
    """The value times scale plus bias, by a depthwise 1x1 convolution; the value itself if both are neutral."""
    scale, bias, channels = op.constant(1), op.constant(2), estimated_extent(x.dims[1])
    if scale is not None and bias is not None and bool((scale == 1).all()) and not bias.any():
        return x
    operands = [x, per_channel(op, builder, 1, (channels, 1, 1, 1)), per_channel(op, builder, 2, (channels,))]
    return kernel_call(builder, "Conv", operands, x.dims, group=channels, kernel_shape=(1, 1))


WRITERS: Mapping[str, NativeWriter] = {
    **dict.fromkeys(KINDS, write_conv),
    "MatMul": write_product,
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"), write_pool),
    "ReduceMean": write_reduce_mean,
    **dict.fromkeys(PER_CHANNEL_KINDS, write_per_channel),
    **dict.fromkeys(("Concat", "Slice", "Split"), write_pieces),
    **dict.fromkeys(("Resize", "Upsample"), write_resize),
    **dict.fromkeys((KIND, *ExportedGroupNormalization.ops), write_group_norm),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), write_elementwise),
}
"""By op type."""
