"""The dialect `ascend`: functions with the operators and format names of Ascend's compiler. CastData is TransData.

    y = layoutopt.ascend.TransData <src_format = "NCHW", dst_format = "NC1HWC0", src_subformat = 0, dst_subformat = 0,
                                    groups = 1> (x)
    z = layoutopt.ascend.Conv2D <strides = [1, 1, 1, 1], pads = [1, 1, 1, 1], dilations = [1, 1, 1, 1], groups = 1,
                                 data_format = "NCHW", offset_x = 0, input_formats = ["NC1HWC0", "FRACTAL_Z"],
                                 output_formats = ["NC1HWC0"], kernel_shape = [3, 3]> (y, w)

Arrays have the published shapes, such as (C1 * H * W, N1, 16, C0) for FRACTAL_Z. Grouped filters, depthwise filters and those
of NC1HWC0_C04 include the zeros of their storages. Functions with different bodies are overloads, so that a node has the name
of its op. An op with a format that the compiler does not name is written as in `functions`.

TransData converts between the pairs of formats of CANN's table; other conversions are steps through plain formats, and those
that no steps reach are CastData as in `functions`. The attributes `input_formats`, `output_formats` and `kernel_shape` are
additions: in that compiler they are properties of tensors. `docs/ascend.md` lists the operators, and the sources.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise, product
from math import prod
from typing import TypeAlias

import numpy as np

from layoutopt.dialects.functions import Functions, Label
from layoutopt.formats import Format, Part, Shape
from layoutopt.formats.ascend import C1HWNCoC0, FilterLayout, FractalZC04, GroupedFractalZ, pack_filter
from layoutopt.formats.catalog import Entry, c0, entries, fractal_nz
from layoutopt.formats.extent import static_shape
from layoutopt.ir.graph import DOMAIN, Graph, cast_storages, is_cast
from layoutopt.ir.sizes import is_symbolic
from layoutopt.ir.types import (
    Array,
    Attributes,
    ComputedData,
    Data,
    DType,
    Op,
    Operands,
    Signature,
    Slot,
    Storage,
    Value,
)
from layoutopt.ops import X, Y, rule_of
from layoutopt.ops.builder import OpBuilder, write_plain
from layoutopt.record import Record

# The names of formats in Ascend's compiler, and the shapes that it publishes for them.
#
# In that compiler a tensor has an *origin format*, which names its axes (NCHW, NHWC, or ND for axes without roles), and a
# *storage format*. NC1HWC0 of a tensor (N, H, W, C) is therefore another order of its axes than of one (N, C, H, W):
#
#     [N, C1, H, W, C0]   is  NC1HWC0 of NCHW  and  NC1HWC0 of NHWC        FRACTAL_NZ blocks the last two axes of any tensor
#
# C0 follows from the element type; an order with any other block has no name. Signals are images of one row: their names
# are those of images, and shapes leave out the H of 1.
#
# Sources: GetFormatName in Ascend metadef graph/types.cc (names), transfer_shape_utils.cc (shapes).

Names: TypeAlias = Mapping[Format, str]

_IMAGES = {4: "NCHW", 5: "NCDHW"}
_ORIGINS = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}
_PLAIN = {4: ("NCHW", "NHWC", "HWCN", "CHWN"), 5: ("NCDHW", "NDHWC", "DHWCN")}
_FILTERS = frozenset({"FRACTAL_Z", "FRACTAL_Z_3D", "FRACTAL_Z_3D_TRANSPOSE"})
_ROW = 2  # the axis of an image that a signal does not have
_CUBE_FLOAT32 = 8  # C0 of float32 on chips whose cube computes it
_BLOCKS = (16, _CUBE_FLOAT32, 32, 64, 128, 256)


def common_origins(formats: Sequence[Format], dtype: DType) -> Iterator[tuple[str, list[str]]]:
    """The origin formats under which all given formats of one tensor have names, and the names.

    The axes of the tensor may be permuted for that: a Transpose moves no bytes here, so a conversion in front of it is the same
    as one behind it.
    """
    for order in _orders(formats[0].rank):
        relabelled = [format.propagate_transpose(order) for format in formats]
        for origin, names in _tables(formats[0].rank, _blocks(dtype)).items():
            found = [names.get(format, "") for format in relabelled]
            if all(found):
                yield origin, found


def format_name(format: Format, dtype: DType) -> str | None:
    """The name of one format; None if it has none."""
    if format.is_canonical:
        return _IMAGES.get(format.rank, "ND")
    tables = _tables(format.rank, _blocks(dtype)).values()
    return next((names[format] for names in tables if format in names), None)


@cache
def published_shape(format: Format, shape: Shape) -> Shape:
    """The shape that Ascend publishes for a tensor in a format: the first axis of a filter counts all of its fractals."""
    physical = format.physical_shape(shape)
    inner = len(physical) - format.rank + 1
    names = {table.get(format, "") for table in _tables(format.rank, _BLOCKS).values()}
    if format.rank < min(_IMAGES) - 1 or names.isdisjoint(_FILTERS) or is_symbolic(physical):
        return physical
    return prod(static_shape(physical[:-inner])), *physical[-inner:]


def _blocks(dtype: DType) -> tuple[int, ...]:
    """The possible values of C0 for an element type."""
    if dtype is DType.STRING:
        return ()
    return (c0(dtype.label), _CUBE_FLOAT32) if dtype is DType.FLOAT32 else (c0(dtype.label),)


@cache
def _orders(rank: int) -> tuple[tuple[int, ...], ...]:
    """The axes as they are, the channels last or first, rows and columns exchanged."""
    axes = tuple(range(rank))
    if rank < 2:
        return (axes,)
    last, first = (0, *axes[2:], 1), (0, rank - 1, *axes[1:-1])
    exchanged = (*axes[:-2], rank - 1, rank - 2)
    return tuple(dict.fromkeys(order for order in (axes, last, first, exchanged) if sorted(order) == list(axes)))


@cache
def _tables(rank: int, blocks: tuple[int, ...]) -> dict[str, Names]:
    """The names of formats under every origin format of tensors of a rank."""
    matrices = {fractal_nz(rank, c0=block): "FRACTAL_NZ" for block in blocks} if rank > 1 else {}
    plain: dict[Format, str] = {Format.canonical(rank): "ND", **matrices}
    for block in blocks:
        if rank == 1:
            plain[Format((Part(0), Part(0, block)))] = "NC1HWC0"  # one number per channel: (1, C1, 1, 1, C0)
        if rank > 1:
            squares = Part(rank - 2, block), Part(rank - 1, block)
            plain[Format((*map(Part, range(rank)), *squares))] = "FRACTAL_ZZ"
        if rank == 2:
            plain[Format((Part(0), Part(1), Part(1, 16), Part(0, block)))] = "FRACTAL_Z"
    tables: dict[str, Names] = {"ND": plain}
    is_signal = rank == min(_IMAGES) - 1
    stored = _stored(min(_IMAGES) if is_signal else rank, blocks)
    for origin in _ORIGINS.get(min(_IMAGES) if is_signal else rank, ()):
        letters = _IMAGES[len(origin)]
        order = [letters.index(letter) for letter in origin]
        relabelled = {format.propagate_transpose(order): name for format, name in stored.items()}
        if is_signal:
            kept = [axis for axis, letter in enumerate(origin) if letter != letters[_ROW]]
            relabelled = {format.restrict(kept): name for format, name in relabelled.items()}
        tables[origin] = {**relabelled, **matrices}
    return tables


def _stored(rank: int, blocks: tuple[int, ...]) -> dict[Format, str]:
    """The names of formats of images (N, C, H, W) or (N, C, D, H, W), and of filters."""
    found: dict[Format, str] = {}
    for entry in entries():
        if entry.system == "Ascend" and len(entry.axes) == rank:
            found |= {_entry_format(entry, block): entry.name for block in blocks}
    return found | {Format.parse(plain, _IMAGES[rank]): plain for plain in _PLAIN.get(rank, ())}


def _entry_format(entry: Entry, block: int) -> Format:
    return Format.parse(entry.notation.replace("{C0}", str(block)), entry.axes)


# Packing, ahead of time, of filters in storages that no format describes.
#
# A plan has a format with the order of such a storage, without its zeros. This module packs the constant, and the body of
# the convolution function begins with ops that unpack it:
#
#     grouped             FRACTAL_Z        groups side by side until they fill a fractal: diagonal blocks
#     depthwise           C1HWNCoC0        C0 channels on the diagonal of a square
#     x in NC1HWC0_C04    FRACTAL_Z_C04    the four channels of a pixel together
#
# Only constants that the plan has reordered are packed; in training mode weights stay as they are.


_STEPS_SINCE = 10  # the opset from which Slice takes steps


class PackedFilter(Record):
    """The packing of the filter of a convolution.

    Attributes:
        slot: the operand that is the filter.
        name: the name of its storage.
        storage: the positions of its elements.
        shape: the shape of the filter as the storage counts it: (O, I, H, W), or (1, O, H, W) of a depthwise one; H is 1 for
            signals.
    """

    slot: Slot
    name: str
    storage: FilterLayout
    shape: tuple[int, int, int, int]

    @property
    def physical_shape(self) -> tuple[int, ...]:
        """The extents of the packed array."""
        return self.storage.physical_shape(self.shape)


def _packed(data: Data, filter: PackedFilter) -> Array:
    return pack_filter(data.numpy().reshape(filter.shape), filter.storage)


def packed_filter(op: Op) -> PackedFilter | None:
    """The packing of a convolution's filter, if no format describes its storage; otherwise None."""
    rule, signature = rule_of(op), op.signature
    if rule is None or rule.family != "convolution" or op.domain or op.version < _STEPS_SINCE or signature is None:
        return None
    slots = [rule.roles(op)[role] for role in ("w", "x", "y")]
    weight, (stored, x, y) = op.operand(slots[0]), (signature[slot] for slot in slots)
    if weight is None or weight.data is None or weight.static_shape is None or stored is None or x is None or y is None:
        return None
    outputs, inputs, *kernel = weight.static_shape
    _, x_name, y_name = (_named(op.operand(slot), signature[slot]) for slot in slots)
    if stored.format.is_canonical or len(kernel) > 2 or y_name != "NC1HWC0":
        return None
    block, (height, width) = x.format.block(1), (1, *kernel)[-2:]
    shape = outputs, inputs, height, width
    match rule.variant(op), x_name:
        case "depthwise", "NC1HWC0":
            return PackedFilter(slots[0], "C1HWNCoC0", C1HWNCoC0(block), (inputs, outputs, height, width))
        case "grouped", "NC1HWC0":
            return PackedFilter(slots[0], "FRACTAL_Z", GroupedFractalZ(op.integer("group", 1), block), shape)
        case "dense", "NC1HWC0_C04":
            return PackedFilter(slots[0], "FRACTAL_Z_C04", FractalZC04(y.format.block(1)), shape)
    return None


def read_packed_filter(graph: Graph, op: Op, builder: OpBuilder, filter: PackedFilter) -> None:
    """Insert ops that unpack the packed filter before the recorded ops, which then read the result."""
    value, logical = builder.declared_input(filter.slot.index), op.operand(filter.slot)
    assert value is not None and logical is not None
    recorded = list(builder.ops)
    builder.ops.clear()
    packed = _packed_constant(graph, logical, filter)
    if isinstance(filter.storage, GroupedFractalZ):
        plain = _unpack_grouped(builder, packed, filter.storage, filter.shape)
    else:  # a table of the elements of such a filter is small
        flat = builder.reshape(packed, (prod(filter.physical_shape),))
        offsets = builder.constant(filter.storage.offsets(filter.shape).ravel().astype(np.int32), "offsets")
        plain = builder.result("Gather", [flat, offsets], packed.type_with(offsets.dims), {"axis": 0})
    plain = builder.reshape(plain, logical.dims)
    order = builder.format(filter.slot)
    same = builder.reshape(builder.convert(plain, Format.canonical(order.rank), order, logical.dims), value.dims)
    for each in recorded:
        each.inputs = tuple(same if operand is value else operand for operand in each.inputs)
    builder.ops += recorded


def _packed_constant(graph: Graph, weight: Value, filter: PackedFilter) -> Value:
    """The constant with the packed filter, which all ops with the same packing of a filter share."""
    assert weight.data is not None and weight.dtype is not None
    stem, nbytes = f"{weight.tensor}__{filter.name}", prod(filter.physical_shape) * weight.dtype.bits // 8
    data, known = ComputedData(nbytes, _packed, (weight.data, filter)), graph.find(stem)
    if known is not None and known.data == data:
        return known
    return graph.new_value(stem, weight.type_with(filter.physical_shape), data=data, tensor=weight.tensor)


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
    if together > 1:  # the diagonal of a square matrix of groups
        flat, count = builder.reshape(value, (together**2, gathers, own, inputs, pixels)), together
        slices = [builder.integers([each], "slice") for each in (0, count**2, 0, count + 1)]
        value = builder.result("Slice", [flat, *slices], flat.type_with((count, *flat.dims[1:])))
    value = builder.reshape(value, (together, gathers, own, inputs, pixels))
    value = builder.reshape(builder.transpose(value, (1, 0, 2, 3, 4)), (gathers * together, own, inputs, pixels))
    return builder.reshape(builder.resize_axis(value, 0, storage.groups), shape)


ASCEND = f"{DOMAIN}.ascend"
CAST = "TransData"


class Ascend(Functions):
    """Calls functions with the format names of Ascend: CastData from NCHW to NC1HWC0  -->  layoutopt.ascend.TransData."""

    name = "ascend"

    def shape(self, format: Format, shape: Shape) -> Shape:
        """The shape that Ascend publishes for an array in a format."""
        return published_shape(format, shape)

    def label(self, op: Op) -> Label:
        """The label with the operator and format names of Ascend's compiler, if it names all formats of the op."""
        return (_cast(op) if is_cast(op) else _call(op)) or super().label(op)

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Operands) -> None:
        """Write a function call; filters that no format can describe are packed first, conversions are TransData in steps."""
        if is_cast(op) and builder.ops:
            self._write_steps(graph, op, builder, outputs)
            return
        filter = packed_filter(op)
        if filter is not None and builder.ops:
            read_packed_filter(graph, op, builder, filter)
        super().write(graph, op, builder, outputs)

    def _write_steps(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Operands) -> None:
        """Write a conversion as TransData between pairs of `TRANSDATA`, Transposes of plain formats, and Reshapes."""
        formats = _route(op)
        if {each.op_type for each in builder.ops} == {"Reshape"} or all(each.is_plain for each in formats):
            write_plain(graph, op, builder, outputs)
            return
        if len(formats) == 2:
            super().write(graph, op, builder, outputs)
            return
        value, logical = builder.given_input(0), op.x
        for number, (before, after) in enumerate(pairwise(formats)):
            source, result = (Value(logical.name, logical.type, storage=Storage(each)) for each in (before, after))
            step = op.copy((source,), (result,), name=f"{op.name}_{number}", order=(*op.order, number))
            step.signature = Signature((Storage(before),), (Storage(after),))
            output = outputs[0]
            if after is not formats[-1]:
                output = graph.new_value(f"{op.y.name}_{number}", logical.type_with(self.shape(after, logical.dims)))
            steps = OpBuilder(step, (value,), (output,), {X: before, Y: after}, graph.opsets[""], step.name, self.shape)
            given = steps.input(0)
            assert given is not None
            steps.set_output(0, steps.convert(given, before, after, logical.dims))
            self.write(graph, step, steps, (output,))
            value = output


TRANSDATA = frozenset(
    pair
    for plain, stored in (
        ("NCHW", "NC1HWC0"),
        ("NHWC", "NC1HWC0"),
        ("ND", "FRACTAL_NZ"),
        ("NCHW", "FRACTAL_Z"),
        ("HWCN", "FRACTAL_Z"),
        ("NCDHW", "NDC1HWC0"),
        ("NDHWC", "NDC1HWC0"),
        ("NCDHW", "FRACTAL_Z_3D"),
        ("DHWCN", "FRACTAL_Z_3D"),
    )
    for pair in ((plain, stored), (stored, plain))
)
"""The pairs of formats that TransData converts (`docs/ascend.md`), but for those of one direction and one element type."""


def _transdata(src: Format, dst: Format, dtype: DType) -> tuple[str, str] | None:
    """The names of two formats under one origin format, if TransData converts between them."""
    found = ((names[0], names[1]) for _, names in common_origins([src, dst], dtype))
    return next((names for names in found if names in TRANSDATA), None)


def _route(op: Op) -> list[Format]:
    """The formats of a conversion by TransData and Transposes, the fewest steps; the two ends if there is no such way."""
    dtype, ends = op.x.dtype, [each.format for each in cast_storages(op)]
    assert dtype is not None
    plain = [Format.plain(order) for order in _orders(ends[0].rank)]

    def is_step(src: Format, dst: Format) -> bool:
        return (src.is_plain and dst.is_plain) or _transdata(src, dst, dtype) is not None

    for count in range(3):
        for between in product(plain, repeat=count):
            way = [ends[0], *between, ends[1]]
            if all(is_step(*step) for step in pairwise(way)):
                return way
    return ends


def _cast(op: Op) -> Label | None:
    """The label of a TransData; None if there is none for this pair of formats."""
    (source, result), dtype = cast_storages(op), op.x.dtype
    assert dtype is not None
    names = _transdata(source.format, result.format, dtype)
    if names is None:
        return None
    attributes: Attributes = dict(zip(("src_format", "dst_format"), names, strict=True))
    attributes |= {"src_subformat": 0, "dst_subformat": 0, "groups": 1}
    return Label(CAST, attributes, ASCEND, has_overloads=True, replaces_attributes=True)


def _call(op: Op) -> Label | None:
    """The label of an op with the names of all its formats; None if a format has no name."""
    assert op.signature is not None
    inputs, outputs = (
        [*map(_named, values, storages)]
        for values, storages in ((op.inputs, op.signature.inputs), (op.outputs, op.signature.outputs))
    )
    filter = packed_filter(op)
    if filter is not None:
        inputs[filter.slot.index] = filter.name
    if None in inputs or None in outputs:
        return None
    given, computed = (tuple(each or "" for each in side) for side in (inputs, outputs))
    first = dict.fromkeys(side[0] for side in (given, computed) if side and side[0])
    attributes: Attributes = {"input_formats": given, "output_formats": computed}
    attributes |= _kernel_shape(op)
    registered = _registered(op, filter)
    if registered is not None:
        name, own = registered
        return Label(name, own | attributes, ASCEND, has_overloads=True, replaces_attributes=True)
    return Label("_".join([op.op_type, *first]), attributes, ASCEND, has_overloads=True)


def _registered(op: Op, filter: PackedFilter | None) -> tuple[str, Attributes] | None:
    """The operator that CANN registers for a product or convolution, and its attributes; None for other ops.

    Strides and dilations count all axes of the image; pads are those before and behind each spatial axis. A signal is an image
    of one row.
    """
    rank, pads = op.x.rank or 0, op.attributes.get("auto_pad", "NOTSET")
    is_plain_gemm = op.kind == "Gemm" and op.attributes.get("alpha", 1.0) == op.attributes.get("beta", 1.0) == 1.0
    if is_plain_gemm or (op.kind == "MatMul" and max(rank, op.y.rank or 0) == 2):
        transposed = {f"transpose_x{side}": op.integer(name) for side, name in ((1, "transA"), (2, "transB"))}
        return "MatMulV2", {**transposed, "offset_x": 0}
    if op.kind == "MatMul":
        return "BatchMatMulV2", {"adj_x1": 0, "adj_x2": 0, "offset_x": 0}
    if op.kind != "Conv" or pads not in ("NOTSET", "VALID"):
        return None
    return _convolution(op, rank - 2, is_depthwise=filter is not None and isinstance(filter.storage, C1HWNCoC0))


def _convolution(op: Op, spatial: int, *, is_depthwise: bool) -> tuple[str, Attributes]:
    row = (1,) if spatial == 1 else ()
    strides, dilations = (op.integers(name, (1,) * spatial) for name in ("strides", "dilations"))
    pads = op.integers("pads", (0,) * 2 * spatial)
    sides = (0, 0) * len(row) + tuple(pads[side] for axis in range(spatial) for side in (axis, axis + spatial))
    attributes: Attributes = {
        "strides": (1, 1, *row, *strides),
        "pads": sides,
        "dilations": (1, 1, *row, *dilations),
        "data_format": "NCDHW" if spatial == 3 else "NCHW",
        "offset_x": 0,
    }
    if is_depthwise:
        return "DepthwiseConv2D", attributes
    return ("Conv3D" if spatial == 3 else "Conv2D"), attributes | {"groups": op.integer("group", 1)}


def _kernel_shape(op: Op) -> Attributes:
    """The attribute `kernel_shape` of a convolution, since the physical shape of its filter does not determine it."""
    rule = rule_of(op)
    if rule is None or rule.family not in ("convolution", "transposed_convolution"):
        return {}
    filter = op.operand(rule.roles(op)["w"])
    return {} if filter is None or filter.static_shape is None else {"kernel_shape": filter.static_shape[2:]}


def _named(value: Value | None, storage: Storage | None) -> str | None:
    """The name of an operand's format; empty if it is absent or no tensor, None if the format has no name."""
    if value is None or value.dtype is None or storage is None:
        return ""
    return format_name(storage.format, value.dtype)
