"""Prices of ops whose extents are symbolic: what they are at some sizes."""

from collections.abc import Sequence

from layoutopt.cost.model import CostModel, Emulating
from layoutopt.cost.several import Several
from layoutopt.ir.sizes import Sizes, is_symbolic
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import Known


class SizedCostModel:
    """A cost model that is asked about tensors with numbers for extents only: at some sizes, and the mean is the price."""

    def __init__(self, model: CostModel, sizes: Sizes) -> None:
        """Ask `model` at the points of `sizes`; about tensors as they are where there are none."""
        self._model = model
        self._sizes = sizes
        self._is_idle = not any(sizes.points)
        self._ops: dict[Op, tuple[tuple[object, ...], list[Op]]] = {}

    @property
    def name(self) -> str:
        """The target's name."""
        return self._model.name

    @property
    def dialect(self) -> str:
        """The dialect that models for this target are written in unless a caller asks for another."""
        return self._model.dialect

    def kernels(self, op: Op) -> Sequence[Known]:
        """What is wanted at any of the sizes and fits all."""
        bound = self._bound(op)
        if bound is None:
            return self._model.kernels(op)
        wishes = {tuple(wish.items()): wish for each in bound for wish in self._model.kernels(each)}
        return [wish for wish in wishes.values() if _fits(op, wish)]

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """How long the op takes under a signature."""
        bound = self._bound(op)
        if bound is None:
            return self._model.kernel_seconds(op, signature)
        return sum(self._model.kernel_seconds(each, signature) for each in bound) / len(bound)

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """How long it takes to bring a tensor from one storage into another; 0 where no byte moves at any size.

        Where none moves at one size only, because an extent is 1, bytes are copied all the same: then it is the price for 2.
        """
        if self._is_idle or value.shape is None or not is_symbolic(value.shape):
            return self._model.conversion_seconds(value, src, dst)
        moves = not src.format.same_bytes(dst.format, value.shape)
        prices = [self._model.conversion_seconds(each, src, dst) for each in self._sizes.bound_value(value)]
        if moves and not all(prices):
            larger = [
                self._model.conversion_seconds(each, src, dst) for each in self._sizes.bound_value(value, least=2)
            ]
            prices = [price or other for price, other in zip(prices, larger, strict=True)]
        return sum(prices) / len(prices)

    def hidden_conversions(self, op: Op, signature: Signature) -> int:
        """How many operands are converted within the op, at the size where there are most; none that the model tells of."""
        if not isinstance(self._model, Emulating):
            return 0
        return max(self._model.hidden_conversions(each, signature) for each in self._bound(op) or [op])

    def _bound(self, op: Op) -> list[Op] | None:
        """The op at every point; None if it has no symbolic extents."""
        values = [value for value in (*op.inputs, *op.outputs) if value is not None]
        if self._is_idle or not any(is_symbolic(value.shape or ()) for value in values):
            return None
        key = (op.inputs, op.outputs, *(value.type for value in values))
        known = self._ops.get(op)
        if known is None or known[0] != key:
            known = self._ops[op] = (key, self._sizes.bound(op))
        return known[1]


def _fits(op: Op, wish: Known) -> bool:
    shapes = ((op.operand(slot), format) for slot, format in wish.items())
    return all(value is None or value.shape is None or format.fits(value.shape) for value, format in shapes)


def sized(model: CostModel, sizes: Sizes) -> CostModel:
    """A cost model, or several, asked at some sizes."""
    if isinstance(model, Several):
        return Several([SizedCostModel(each, sizes) for each in model.models])
    return SizedCostModel(model, sizes)
