"""Packing, ahead of time, of filters in storages that no format describes.

A plan has a format with the order of such a storage, without its zeros. This module packs the constant, and the body of the
convolution function begins with ops that unpack it:

    grouped             FRACTAL_Z        groups side by side until they fill a fractal: diagonal blocks
    depthwise           C1HWNCoC0        C0 channels on the diagonal of a square
    x in NC1HWC0_C04    FRACTAL_Z_C04    the four channels of a pixel together

Only constants that the plan has reordered are packed; in training mode weights stay as they are.
"""

from dataclasses import dataclass

import numpy as np

from layoutopt.dialects.ascend.names import format_name
from layoutopt.dialects.builder import OpBuilder
from layoutopt.formats import Format
from layoutopt.formats.ascend import C1HWNCoC0, FractalZC04, GroupedFractalZ, pack_filter
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Data, Op, Slot, TensorType, Value
from layoutopt.ops import rule_of

_STEPS_SINCE = 10  # the opset from which Slice takes steps


@dataclass(frozen=True, slots=True)
class PackedFilter:
    """The packing of the filter of a convolution.

    Args:
        slot: the operand that is the filter.
        name: the name of its storage.
        storage: the positions of its elements.
        shape: the shape (O, I, H, W) of the filter; H is 1 for signals.
    """

    slot: Slot
    name: str
    storage: GroupedFractalZ | C1HWNCoC0 | FractalZC04
    shape: tuple[int, int, int, int]

    @property
    def stored_shape(self) -> tuple[int, int, int, int]:
        """The shape as an argument of the storage, which has the channels of a depthwise filter as its second axis."""
        outputs, inputs, height, width = self.shape
        return (inputs, outputs, height, width) if isinstance(self.storage, C1HWNCoC0) else self.shape

    @property
    def physical_shape(self) -> tuple[int, ...]:
        """The extents of the packed array."""
        return self.storage.physical_shape(self.stored_shape)


class PackedFilterData:
    """The elements of a packed filter, which are computed whenever they are read."""

    def __init__(self, data: Data, filter: PackedFilter, bits: int) -> None:
        """Pack `data` as `filter` declares; an element has `bits` bits."""
        self.data = data
        self.filter = filter
        self.nbytes = int(np.prod(filter.physical_shape)) * bits // 8

    def numpy(self) -> Array:
        """The physical array."""
        array = self.data.numpy().reshape(self.filter.shape)
        if isinstance(self.filter.storage, C1HWNCoC0):
            array = array.swapaxes(0, 1)
        return pack_filter(array, self.filter.storage)


def packed_filter(op: Op) -> PackedFilter | None:
    """The packing of a convolution's filter, if no format describes its storage; otherwise None."""
    rule = rule_of(op)
    if rule is None or rule.family != "convolution" or op.domain or op.version < _STEPS_SINCE or op.signature is None:
        return None
    slot = rule.roles(op)["w"]
    formats = {role: _format(op, each) for role, each in rule.roles(op).items()}
    weight, fmt, x, y = op.operand(slot), formats["w"], formats["x"], formats["y"]
    if weight is None or weight.data is None or weight.static_shape is None or fmt is None or x is None or y is None:
        return None
    outputs, inputs, *kernel = weight.static_shape
    if fmt.is_canonical or len(kernel) > 2 or _name(op, rule.roles(op)["y"]) != "NC1HWC0":
        return None
    height, width = (1, *kernel)[-2:]
    shape = outputs, inputs, height, width
    match rule.variant(op), _name(op, rule.roles(op)["x"]):
        case "depthwise", "NC1HWC0":
            return PackedFilter(slot, "C1HWNCoC0", C1HWNCoC0(x.block(1)), shape)
        case "grouped", "NC1HWC0":
            return PackedFilter(slot, "FRACTAL_Z", GroupedFractalZ(op.integer("group", 1), x.block(1)), shape)
        case "dense", "NC1HWC0_C04":
            return PackedFilter(slot, "FRACTAL_Z_C04", FractalZC04(y.block(1)), shape)
    return None


def read_packed_filter(graph: Graph, op: Op, builder: OpBuilder, filter: PackedFilter) -> None:
    """Insert ops that unpack the packed filter before the recorded ops, which then read the result."""
    value, logical = builder.declared_input(filter.slot.index), op.operand(filter.slot)
    assert value is not None and value.shape is not None and logical is not None and logical.shape is not None
    recorded = list(builder.ops)
    builder.ops.clear()
    plain = builder.reshape(_unpacked(builder, _packed_constant(graph, logical, filter), filter), logical.shape)
    order = builder.format(filter.slot)
    same = builder.reshape(builder.convert(plain, Format.canonical(order.rank), order, logical.shape), value.shape)
    for each in recorded:
        each.inputs = tuple(same if operand is value else operand for operand in each.inputs)
    builder.ops += recorded


def _format(op: Op, slot: Slot) -> Format | None:
    storage = op.signature[slot] if op.signature is not None else None
    return None if storage is None else storage.format


def _name(op: Op, slot: Slot) -> str | None:
    value, format = op.operand(slot), _format(op, slot)
    return None if value is None or value.dtype is None or format is None else format_name(format, value.dtype)


def _packed_constant(graph: Graph, weight: Value, filter: PackedFilter) -> Value:
    """The constant with the packed filter, which all ops with the same packing of a filter share."""
    assert weight.data is not None and weight.dtype is not None
    stem = f"{weight.tensor}__{filter.name}"
    known = graph.find(stem)
    if (
        known is not None
        and isinstance(known.data, PackedFilterData)
        and (known.data.data, known.data.filter) == (weight.data, filter)
    ):
        return known
    data = PackedFilterData(weight.data, filter, weight.dtype.bits)
    return graph.new_value(stem, TensorType(weight.dtype, filter.physical_shape), data=data, tensor=weight.tensor)


def _unpacked(builder: OpBuilder, packed: Value, filter: PackedFilter) -> Value:
    """The filter (O, I, H, W) that a packed constant contains."""
    match filter.storage:
        case GroupedFractalZ():
            return _unpack_grouped(builder, packed, filter.storage, filter.shape)
        case C1HWNCoC0():
            return _unpack_depthwise(builder, packed, filter.shape)
        case FractalZC04():
            return _unpack_few_channels(builder, packed, filter.shape)


def _unpack_grouped(builder: OpBuilder, packed: Value, storage: GroupedFractalZ, shape: tuple[int, ...]) -> Value:
    outputs, inputs, height, width = shape
    own, together = outputs // storage.groups, storage.groups_per_fractal((outputs, inputs, height, width))
    fractals, columns, rows, block = storage.physical_shape((outputs, inputs, height, width))
    channels = -(-together * inputs // block)
    pixels = height * width
    gathers = fractals // (channels * pixels)
    value = builder.reshape(packed, (gathers, channels, pixels, columns * rows, block))
    value = builder.reshape(
        builder.transpose(value, (0, 3, 1, 4, 2)), (gathers, columns * rows, channels * block, pixels)
    )
    value = builder.resize_axis(builder.resize_axis(value, 1, together * own), 2, together * inputs)
    value = builder.reshape(value, (gathers, together, own, together, inputs, pixels))
    value = builder.transpose(value, (1, 3, 0, 2, 4, 5))
    value = _diagonal(builder, builder.reshape(value, (together**2, gathers, own, inputs, pixels)), together)
    value = builder.reshape(builder.transpose(value, (1, 0, 2, 3, 4)), (gathers * together, own, inputs, pixels))
    return builder.reshape(builder.resize_axis(value, 0, storage.groups), shape)


def _unpack_depthwise(builder: OpBuilder, packed: Value, shape: tuple[int, ...]) -> Value:
    outputs, inputs, height, width = shape
    assert packed.static_shape is not None
    blocks, _, _, _, block, _ = packed.static_shape
    value = builder.transpose(packed, (4, 5, 0, 3, 1, 2))
    value = _diagonal(builder, builder.reshape(value, (block**2, blocks, inputs, height, width)), block)
    value = builder.reshape(builder.transpose(value, (1, 0, 2, 3, 4)), (blocks * block, inputs, height, width))
    return builder.resize_axis(value, 0, outputs)


def _unpack_few_channels(builder: OpBuilder, packed: Value, shape: tuple[int, ...]) -> Value:
    outputs, inputs, height, width = shape
    assert packed.static_shape is not None
    fractals, columns, rows, block = packed.static_shape
    value = builder.reshape(builder.transpose(packed, (1, 2, 0, 3)), (columns * rows, fractals * block))
    value = builder.resize_axis(builder.resize_axis(value, 0, outputs), 1, 4 * height * width)
    value = builder.transpose(builder.reshape(value, (outputs, height, width, 4)), (0, 3, 1, 2))
    return builder.resize_axis(value, 1, inputs)


def _diagonal(builder: OpBuilder, value: Value, extent: int) -> Value:
    """The diagonal of a square matrix whose elements are the first axis, flattened."""
    assert isinstance(value.type, TensorType) and value.shape is not None
    if extent == 1:
        return value
    type = TensorType(value.type.dtype, (extent, *value.shape[1:]))
    numbers = [builder.constant(np.asarray([number], np.int64), "slice") for number in (0, extent**2, 0, extent + 1)]
    (result,) = builder.op("Slice", [value, *numbers], [type])
    return result


__all__ = ["PackedFilter", "PackedFilterData", "packed_filter", "read_packed_filter"]
