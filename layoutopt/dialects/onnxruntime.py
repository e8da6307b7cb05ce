"""The dialect `onnxruntime`: the blocked kernels that stock onnxruntime has for float32 on CPUs.

Its domain `com.microsoft.nchwc` has convolution (with a fused activation and a residual to add), pooling and reorders on
arrays that are declared as (N, C, H, W), C padded to the block, and lie as (N, C/b, H, W, b). Ops that do not care where
an element lies run on them as they are. At batch 1 a multiplication by one number per channel is a depthwise 1x1
convolution, whose filter may be computed: squeeze-and-excite needs no reorder.

What has no native kernel is written as the dialect `ops` would, with reshapes around it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from layoutopt.dialects.block_guard import guard
from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.conv_fusion import DOMAIN, fuse
from layoutopt.dialects.lowering import Dialect, write_plain
from layoutopt.formats import Format, Shape
from layoutopt.ir.cast import is_cast
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Attribute, DType, Op, Slot, TensorType, Value
from layoutopt.ops import X, Y, elements, extent, rule_of

BLOCKS = (8, 16)  # without and with AVX-512
_REORDERED_CHANNELS = 4  # the reorder kernels take multiples of that many channels only


class OnnxRuntime(Dialect):
    """Conv in NCHW8c  -->  com.microsoft.nchwc.Conv."""

    name = "onnxruntime"

    def shape(self, format: Format, shape: Shape) -> Shape:
        """Blocked feature maps and filters are declared with four axes."""
        if len(shape) == 4 and (feature_block(format) or filter_block(format)):
            if feature_block(format):
                batch, channels, height, width, block = format.physical_shape(shape)
                return (batch, extent(channels) * extent(block), height, width)
            return format.padded_shape(shape)
        return format.physical_shape(shape)

    def native(self, op: Op, builder: OpBuilder) -> bool:
        """By op type; on float32 only."""
        first = op.inputs[0] if op.inputs else None
        if first is None or first.dtype is not DType.FLOAT32 or op.signature is None:
            return False
        if is_cast(op):
            return _reorder(op, builder)
        write = _NATIVE.get(op.op_type)
        if write is not None and write(op, builder):
            return True
        rule = rule_of(op)
        return rule is not None and rule.family == "elementwise" and _elementwise(op, builder)

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """The recorded ops as they are."""
        if any(each.domain == DOMAIN for each in builder.ops):
            graph.opsets.setdefault(DOMAIN, 1)
        write_plain(graph, op, builder, outputs)

    def lower(self, graph: Graph) -> Graph:
        """Lowered, then neighbours taken into the convolutions, and a guard against machines with another block put in."""
        lowered = super().lower(graph)
        fuse(lowered)
        formats = (value.storage.format for value in graph.values if value.storage is not None)
        guard(lowered, max((feature_block(format) for format in formats), default=0))
        return lowered


def feature_block(format: Format) -> int:
    """The block of a feature map that lies as (N, C/b, H, W, b) under whatever axes; 0 if it does not."""
    parts = format.parts
    if len(parts) != 5 or format.rank != 4 or any(part.block for part in parts[:4]):
        return 0
    channels = parts[4]
    return channels.block if channels.axis == parts[1].axis and channels.block in BLOCKS else 0


def filter_block(format: Format) -> int:
    """The block of OIHW{b}i{b}o or OIHW{b}o; 0 for any other format."""
    for block in BLOCKS:
        if str(format) in (f"NCHW{block}c{block}n", f"NCHW{block}n"):
            return block
    return 0


def _is_blocked(op: Op, slot: Slot) -> bool:
    storage = op.signature[slot] if op.signature is not None else None
    return storage is not None and bool(feature_block(storage.format))


def _declared(op: Op, builder: OpBuilder, slot: Slot) -> Shape:
    """The shape of an operand's array in this dialect; with blocked storages four axes."""
    value = op.operand(slot)
    assert value is not None and value.shape is not None
    return OnnxRuntime().shape(builder.format(slot), value.shape)


def _float(shape: Shape) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


def _call(builder: OpBuilder, kind: str, inputs: Sequence[Value | None], shape: Shape, **fields: Attribute) -> Value:
    (result,) = builder.op(kind, inputs, [_float(shape)], fields, DOMAIN)
    return result


def _reorder(op: Op, builder: OpBuilder) -> bool:
    """CastData between a plain and a blocked order; the channels may come first or last."""
    source, x = op.inputs[0], builder.raw(0)
    src, dst = builder.format(X), builder.format(Y)
    if (
        source is None
        or source.shape is None
        or x is None
        or src == dst
        or bool(feature_block(src)) == bool(feature_block(dst))
    ):
        return False
    blocked, plain = (src, dst) if feature_block(src) else (dst, src)
    batch, channels, height, width = (part.axis for part in blocked.parts[:4])
    last = plain.order == (batch, height, width, channels)
    if not plain.is_plain or not (last or plain.order == (batch, channels, height, width)):
        return False
    count = source.shape[channels]
    if not isinstance(count, int) or count % _REORDERED_CHANNELS:
        return False
    target = _declared(op, builder, Y)
    if feature_block(dst):
        result = _call(builder, "ReorderInput", [x], target, channels_last=int(last))
    else:
        result = _call(builder, "ReorderOutput", [x], target, channels=count, channels_last=int(last))
    builder.set_output(0, result)
    return True


def _conv(op: Op, builder: OpBuilder) -> bool:
    """A convolution from plain or blocked to blocked."""
    x, w, y = op.inputs[0], op.inputs[1], op.outputs[0]
    if not _is_blocked(op, Y) or x is None or w is None or y is None or w.shape is None or x.shape is None:
        return False
    signature = op.signature
    assert signature is not None and signature.inputs[0] is not None and signature.inputs[1] is not None
    block, weight = feature_block(builder.format(Y)), signature.inputs[1].format
    depthwise = op.integer("group", 1) != 1 and w.shape[1] == 1
    wanted = f"NCHW{block}n" if depthwise or not _is_blocked(op, X) else f"NCHW{block}c{block}n"
    plain_input = signature.inputs[0].format.is_canonical and extent(x.shape[1]) < BLOCKS[0] and not depthwise
    if str(weight) != wanted or not (feature_block(signature.inputs[0].format) == block or plain_input):
        return False
    target = _declared(op, builder, Y)
    groups = extent(target[1]) if depthwise else op.integer("group", 1)
    inputs = [builder.raw(0), builder.raw(1)]
    if len(op.inputs) > 2 and op.inputs[2] is not None:
        bias = op.constant(2)
        if bias is None:
            return False
        inputs.append(builder.constant(np.pad(bias, (0, extent(target[1]) - bias.size)), "bias"))
    kernel = tuple(extent(dim) for dim in w.shape[2:])
    result = _call(builder, "Conv", inputs, target, **{**op.attributes, "group": groups, "kernel_shape": kernel})
    builder.set_output(0, result)
    return True


def _pool(op: Op, builder: OpBuilder) -> bool:
    """Pooling, except windows that may leave the image: there the blocked AveragePool counts otherwise."""
    if not _is_blocked(op, X) or (op.op_type == "AveragePool" and op.integer("ceil_mode")):
        return False
    if any(value is not None for value in op.outputs[1:]):
        return False
    builder.set_output(0, _call(builder, op.op_type, [builder.raw(0)], _declared(op, builder, Y), **op.attributes))
    return True


def _reduce_mean(op: Op, builder: OpBuilder) -> bool:
    """The mean over all of the image is a global pooling."""
    x, y = op.inputs[0], op.outputs[0]
    if not _is_blocked(op, X) or x is None or y is None or x.shape is None or y.shape is None:
        return False
    if len(y.shape) != 4:
        return False
    parts = builder.format(X).parts
    image = {parts[2].axis, parts[3].axis}
    kept = all(y.shape[axis] == x.shape[axis] for axis in range(4) if axis not in image)
    if not kept or any(y.shape[axis] != 1 for axis in image):
        return False
    batch, channels, *_ = _declared(op, builder, X)
    builder.set_output(0, _call(builder, "GlobalAveragePool", [builder.raw(0)], (batch, channels, 1, 1)))
    return True


def _elementwise(op: Op, builder: OpBuilder) -> bool:
    """On the arrays as they are, if all operands lie alike; single numbers broadcast anyhow."""
    if not _is_blocked(op, Y):
        return False
    y = op.outputs[0]
    assert y is not None and y.shape is not None
    for index, value in enumerate(op.inputs):
        if value is None:
            continue
        alike = value.shape == y.shape and op.signature is not None and op.signature.inputs[index] is not None
        if alike and builder.format(Slot("in", index)) != builder.format(Y):
            return False
        if not alike and (value.static_shape is None or elements(value.static_shape) != 1):
            return False
    target = _declared(op, builder, Y)
    types = [None if each is None or each.dtype is None else TensorType(each.dtype, target) for each in op.outputs]
    results = builder.op(op.op_type, [builder.raw(index) for index in range(len(op.inputs))], types, op.attributes)
    present = [index for index, each in enumerate(op.outputs) if each is not None]
    for index, result in zip(present, results, strict=True):
        builder.set_output(index, result)
    return True


def _per_channel(op: Op, builder: OpBuilder) -> bool:
    """Mul, Add and Sub with one number per channel: a depthwise 1x1 convolution, whose filter may be computed at batch 1."""
    y = op.outputs[0]
    if _elementwise(op, builder):
        return True
    if not _is_blocked(op, Y) or y is None or y.shape is None or len(op.inputs) != 2:
        return False
    for index in (0, 1):
        x, other = op.inputs[index], op.inputs[1 - index]
        if x is None or other is None or x.shape != y.shape or builder.format(Slot("in", index)) != builder.format(Y):
            continue
        target = _declared(op, builder, Y)
        operands = _scale_and_shift(op, builder, 1 - index, extent(target[1]))
        if operands is None:
            continue
        result = _call(
            builder, "Conv", [builder.raw(index), *operands], target, group=extent(target[1]), kernel_shape=(1, 1)
        )
        builder.set_output(0, result)
        return True
    return False


def _scale_and_shift(op: Op, builder: OpBuilder, index: int, channels: int) -> list[Value] | None:
    """Filter and bias of the convolution that multiplies by, adds or subtracts input `index`; None if there is none."""
    other, y = op.inputs[index], op.outputs[0]
    assert other is not None and y is not None and y.shape is not None
    axis = builder.format(Y).parts[1].axis
    shape = (1,) * (4 - (other.rank or 0)) + tuple(other.shape or ())
    if shape != tuple(y.shape[place] if place == axis else 1 for place in range(4)):
        return None
    numbers = op.constant(index)
    if numbers is None:
        gate = builder.raw(index)
        if op.op_type != "Mul" or y.shape[builder.format(Y).parts[0].axis] != 1 or gate is None:
            return None
        return [builder.reshape(gate, (channels, 1, 1, 1))] if elements(gate.shape or ()) == channels else None
    if op.op_type == "Sub" and index == 0:
        return None
    flat: Array = np.pad(numbers.reshape(-1), (0, channels - numbers.size))
    scale = flat if op.op_type == "Mul" else np.ones_like(flat)
    filters = [builder.constant(scale.reshape(-1, 1, 1, 1), "scale")]
    if op.op_type != "Mul":
        filters.append(builder.constant(flat if op.op_type == "Add" else -flat, "shift"))
    return filters


def _along_channels(op: Op, builder: OpBuilder) -> bool:
    """Concat and Split of whole blocks along the channels, or along the batch."""
    storages = [] if op.signature is None else [op.signature[slot] for slot in op.slots() if slot in _pieces(op)]
    if any(storage is None or not feature_block(storage.format) for storage in storages) or not storages:
        return False
    format = builder.format(_pieces(op)[0])
    value = op.operand(_pieces(op)[0])
    assert value is not None and value.rank is not None
    axis = op.integer("axis", 1 if op.op_type == "Concat" else 0) % value.rank
    place = next(number for number, part in enumerate(format.parts) if part.axis == axis)
    if place > 1:
        return False  # the image is not an outer axis: its blocks lie inside
    declared = [_declared(op, builder, Slot("out", index)) for index in range(len(op.outputs))]
    attributes: dict[str, Attribute] = {**op.attributes, "axis": place}
    if op.op_type == "Concat":
        inputs = [builder.raw(index) for index in range(len(op.inputs))]
    else:
        attributes.pop("split", None)
        attributes.pop("num_outputs", None)
        lengths = np.asarray([extent(shape[place]) for shape in declared], dtype=np.int64)
        if op.version < 13:
            inputs, attributes["split"] = [builder.raw(0)], tuple(int(length) for length in lengths)
        else:
            inputs = [builder.raw(0), builder.constant(lengths, "split")]
    results = builder.op(op.op_type, inputs, [_float(shape) for shape in declared], attributes)
    for index, result in enumerate(results):
        builder.set_output(index, result)
    return True


def _pieces(op: Op) -> list[Slot]:
    """The operands that lie alike: all of a Concat, all but the lengths of a Split."""
    return [slot for slot in op.slots() if op.op_type == "Concat" or slot.side == "out" or slot.index == 0]


_NATIVE: dict[str, Callable[[Op, OpBuilder], bool]] = {
    "Add": _per_channel,
    "AveragePool": _pool,
    "Concat": _along_channels,
    "Conv": _conv,
    "GlobalAveragePool": _pool,
    "GlobalMaxPool": _pool,
    "MaxPool": _pool,
    "Mul": _per_channel,
    "ReduceMean": _reduce_mean,
    "Split": _along_channels,
    "Sub": _per_channel,
}
