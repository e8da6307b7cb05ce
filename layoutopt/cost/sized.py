"""Prices of ops with symbolic extents: the mean over sizes of the symbolic dimensions."""

from collections.abc import Sequence

from layoutopt.cost.model import CostModel, CostModelWrapper, distinct, emulation_conversions
from layoutopt.cost.multi_target import MultiTargetCostModel
from layoutopt.ir.sizes import Sizes, is_symbolic
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats


class SizedCostModel(CostModelWrapper):
    """A cost model that prices ops with symbolic extents as the mean of their prices at given sizes."""

    def __init__(self, model: CostModel, sizes: Sizes) -> None:
        """Price with `model` at the points of `sizes`; without any size, ops are priced with symbolic extents."""
        super().__init__(model)
        self._sizes = sizes
        self._has_no_sizes = not any(sizes.points)
        self._ops: dict[Op, tuple[tuple[object, ...], list[Op]]] = {}

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """The formats that kernels require at any of the sizes, if they fit the symbolic shape."""
        specialized = self._specialized(op)
        if specialized is None:
            return super().preferred_formats(op)
        found = distinct(formats for each in specialized for formats in self._model.preferred_formats(each))
        return [formats for formats in found if _fits(op, formats)]

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature, the mean over the sizes."""
        specialized = self._specialized(op)
        if specialized is None:
            return self._model.kernel_seconds(op, signature)
        return sum(self._model.kernel_seconds(each, signature) for each in specialized) / len(specialized)

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """Estimated seconds of a conversion, the mean over the sizes; 0 if no byte moves at any size.

        If no byte moves only at a size at which an extent is 1, the written model copies them all the same, so that size is
        priced with an extent of 2.
        """
        if self._has_no_sizes or value.shape is None or not is_symbolic(value.shape):
            return self._model.conversion_seconds(value, src, dst)
        moves = not src.format.same_bytes(dst.format, value.shape)
        prices = [self._model.conversion_seconds(each, src, dst) for each in self._sizes.specialize_value(value)]
        if moves and not all(prices):
            larger = [
                self._model.conversion_seconds(each, src, dst) for each in self._sizes.specialize_value(value, least=2)
            ]
            prices = [price or other for price, other in zip(prices, larger, strict=True)]
        return sum(prices) / len(prices)

    def emulation_conversions(self, op: Op, signature: Signature) -> int:
        """The largest number of operands that are converted within the op at any of the sizes."""
        return max(emulation_conversions(self._model, each, signature) for each in self._specialized(op) or [op])

    def _specialized(self, op: Op) -> list[Op] | None:
        """The op at every size; None if it has no symbolic extents."""
        values = [value for value in (*op.inputs, *op.outputs) if value is not None]
        if self._has_no_sizes or not any(is_symbolic(value.shape or ()) for value in values):
            return None
        key = (op.inputs, op.outputs, *(value.type for value in values))
        known = self._ops.get(op)
        if known is None or known[0] != key:
            known = self._ops[op] = (key, self._sizes.specialize(op))
        return known[1]


def _fits(op: Op, formats: OperandFormats) -> bool:
    operands = ((op.operand(slot), format) for slot, format in formats.items())
    return all(value is None or value.shape is None or format.fits(value.shape) for value, format in operands)


def sized(model: CostModel, sizes: Sizes) -> CostModel:
    """The cost model with prices at the given sizes, also for several targets."""
    if isinstance(model, MultiTargetCostModel):
        return MultiTargetCostModel([SizedCostModel(each, sizes) for each in model.models])
    return SizedCostModel(model, sizes)
