"""Prices of a target in an environment: the runtime, its fusions and algorithms, and the sizes of symbolic dimensions.

    target     a kernel that supports the signature, or an emulation                          the cost model
    fusions    ops that are part of blocked convolutions cost a share of their time           fused_tensors
    default    a canonical op costs at least the blocked kernel that the runtime runs         is_default_kernel
    inner      a canonical op costs at most the fastest kernel with conversions around it     converts_in_kernels
    standard   other signatures are canonical ops between Transposes                          standard
    sizes      the mean over the sizes                                                        sizes
    epilogues  ops in the kernel before them cost the reads of their other operands           epilogues

Each line takes its prices from the line above it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from layoutopt.cost.model import (
    INNER_CONVERSION_FACTOR,
    CostModel,
    distinct,
    for_targets,
    targets_of,
)
from layoutopt.formats import Format
from layoutopt.ir.sizes import NO_SIZES, Sizes, is_symbolic
from layoutopt.ir.types import DType, Op, Signature, Slot, Storage, Value
from layoutopt.ops import (
    OperandFormats,
    View,
    X,
    canonical_signature,
    estimated_extent,
    estimated_volume,
    is_canonical,
    rule_of,
)

Absorbed: TypeAlias = frozenset[tuple[str, DType]]
"""The (op type, element type) pairs whose operands a runtime can read with their last two axes exchanged, at no cost."""

Epilogues: TypeAlias = Mapping[Op, float]
"""The ops that a runtime computes in the kernel before them, each with the remaining fraction of its time."""

_ABSORBED = 0.25
"""The price of an absorbed Transpose, as a fraction of one that runs: in another runtime, or next to other ops, it may run."""

BLOCKS = (8, 16)
"""The channels of a block of onnxruntime's convolutions, without and with AVX-512. An innermost block of another size may be
that of an attention head."""

INNER_KERNEL_FACTOR = 1.001
"""The price factor of a kernel in a format that the library chooses.

It exceeds 1 so that a plan that declares the format is preferred where only constants would be converted, at no cost.
"""

_CACHE_LINE = 64
"""Bytes that a processor reads for any element of them."""


@dataclass(eq=False)
class Prices:
    """The prices of a cost model in an environment; by default those of the model itself.

    Attributes:
        model: the cost model.
        fused_tensors: the tensors, by name, of ops that become part of a blocked convolution, with the share of the time of the
            op that remains in blocked formats.
        is_default_kernel: whether onnxruntime runs a canonical op as the blocked kernel with a signature, between two reorders.
            If the op in canonical format was measured as faster than that kernel alone, the difference is noise, and the
            planner must not choose the canonical format for it: there the convolution has neither a fused residual nor
            Winograd's algorithm.
        converts_in_kernels: whether a library that has a kernel for the canonical format, but a faster one for another format,
            converts the operands to that format, and the result back, where that is faster.
        standard: the dialect of a runtime that has only kernels for canonical formats, and chooses the formats inside of its
            kernels; empty for other runtimes.
        absorbed: the Transposes that cost nothing in a standard runtime.
        absorbed_tensors: the results of Transposes that the runtime computes in a layer around them, and the format, before the
            Transpose, in which it reads each.
        sizes: the points of symbolic dimensions at which ops are priced; without any, ops have symbolic extents.
        epilogues: the ops that the runtime computes in the kernel before them, with the remaining fractions of their times.
    """

    model: CostModel
    fused_tensors: Mapping[str, float] = field(default_factory=dict)
    is_default_kernel: Callable[[Op, Signature], bool] | None = None
    converts_in_kernels: bool = False
    standard: str = ""
    absorbed: Absorbed = frozenset()
    absorbed_tensors: Mapping[str, Format] = field(default_factory=dict)
    sizes: Sizes = NO_SIZES
    epilogues: Epilogues = field(default_factory=dict)
    _ops_at_sizes: dict[Op, tuple[tuple[object, ...], list[Op]]] = field(default_factory=dict, init=False)
    _default_seconds: dict[Op, float] = field(default_factory=dict, init=False)

    @property
    def name(self) -> str:
        """The name of the target."""
        return self.model.name

    @property
    def dialect(self) -> str:
        """The default output dialect for this target."""
        return self.standard or self.model.dialect

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """The formats that kernels require at any of the sizes, if they fit the symbolic shape.

        None for standard operators: canonical formats, and those of neighbours, are candidates anyway.
        """
        if self.standard:
            return ()
        at_sizes = self._at_sizes(op) or [op]
        found = distinct(formats for each in at_sizes for formats in self.model.preferred_formats(each))
        return [formats for formats in found if _fits(op, formats)]

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature, the mean over the sizes.

        An op of an epilogue that is emulated under its signature has its full price, since it is no epilogue then. A
        conversion between the kernel and the op is not noticed: it could as well be behind the op.
        """
        at_sizes = self._at_sizes(op) or [op]
        seconds = sum(self._seconds(each, signature) for each in at_sizes) / len(at_sizes)
        rule = rule_of(op) if op in self.epilogues else None
        if rule is None or not rule.is_layout_agnostic(op, signature):
            return seconds
        return seconds * self.epilogues[op]

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """Estimated seconds of a conversion, the mean over the sizes; 0 if no byte moves at any size.

        If no byte moves only at a size at which an extent is 1, the written model copies them all the same, so that size is
        priced with an extent of 2.
        """
        sizes = self.sizes
        if not any(sizes.points) or value.shape is None or not is_symbolic(value.shape):
            return self.model.conversion_seconds(value, src, dst)
        moves = not src.format.same_bytes(dst.format, value.shape)
        prices = [self.model.conversion_seconds(each, src, dst) for each in sizes.specialize_value(value)]
        if moves and not all(prices):
            larger = [self.model.conversion_seconds(each, src, dst) for each in sizes.specialize_value(value, least=2)]
            prices = [price or other for price, other in zip(prices, larger, strict=True)]
        return sum(prices) / len(prices)

    def _at_sizes(self, op: Op) -> list[Op] | None:
        """The op at every size; None if it has no symbolic extents."""
        values = op.values
        if not any(self.sizes.points) or not any(is_symbolic(value.shape or ()) for value in values):
            return None
        key = (op.inputs, op.outputs, *(value.type for value in values))
        known = self._ops_at_sizes.get(op)
        if known is None or known[0] != key:
            known = self._ops_at_sizes[op] = (key, self.sizes.specialize(op))
        return known[1]

    def _seconds(self, op: Op, signature: Signature) -> float:
        """Seconds of an op at one size, without epilogues."""
        if not self.standard or isinstance(rule_of(op), View):
            return self._seconds_in_kernels(op, signature)
        inner = self._seconds_in_kernels(op, canonical_signature(op).placed(signature.device))
        moved = INNER_CONVERSION_FACTOR * self._standard_conversions(op, signature)
        return inner + self._short_reads(op, signature) + moved

    def _seconds_in_kernels(self, op: Op, signature: Signature) -> float:
        """Seconds in the kernel for the signature, or in one that the runtime chooses for a canonical op."""
        seconds, rule = self._seconds_if_fused(op, signature), rule_of(op)
        if rule is None or not is_canonical(signature):
            return seconds
        if self.is_default_kernel is not None:
            if op not in self._default_seconds:
                chosen = (each for each in self._signatures_of_kernels(op, "") if self.is_default_kernel(op, each))
                least = min((self._seconds_if_fused(op, each) for each in chosen), default=0.0)
                self._default_seconds[op] = INNER_KERNEL_FACTOR * least
            seconds = max(seconds, self._default_seconds[op])
        if self.converts_in_kernels and not isinstance(rule, View):
            kernels = self._signatures_of_kernels(op, signature.device)
            found = (self._kernel_with_conversions(op, each) for each in kernels)
            seconds = min([seconds, *found])
        return seconds

    def _signatures_of_kernels(self, op: Op, device: str) -> Iterator[Signature]:
        rule = rule_of(op)
        assert rule is not None
        found = (rule.signature(op, dict(formats)) for formats in self.model.preferred_formats(op))
        return (each.placed(device) for each in found if isinstance(each, Signature))

    def _seconds_if_fused(self, op: Op, signature: Signature) -> float:
        """Seconds of the kernel for the signature, or the remaining share if a blocked convolution computes the op."""
        y, storage = next(zip(op.outputs, signature.outputs, strict=True), (None, None))
        share = 1.0
        if y is not None and storage is not None and any(part.block in BLOCKS for part in storage.format.parts[-1:]):
            same = (
                each is None or value is None or value.shape != y.shape or each.format == storage.format
                for value, each in zip(op.inputs, signature.inputs, strict=True)
            )
            share = self.fused_tensors.get(y.tensor, 1.0) if all(same) else 1.0
        return share * self.model.kernel_seconds(op, signature) if share else 0.0

    def _kernel_with_conversions(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the kernel with the signature, and of the conversions from and to canonical formats."""
        conversions = sum(
            self.model.conversion_seconds(value, *((canonical, storage) if slot.side == "in" else (storage, canonical)))
            for slot, value, storage, canonical in _converted(op, signature)
        )
        return INNER_KERNEL_FACTOR * self._seconds_if_fused(op, signature) + INNER_CONVERSION_FACTOR * conversions

    def _standard_conversions(self, op: Op, signature: Signature) -> float:
        """Seconds of the conversions between the formats of the operands and the canonical ones."""
        rule = rule_of(op)
        if is_canonical(signature) or (rule is not None and rule.is_layout_agnostic(op, signature)):
            return 0.0
        return sum(
            self.model.conversion_seconds(value, storage, canonical)
            * (_ABSORBED if self._is_absorbed(op, slot, value, storage.format) else 1.0)
            for slot, value, storage, canonical in _converted(op, signature)
        )

    def _is_absorbed(self, op: Op, slot: Slot, value: Value, format: Format) -> bool:
        """Whether the runtime reads the operand as it is stored."""
        if slot.side == "in" and self.absorbed_tensors.get(value.tensor) == format:
            return True
        if slot.side == "out" or (op.kind, value.dtype) not in self.absorbed or format.rank < 2:
            return False
        *batch, rows, columns = range(format.rank)
        return format == Format.plain((*batch, columns, rows))

    def _short_reads(self, op: Op, signature: Signature) -> float:
        """Seconds of a Gather of slices that the format cuts into pieces below a cache line: those of moving the lines read."""
        found = gathered_pieces(op, signature)
        if found is None:
            return 0.0
        x, storage, indices = op.x, signature[X], op.inputs[1]
        assert storage is not None and indices is not None
        assert x.dtype is not None
        piece, whole = (elements * x.dtype.bits // 8 for elements in found)
        if piece >= min(whole, _CACHE_LINE):
            return 0.0
        extent = estimated_extent(x.dims[op.integer("axis")])
        lines = estimated_volume(indices.shape or ()) * _CACHE_LINE / (piece * extent)
        return min(1.0, lines) * self.model.conversion_seconds(x, Storage.canonical(len(x.dims)), storage)


def _converted(op: Op, signature: Signature) -> Iterator[tuple[Slot, Value, Storage, Storage]]:
    """The slots and values of an op that are no constants, with their storages under a signature and the canonical ones."""
    for slot in op.slots():
        value, storage = op.operand(slot), signature[slot]
        if value is not None and storage is not None and not value.is_constant:
            yield slot, value, storage, Storage.canonical(storage.format.rank)


def _fits(op: Op, formats: OperandFormats) -> bool:
    operands = ((op.operand(slot), format) for slot, format in formats.items())
    return all(value is None or value.shape is None or format.fits(value.shape) for value, format in operands)


def gathered_pieces(op: Op, signature: Signature) -> list[int] | None:
    """The numbers of adjacent elements that a Gather reads for one index, in its format and in the canonical one.

    None for other ops, and if the shape of the operand is unknown.
    """
    if op.kind != "Gather":
        return None
    x, storage = op.x, signature[X]
    if not x.shape or storage is None:
        return None
    axis, found = op.integer("axis") % len(x.shape), []
    for format in (storage.format, Format.canonical(len(x.shape))):
        position = next(place for place, part in enumerate(format.parts) if part.axis == axis)
        found.append(estimated_volume(format.physical_shape(x.shape)[position + 1 :]))
    return found


def priced_with(model: CostModel, **conditions: Any) -> CostModel:
    """The prices of a cost model, also of one for several targets, in its environment with other conditions.

    Args:
        model: the cost model.
        conditions: fields of `Prices`.
    """
    return for_targets([_prices(each, conditions) for each in targets_of(model)])


def _prices(model: CostModel, conditions: Mapping[str, Any]) -> Prices:
    return replace(model, **conditions) if type(model) is Prices else Prices(model, **conditions)
