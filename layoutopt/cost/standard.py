"""Prices of a target in a runtime of standard ONNX, whose kernels read operands in canonical format."""

from collections.abc import Sequence
from typing import TypeAlias

from layoutopt.cost.model import INNER_CONVERSION_FACTOR, CostModel, CostModelWrapper
from layoutopt.formats import Format, Shape
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

_ABSORBED = 0.25
"""The price of an absorbed Transpose, as a fraction of one that runs: one runtime absorbs it, another one runs it."""

_INDICES = Slot("in", 1)
_CACHE_LINE = 64
"""Bytes that a processor reads for any element of them."""


class StandardOperators(CostModelWrapper):
    """A cost model without the kernels for formats that standard ONNX cannot express.

    A layout-agnostic op has the same price in every format as in canonical format: the runtime chooses the formats inside
    of its kernels. Any other op is priced as the canonical operator between Transposes, as it is written.
    """

    def __init__(self, model: CostModel, dialect: str = "standard", absorbed: Absorbed = frozenset()) -> None:
        """Restrict a cost model to standard operators.

        Args:
            model: the cost model of the target.
            dialect: the dialect in which they are written.
            absorbed: the Transposes that cost nothing.
        """
        super().__init__(model)
        self._dialect = dialect
        self._absorbed = absorbed

    @property
    def dialect(self) -> str:
        """The dialect of standard operators."""
        return self._dialect

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """None. Canonical formats, and those of neighbours, are candidates anyway."""
        return ()

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the canonical op and of the conversions within it."""
        if isinstance(rule_of(op), View):
            return self._model.kernel_seconds(op, signature)
        inner = self._model.kernel_seconds(op, canonical_signature(op))
        run, absorbed = self._conversions(op, signature)
        moved = INNER_CONVERSION_FACTOR * (sum(run) + _ABSORBED * sum(absorbed))
        return inner + self._short_reads(op, signature) + moved

    def emulation_conversions(self, op: Op, signature: Signature) -> int:
        """The number of operands that are converted within the op, without constants."""
        if isinstance(rule_of(op), View):
            return 0
        return len(self._conversions(op, signature)[0])

    def _conversions(self, op: Op, signature: Signature) -> tuple[list[float], list[float]]:
        """Seconds of each conversion between an operand's format and the canonical one: those that run, and absorbed ones."""
        run: list[float] = []
        absorbed: list[float] = []
        rule = rule_of(op)
        if is_canonical(signature) or (rule is not None and rule.is_layout_agnostic(op, signature)):
            return run, absorbed
        for slot in op.slots():
            value, storage = op.operand(slot), signature[slot]
            if value is None or storage is None or value.is_constant:
                continue
            if price := self.conversion_seconds(value, storage, Storage(Format.canonical(storage.format.rank))):
                (absorbed if self._is_absorbed(op, slot, value, storage.format) else run).append(price)
        return run, absorbed

    def _short_reads(self, op: Op, signature: Signature) -> float:
        """Seconds of a Gather of slices that the format cuts into pieces below a cache line: those of moving the lines read."""
        if op.kind != "Gather":
            return 0.0
        x, indices, storage = op.operand(X), op.operand(_INDICES), signature[X]
        if x is None or x.dtype is None or x.shape is None or indices is None or storage is None:
            return 0.0
        axis, canonical = op.integer("axis") % len(x.shape), Storage(Format.canonical(len(x.shape)))
        piece, whole = (
            adjacent_elements(each.format, axis, x.shape) * x.dtype.bits // 8 for each in (storage, canonical)
        )
        if piece >= min(whole, _CACHE_LINE):
            return 0.0
        lines = estimated_volume(indices.shape or ()) * _CACHE_LINE / (piece * estimated_extent(x.shape[axis]))
        return min(1.0, lines) * self.conversion_seconds(x, canonical, storage)

    def _is_absorbed(self, op: Op, slot: Slot, value: Value, format: Format) -> bool:
        """Whether the runtime reads the operand as it is stored."""
        if slot.side == "out" or (op.kind, value.dtype) not in self._absorbed or format.rank < 2:
            return False
        *batch, rows, columns = range(format.rank)
        return format == Format.plain((*batch, columns, rows))


def adjacent_elements(format: Format, axis: int, shape: Shape) -> int:
    """The number of adjacent elements with one index of an axis."""
    position = next(place for place, part in enumerate(format.parts) if part.axis == axis)
    return estimated_volume(format.physical_shape(shape)[position + 1 :])


__all__ = ["Absorbed", "StandardOperators", "adjacent_elements"]
