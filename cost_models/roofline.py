"""Roofline cost model: a kernel takes as long as its arithmetic or its memory traffic, whichever is longer.

    kernel      overhead + max(flops * padded/logical / (rate * efficiency), bytes / (bandwidth * efficiency))
                overhead + the sum of the two, for kernels with overlaps = false
    conversion  overhead + (bytes read + bytes written) / (bandwidth * cast efficiency);  0 if no byte moves
    emulation   conversions of the inputs + a kernel of the target + conversions of the outputs

in seconds. Bytes and operations include padding. Symbolic extents count as 1. The model is that of Williams, Waterman and
Patterson, CACM 52(4), 2009.
"""

from collections.abc import Sequence
from copy import copy
from itertools import product
from math import inf
from typing import Any, TypeAlias

from msgspec import field

from layoutopt.cost import MeasuredPrices
from layoutopt.cost.model import INNER_CONVERSION_FACTOR, distinct
from layoutopt.cost.prices import gathered_pieces
from layoutopt.cost_models.kernel_matching import BoundKernel, Formats, bind
from layoutopt.cost_models.spec import KernelSpec, Memory, TargetSpec
from layoutopt.formats import Conversion, Format, Shape, Transpose, volume
from layoutopt.ir.types import DType, Op, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops import OperandFormats, estimated_volume, rule_of
from layoutopt.ops.view import View
from layoutopt.record import Record

# --- conversions ---
#
# Classes of conversions, which reach different fractions of the memory bandwidth: the longer the contiguous runs, the more.
#
# The position of an axis in a format matters only if it has more than one element: for C = 1, NCHW and NHWC are the same
# bytes.


def shortest_run(src: Format, dst: Format, shape: Shape) -> float:
    """The length of the contiguous runs that a conversion moves, in elements; infinite if it has no Transpose."""
    return max(
        _shortest_run(*pair, shape)
        for pair in product(_equivalent_formats(src, shape), _equivalent_formats(dst, shape))
    )


def _equivalent_formats(format: Format, shape: Shape) -> list[Format]:
    """A plain format with the axes of extent 1 moved outermost and innermost, which has the same bytes; others as they are.

    A conversion may treat NHWC as NCHW if C = 1.
    """
    non_unit = _non_unit_axes(format.order, shape) if format.is_plain else ()
    unit_axes = tuple(axis for axis in range(format.rank) if axis not in non_unit)
    return (
        [Format.plain(unit_axes + non_unit), Format.plain(non_unit + unit_axes)] if non_unit and unit_axes else [format]
    )


def _shortest_run(src: Format, dst: Format, shape: Shape) -> float:
    steps = [step for step in Conversion(src, dst).steps(shape) if isinstance(step, Transpose)]
    ends = [dim for step in steps for dim in (step.before[-1], step.after[-1]) if isinstance(dim, int)]
    return min(ends, default=inf)


def conversion_class(src: Format, dst: Format, shape: Shape, memory: Memory) -> str:
    """The key of `memory` with the fraction of the bandwidth that a conversion reaches; one of blocked formats by default."""
    if memory.short_run is not None:
        is_plain = shortest_run(src, dst, shape) > memory.short_run.value
    else:
        is_plain = _is_unblocked(src.key(shape), shape) and _is_unblocked(dst.key(shape), shape)
    if is_plain:
        return "plain_cast_efficiency"
    if is_scattered(src, dst, shape):
        return "scattered_cast_efficiency"
    return "channels_last_cast_efficiency" if _is_channels_last(src, dst, shape) else "blocked_cast_efficiency"


def _is_unblocked(key: tuple[Any, ...], shape: Shape) -> bool:
    """Whether a format's key is that of a plain format, as of NCHW16c for C = 16."""
    size, *axes = key
    return bool(size == volume(shape)) and all(len(digits) < 2 for digits in axes)


def _is_channels_last(one: Format, other: Format, shape: Shape) -> bool:
    """Whether one of two formats is plain and its innermost axis is the blocked axis of the other."""
    pairs = ((one, other), (other, one))
    return any(
        plain.is_plain and _non_unit_axes(plain.order, shape)[-1:] == _non_unit_axes(blocked.blocked_axes, shape)[-1:]
        for plain, blocked in pairs
    )


def is_scattered(one: Format, other: Format, shape: Shape) -> bool:
    """Whether a conversion moves single elements, because no reorder kernel for blocked formats converts between these two."""
    if one == other:
        return False
    plain, blocked = (one, other) if one.is_plain else (other, one)
    orders = [_non_unit_axes(order, shape) for order in _orders(blocked)]
    return not plain.is_plain or not orders or _non_unit_axes(plain.order, shape) not in orders


def _orders(format: Format) -> list[tuple[int, ...]]:
    """The axis orders of plain formats that a reorder kernel converts to a format with one block: its own, or channels-last."""
    blocked, parts = format.blocked_axes, format.parts
    if len(blocked) != 1 or len(parts) != format.rank + 1 or not parts[-1].block:
        return []
    outer = tuple(part.axis for part in parts[:-1])
    return [outer, (*(axis for axis in outer if axis not in blocked), *blocked)]


def _non_unit_axes(axes: Sequence[int], shape: Shape) -> tuple[int, ...]:
    """The axes with extents other than 1; the positions of all other axes change no offset."""
    return tuple(axis for axis in axes if shape[axis] != 1)


def intermediate_formats(*formats: Format) -> list[Format]:
    """Plain formats through which a conversion between the given formats may be faster."""
    rank = formats[0].rank
    own = (order for each in formats for order in ([each.order] if each.is_plain else _orders(each)))
    orders = [(*range(rank),), (0, *range(2, rank), 1), *own]
    return [Format.plain(order) for order in dict.fromkeys(orders) if sorted(order) == list(range(rank))]


def physical_bytes(type: TensorType, format: Format) -> float:
    """Bytes of a tensor in a format, padding included."""
    assert type.shape is not None
    return estimated_volume(format.padded_shape(type.shape)) * type.dtype.bits / 8


# --- price caches ---
#
# Caches of a cost model: the kernels of ops by structure, and estimates, which all models of one target share.
#
# Equal ops share prices. Prices at measured times are made many times for one graph, from the same estimates.


Structure: TypeAlias = tuple[Any, ...]
ConversionKey: TypeAlias = tuple[TensorType, Storage, Storage]
OptionalFormats: TypeAlias = tuple[Format | None, ...]
"""The format of every operand and result; None for those without one."""

_SMALL = 64  # elements; smaller integer constants (axes, pads, sizes) are part of an op's structure


class Kernels(Record):
    """The kernels of all ops of one structure.

    Attributes:
        number: the number of the structure.
        rows: the kernels.
        flops: the operations of the op.
        estimates: the seconds of the fastest kernel on operands in given formats; None if there is none.
    """

    number: int
    rows: list[BoundKernel]
    flops: float
    estimates: dict[OptionalFormats, float | None] = field(default_factory=dict)


def structure(op: Op) -> Structure:
    """The properties on which a price depends: op type, attributes, types, small constants, and which operands are constant."""
    return (
        op.kind,
        op.version,
        tuple(sorted(op.attributes.items(), key=lambda item: item[0])),
        tuple([_operand(value) for value in op.inputs]),
        tuple([value and value.type for value in op.outputs]),
    )


def _operand(value: Value | None) -> Structure | None:
    if value is None:
        return None
    if value.data is None:
        return (value.type,)
    integers = value.dtype in (DType.INT64, DType.INT32)
    small = integers and value.shape is not None and estimated_volume(value.shape) <= _SMALL
    return (value.type, value.data.numpy().tobytes() if small else True)


class Work(Record):
    """The work of one op in one kernel, and the terms of its roofline estimate, in seconds.

    Attributes:
        kernel: the kernel; None for an op without a kernel in the target file.
        formats: the formats that the kernel reads and writes; canonical for operands that its row does not name.
        operations: arithmetic operations, padding included.
        nbytes: bytes read and written, padding included.
        is_aligned: whether the extents have the alignment of the kernel.
        arithmetic: time of the arithmetic at the kernel's fraction of the peak rate.
        traffic: time of the memory traffic at its fraction of the bandwidth.
        overhead: constant overhead.
    """

    kernel: KernelSpec | None
    formats: Formats
    operations: float
    nbytes: float
    is_aligned: bool
    arithmetic: float
    traffic: float
    overhead: float

    @property
    def overlaps(self) -> bool:
        """Whether arithmetic and traffic overlap."""
        return self.kernel is None or self.kernel.overlaps

    @property
    def seconds(self) -> float:
        """The total time."""
        both = max(self.arithmetic, self.traffic) if self.overlaps else self.arithmetic + self.traffic
        return self.overhead + both


class RooflineModel:
    """The roofline model of a target file. Prices are cached by the structure of ops, so that equal ops share them."""

    def __init__(self, spec: TargetSpec) -> None:
        """Price with the numbers of `spec`."""
        self.spec = spec
        # estimates, which do not depend on measured prices
        self._kernels: dict[Structure, Kernels] = {}
        self._estimated_conversions: dict[ConversionKey, float] = {}
        self._price_with(None)

    def _price_with(self, measured: MeasuredPrices | None) -> None:
        """Price with measured prices where there are any."""
        self._measured = measured
        self._preferred_formats: dict[int, list[OperandFormats]] = {}
        self._prices: dict[tuple[int, OptionalFormats], float] = {}
        self._conversions: dict[ConversionKey, float] = {}

    @property
    def name(self) -> str:
        """The name of the target."""
        return self.spec.name

    @property
    def dialect(self) -> str:
        """The default output dialect for this target."""
        return self.spec.dialect

    def __repr__(self) -> str:
        """The constructor with the name of the target."""
        return f"RooflineModel({self.name})"

    def with_measured(self, measured: MeasuredPrices) -> "RooflineModel":
        """The model of the same target with measured prices, which shares its estimates."""
        model = copy(self)
        model._price_with(measured)
        return model

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """The formats that the target's kernels for this op require, the fastest kernel first."""
        kernels = self._kernels_of(op)
        if kernels.number not in self._preferred_formats:
            plain = canonical(op)
            ranked = sorted(kernels.rows, key=lambda row: self._run(op, kernels, row, {**plain, **row.formats}))
            self._preferred_formats[kernels.number] = distinct(row.formats for row in ranked if not row.kernel.direct)
        return self._preferred_formats[kernels.number]

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature, in the fastest kernel that supports it or by emulation."""
        kernels = self._kernels_of(op)
        storages = (*signature.inputs, *signature.outputs)
        formats = tuple([None if storage is None else storage.format for storage in storages])
        seconds = self._prices.get((kernels.number, formats))
        if seconds is None:
            seconds = self._prices[kernels.number, formats] = self._price(op, signature, formats, kernels)
        return seconds

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """Estimated seconds of a conversion of a tensor between storages; 0 if no byte moves."""
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            return 0.0 if src.format == dst.format else self.spec.launch.overhead.value
        key = (value.type, src, dst)
        seconds = self._conversions.get(key)
        if seconds is None:
            seconds = self._conversions[key] = self._convert(value.type, src, dst)
        return seconds

    def _convert(self, type: TensorType, src: Storage, dst: Storage) -> float:
        """Seconds of a conversion; one that moves single elements may go through up to two plain formats if that is faster.

        Between blocked formats one plain format may be required.
        """
        assert type.shape is not None
        direct = self._convert_once(type, src, dst)
        if self.spec.memory.through_plain and direct and not (src.format.is_plain or dst.format.is_plain):
            plain = map(Storage, intermediate_formats(src.format, dst.format))
            return min(self._convert_once(type, src, each) + self._convert_once(type, each, dst) for each in plain)
        if self.spec.memory.scattered_cast_efficiency is None or not is_scattered(src.format, dst.format, type.shape):
            return direct
        between = [Storage(each) for each in intermediate_formats(src.format, dst.format)]
        steps = (((src, first), (first, last), (last, dst)) for first, last in product(between, repeat=2))
        return min(direct, *(sum(self._convert_once(type, *step) for step in way) for way in steps))

    def _convert_once(self, type: TensorType, src: Storage, dst: Storage) -> float:
        assert type.shape is not None
        if src.satisfies(dst, type.shape):
            return 0.0
        key = (type, src, dst)
        if key not in self._estimated_conversions:
            self._estimated_conversions[key] = self._estimate_conversion(type, src, dst)
        seconds = self._estimated_conversions[key]
        return seconds if self._measured is None else self._measured.conversion(type, src.format, dst.format, seconds)

    def _estimate_conversion(self, type: TensorType, src: Storage, dst: Storage) -> float:
        """Estimated seconds of a conversion that moves bytes, in one step."""
        assert type.shape is not None
        memory, launch = self.spec.memory, self.spec.launch
        name = conversion_class(src.format, dst.format, type.shape, memory)
        efficiency = getattr(memory, name) or memory.blocked_cast_efficiency
        moved = sum(physical_bytes(type, storage.format) for storage in (src, dst))
        overhead = launch.cast_overhead or launch.overhead
        return overhead.value + moved / (memory.bandwidth.value * efficiency.value)

    def _kernels_of(self, op: Op) -> Kernels:
        key, known = structure(op), self._kernels
        found = known.get(key)
        if found is None:
            rule = rule_of(op)
            rows = bind(self.spec, op, rule) if rule is not None and not isinstance(rule, View) else []
            has_ranks = all(value.rank is not None for value in op.values)
            flops = rule.flops(op) if rule is not None and has_ranks else 0.0
            found = known[key] = Kernels(len(known), rows, flops)
        return found

    def _price(self, op: Op, signature: Signature, key: OptionalFormats, kernels: Kernels) -> float:
        if isinstance(rule_of(op), View):
            return 0.0
        formats = formats_of(op, signature)
        if key not in kernels.estimates:
            fastest = self.work(op, signature)
            kernels.estimates[key] = None if fastest is None else fastest.seconds + self._gather_pieces(op, signature)
        seconds = kernels.estimates[key]
        if seconds is not None:
            return seconds if self._measured is None else self._measured.kernel(op, formats, seconds)
        rows: list[BoundKernel | None] = [*kernels.rows]
        return min(self._emulate(op, kernels, formats, row) for row in rows or [None])

    def _gather_pieces(self, op: Op, signature: Signature) -> float:
        """Seconds of a Gather for runs of adjacent elements, beyond those of the canonical format."""
        price, found = self.spec.memory.gather_piece, gathered_pieces(op, signature)
        if price is None or found is None or not op.y.shape:
            return 0.0
        piece, whole = found
        elements = estimated_volume(op.y.shape)
        return price.value * max(0.0, elements / piece - elements / whole)

    def _emulate(self, op: Op, kernels: Kernels, formats: Formats, row: BoundKernel | None) -> float:
        """Seconds to convert to the formats of a kernel, run it, and convert back; constants are converted ahead of time.

        A conversion inside an op costs slightly more (`INNER_CONVERSION_FACTOR`) than a cast, which several ops can share.
        """
        inner = {**canonical(op), **(row.formats if row is not None else {})}
        conversions = sum(
            self.conversion_seconds(value, Storage(format), Storage(inner[slot]))
            for slot, format in formats.items()
            if (value := op.operand(slot)) is not None and not value.is_constant
        )
        return self._run(op, kernels, row, inner) + INNER_CONVERSION_FACTOR * conversions

    def work(self, op: Op, signature: Signature) -> Work | None:
        """The work of the op in the fastest kernel that supports the signature; None if the op is emulated, or a view op."""
        rule = rule_of(op)
        if isinstance(rule, View):
            return None
        kernels, formats = self._kernels_of(op), formats_of(op, signature)
        is_layout_agnostic = rule is not None and rule.is_layout_agnostic(op, signature)
        rows: list[BoundKernel | None] = [row for row in kernels.rows if row.supports(formats, is_layout_agnostic)]
        if not kernels.rows and is_layout_agnostic:
            rows = [None]
        found = (self._work(op, kernels, row, formats) for row in rows)
        return min(found, key=lambda each: each.seconds, default=None)

    def _work(self, op: Op, kernels: Kernels, row: BoundKernel | None, formats: Formats) -> Work:
        """The work of an op in a kernel; without a row, at the rate of the vector unit."""
        memory, overhead, is_aligned = self.spec.memory, self.spec.launch.overhead, True
        operations, nbytes, reached = kernels.flops, operand_bytes(op, formats), memory.kernel_efficiency
        if row is None:
            rate = self.spec.rate("vector", dtype_of(op))
        else:
            kernel, is_aligned = row.kernel, row.is_aligned(formats)
            operations *= row.padding(formats)
            unaligned = kernel.unaligned_efficiency
            efficiency = kernel.efficiency if unaligned is None or is_aligned else unaligned
            rate = self.spec.rate(kernel.unit, row.dtype) * efficiency.value
            reached = kernel.bandwidth_efficiency or reached
            overhead = kernel.overhead or overhead
        traffic = nbytes / (memory.bandwidth.value * reached.value)
        spec = None if row is None else row.kernel
        return Work(spec, formats, operations, nbytes, is_aligned, operations / rate, traffic, overhead.value)

    def _run(self, op: Op, kernels: Kernels, row: BoundKernel | None, formats: Formats) -> float:
        """Seconds of a kernel on operands in formats that it supports."""
        seconds = self._work(op, kernels, row, formats).seconds
        return seconds if self._measured is None else self._measured.kernel(op, formats, seconds)


def canonical(op: Op) -> dict[Slot, Format]:
    """The canonical format of every operand whose rank is known."""
    ranks = {slot: value.rank for slot in op.slots() if (value := op.operand(slot)) is not None}
    return {slot: Format.canonical(rank) for slot, rank in ranks.items() if rank is not None}


def formats_of(op: Op, signature: Signature) -> dict[Slot, Format]:
    """The formats of a signature, canonical for operands without one."""
    given = ((slot, signature[slot]) for slot in op.slots())
    return canonical(op) | {slot: storage.format for slot, storage in given if storage is not None}


def dtype_of(op: Op) -> DType:
    """The element type of the first operand that is a tensor; float32 if there is none."""
    found = (value.dtype for value in op.values if value.dtype is not None)
    return next(found, DType.FLOAT32)


def operand_bytes(op: Op, formats: Formats) -> float:
    """Bytes that the op reads and writes, padding included."""
    total = 0.0
    for slot, format in formats.items():
        value = op.operand(slot)
        if value is not None and isinstance(value.type, TensorType):
            total += physical_bytes(value.type, format)
    return total
