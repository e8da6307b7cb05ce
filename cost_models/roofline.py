"""The roofline: a kernel takes as long as its arithmetic or its memory traffic, whichever is longer.

    kernel      overhead + max(flops * padded/logical / (rate * efficiency), bytes / (bandwidth * efficiency))
                overhead + the sum of the two, where a row says that they do not overlap
    conversion  overhead + (bytes read + bytes written) / (bandwidth * cast efficiency);  0 if no byte moves
    emulation   conversions of the inputs + a kernel that exists + conversions of the outputs

in seconds. The bandwidth is that of the fastest memory that all the bytes fit into. Bytes are physical: lanes are read and
written, padded channels computed. Symbolic extents count as 1. The model is that of Williams, Waterman and Patterson, CACM
52(4), 2009.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from layoutopt.cost_models.conversions import (
    is_channels_last,
    is_scattered,
    is_unblocked,
    physical_bytes,
    plain_beside,
    shortest_run,
)
from layoutopt.cost_models.kernels import BoundKernel, Formats, bind
from layoutopt.cost_models.spec import Kernel, TargetSpec
from layoutopt.formats import Format
from layoutopt.ir.types import DType, Op, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops import Known, elements, rule_of

Structure: TypeAlias = tuple[Any, ...]

_HIDDEN = 1.01  # what a conversion inside an emulated op costs, in casts
_SMALL = 64  # constants of up to so many integers (axes, pads, sizes) are part of an op's structure


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel has to do, and by which row; the price follows from the row's numbers.

    Attributes:
        kernel: the row; None for an op that no row speaks of.
        dtype: the element type that it works on.
        operations: arithmetic, lanes included.
        nbytes: read and written, lanes included.
        is_aligned: whether extents suit the kernel.
    """

    kernel: Kernel | None
    dtype: DType
    operations: float
    nbytes: float
    is_aligned: bool = True


@dataclass(frozen=True, slots=True)
class Terms:
    """What a roofline is made of, in seconds.

    Attributes:
        arithmetic: at the kernel's part of the peak rate.
        traffic: at its part of the memory bandwidth.
        overhead: however small the op is.
        overlaps: whether arithmetic and traffic go on at the same time.
    """

    arithmetic: float
    traffic: float
    overhead: float
    overlaps: bool

    @property
    def seconds(self) -> float:
        """The time in all."""
        both = max(self.arithmetic, self.traffic) if self.overlaps else self.arithmetic + self.traffic
        return self.overhead + both


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an op would cost in one kernel.

    Attributes:
        formats: what the kernel reads and writes; canonical where it does not say.
        work: what the op is to it.
        terms: how long that takes.
        conversions: seconds to bring operands into these formats, and results out of them, all being canonical outside.
    """

    formats: Formats
    work: Work
    terms: Terms
    conversions: float


class RooflineModel:
    """A cost model of the numbers in a target file. It remembers prices by structure, never by object."""

    def __init__(self, spec: TargetSpec) -> None:
        """Price with the numbers of `spec`."""
        self.spec = spec
        self._profiles: dict[Structure, _Profile] = {}
        self._conversions: dict[tuple[Any, ...], float] = {}

    @property
    def name(self) -> str:
        """The target's name."""
        return self.spec.name

    @property
    def dialect(self) -> str:
        """The dialect that models for this target are written in unless a caller asks for another."""
        return self.spec.dialect

    def __repr__(self) -> str:
        """The target's name."""
        return f"RooflineModel({self.name})"

    def kernels(self, op: Op) -> Sequence[Known]:
        """The formats that the target's kernels for this op want, the fastest kernel first."""
        profile = self._profile(op)
        if profile.wishes is None:
            profile.wishes = self._wishes(op, profile)
        return profile.wishes

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """How long the op takes under a signature: in a kernel that has it, or emulated if none does."""
        profile = self._profile(op)
        storages = (*signature.inputs, *signature.outputs)
        formats = tuple([None if storage is None else storage.format for storage in storages])
        seconds = profile.prices.get(formats)
        if seconds is None:
            seconds = profile.prices[formats] = self._price(op, signature, profile)
        return seconds

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """How long it takes to bring a tensor from one storage into another; 0 where no byte moves."""
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            return 0.0 if src.format == dst.format else self.spec.launch.overhead.value
        key = (value.type, src, dst)
        seconds = self._conversions.get(key)
        if seconds is None:
            seconds = self._conversions[key] = self._convert(value.type, src, dst)
        return seconds

    def _convert(self, type: TensorType, src: Storage, dst: Storage) -> float:
        """One conversion; where its elements move one by one, up to three if they are cheaper, by way of plain orders."""
        assert type.shape is not None
        direct = self._convert_once(type, src, dst)
        if self.spec.memory.scattered_cast_efficiency is None or not is_scattered(src.format, dst.format, type.shape):
            return direct
        between = [Storage(each) for each in plain_beside(src.format, dst.format)]
        steps = (((src, first), (first, last), (last, dst)) for first, last in product(between, repeat=2))
        return min(direct, *(sum(self._convert_once(type, *step) for step in way) for way in steps))

    def _convert_once(self, type: TensorType, src: Storage, dst: Storage) -> float:
        assert type.shape is not None
        if src.satisfies(dst, type.shape):
            return 0.0
        memory, launch = self.spec.memory, self.spec.launch
        if memory.short_run is not None:
            is_plain = shortest_run(src.format, dst.format, type.shape) > memory.short_run.value
        else:
            is_plain = all(is_unblocked(storage.format.key(type.shape), type.shape) for storage in (src, dst))
        if is_plain:
            efficiency = memory.plain_cast_efficiency
        elif memory.scattered_cast_efficiency is not None and is_scattered(src.format, dst.format, type.shape):
            efficiency = memory.scattered_cast_efficiency
        elif memory.channels_last_cast_efficiency is not None and is_channels_last(src.format, dst.format, type.shape):
            efficiency = memory.channels_last_cast_efficiency
        else:
            efficiency = memory.blocked_cast_efficiency
        moved = sum(physical_bytes(type, storage.format) for storage in (src, dst))
        overhead = launch.cast_overhead or launch.overhead
        return overhead.value + moved / (memory.serving(moved) * efficiency.value)

    def _profile(self, op: Op) -> "_Profile":
        key = structure(op)
        profile = self._profiles.get(key)
        if profile is None:
            rule = rule_of(op)
            rows = bind(self.spec, op, rule) if rule is not None and not rule.is_rename else []
            known = all(value.rank is not None for value in (*op.inputs, *op.outputs) if value is not None)
            flops = rule.flops(op) if rule is not None and known else 0.0
            profile = self._profiles[key] = _Profile(rows, flops)
        return profile

    def _wishes(self, op: Op, profile: "_Profile") -> list[Known]:
        plain = canonical(op)
        ranked = sorted(profile.rows, key=lambda row: self._run(op, profile, row, {**plain, **row.formats}))
        wishes: dict[tuple[Any, ...], Known] = {}
        for row in ranked:
            if row.kernel.direct:
                continue  # it takes what the neighbours have
            wishes.setdefault(tuple(row.formats.items()), row.formats)
        return list(wishes.values())

    def _price(self, op: Op, signature: Signature, profile: "_Profile") -> float:
        rule = rule_of(op)
        if rule is not None and rule.is_rename:
            return 0.0
        formats = formats_of(op, signature)
        native = self._native(op, signature, profile, formats)
        if native:
            return min(map(self.seconds, native))
        return min(self._emulate(op, profile, formats, *way) for way in _ways(op, profile))

    def hidden_conversions(self, op: Op, signature: Signature) -> int:
        """How many operands are converted within the op under a signature that no kernel has, constants aside."""
        rule = rule_of(op)
        if rule is not None and rule.is_rename:
            return 0
        profile, formats = self._profile(op), formats_of(op, signature)
        if self._native(op, signature, profile, formats):
            return 0
        return min(len(self._converted(op, formats, inner)) for _, inner in _ways(op, profile))

    def _emulate(self, op: Op, profile: "_Profile", formats: Formats, row: BoundKernel | None, inner: Formats) -> float:
        """Convert to what a kernel takes, run it, convert back; constants were converted ahead of time.

        Hidden conversions are a little dearer than casts between ops, which can be shared and seen.
        """
        return self._run(op, profile, row, inner) + _HIDDEN * sum(self._converted(op, formats, inner))

    def _converted(self, op: Op, formats: Formats, inner: Formats) -> list[float]:
        """What the conversions take between the formats of the operands and those of a kernel inside, of those that move."""
        operands = ((slot, format, op.operand(slot)) for slot, format in formats.items())
        seconds = [
            self.conversion_seconds(value, Storage(format), Storage(inner[slot]))
            for slot, format, value in operands
            if value is not None and not value.is_constant
        ]
        return [each for each in seconds if each]

    def _native(self, op: Op, signature: Signature, profile: "_Profile", formats: Formats) -> list[Work]:
        """What the op is to each kernel that takes it as it is."""
        rule = rule_of(op)
        is_direct = rule is not None and rule.is_direct(op, signature)
        native = [_work(op, profile, row, formats) for row in profile.rows if row.takes(formats, is_direct)]
        return native if native or profile.rows or not is_direct else [_work(op, profile, None, formats)]

    def work(self, op: Op, signature: Signature) -> Work | None:
        """What the op is to the fastest kernel that takes it under a signature; None where it is emulated, or a rename."""
        rule = rule_of(op)
        if rule is not None and rule.is_rename:
            return None
        native = self._native(op, signature, self._profile(op), formats_of(op, signature))
        return min(native, key=self.seconds, default=None)

    def seconds(self, work: Work) -> float:
        """The roofline."""
        return self.terms(work).seconds

    def terms(self, work: Work) -> Terms:
        """What the roofline is made of."""
        memory, launch, kernel = self.spec.memory, self.spec.launch, work.kernel
        if kernel is None:
            rate, reached, overhead = self.spec.rate("vector", work.dtype), memory.kernel_efficiency, launch.overhead
        else:
            odd = kernel.unaligned_efficiency
            efficiency = kernel.efficiency if odd is None or work.is_aligned else odd
            rate = self.spec.rate(kernel.unit, work.dtype) * efficiency.value
            reached = kernel.bandwidth_efficiency or memory.kernel_efficiency
            overhead = kernel.overhead or launch.overhead
        traffic = work.nbytes / (memory.serving(work.nbytes) * reached.value)
        return Terms(work.operations / rate, traffic, overhead.value, kernel is None or kernel.overlaps)

    def estimates(self, op: Op) -> list[Estimate]:
        """What the op would cost in every kernel that the target has for it, the cheapest from canonical operands first."""
        profile, plain = self._profile(op), canonical(op)
        found = []
        for row, formats in _ways(op, profile):
            work = _work(op, profile, row, formats)
            conversions = sum(self._converted(op, plain, formats))
            found.append(Estimate(formats, work, self.terms(work), conversions))
        return sorted(found, key=lambda each: each.terms.seconds + each.conversions)

    def _run(self, op: Op, profile: "_Profile", row: BoundKernel | None, formats: Formats) -> float:
        """A kernel on operands in formats that it takes; without a row, the vector unit or memory."""
        return self.seconds(_work(op, profile, row, formats))


def _ways(op: Op, profile: "_Profile") -> list[tuple[BoundKernel | None, Formats]]:
    """The kernels that an op may be emulated with, and what they take."""
    plain = canonical(op)
    return [(row, {**plain, **row.formats}) for row in profile.rows] or [(None, plain)]


def _work(op: Op, profile: "_Profile", row: BoundKernel | None, formats: Formats) -> Work:
    nbytes = operand_bytes(op, formats)
    if row is None:
        return Work(None, dtype_of(op), profile.flops, nbytes)
    return Work(row.kernel, row.dtype, profile.flops * row.padding(formats), nbytes, row.aligned(formats))


class _Profile:
    """What is known of all ops of one structure."""

    __slots__ = ("flops", "prices", "rows", "wishes")

    def __init__(self, rows: list[BoundKernel], flops: float) -> None:
        """Start without prices."""
        self.rows = rows
        self.flops = flops
        self.wishes: list[Known] | None = None
        self.prices: dict[tuple[Format | None, ...], float] = {}


def structure(op: Op) -> Structure:
    """What a price depends on: kind, attributes, types, what is constant, small integer constants."""
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
    small = integers and value.shape is not None and elements(value.shape) <= _SMALL
    return (value.type, value.data.numpy().tobytes() if small else True)


def canonical(op: Op) -> dict[Slot, Format]:
    """The canonical format of every operand whose rank is known."""
    ranks = {slot: value.rank for slot in op.slots() if (value := op.operand(slot)) is not None}
    return {slot: Format.canonical(rank) for slot, rank in ranks.items() if rank is not None}


def formats_of(op: Op, signature: Signature) -> dict[Slot, Format]:
    """The formats of a signature, canonical where it has none."""
    given = ((slot, signature[slot]) for slot in op.slots())
    return canonical(op) | {slot: storage.format for slot, storage in given if storage is not None}


def dtype_of(op: Op) -> DType:
    """The element type of the first operand that is a tensor; float32 if there is none."""
    found = (value.dtype for value in (*op.inputs, *op.outputs) if value is not None and value.dtype is not None)
    return next(found, DType.FLOAT32)


def operand_bytes(op: Op, formats: Formats) -> float:
    """Bytes that the op reads and writes, lanes included."""
    total = 0.0
    for slot, format in formats.items():
        value = op.operand(slot)
        if value is not None and isinstance(value.type, TensorType):
            total += physical_bytes(value.type, format)
    return total


__all__ = ["Estimate", "RooflineModel", "Terms", "Work"]
