"""Prices of a runtime that converts layouts within its kernels."""

from layoutopt.cost.model import INNER_CONVERSION_FACTOR, CostModel, CostModelWrapper
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Storage
from layoutopt.ops import View, is_canonical, rule_of

_INNER_KERNEL_FACTOR = 1.001
"""The price factor of a kernel in a format that the library chooses.

It exceeds 1 so that a plan that declares the format is preferred where only constants would be converted, at no cost.
"""


class InnerConversions(CostModelWrapper):
    """A cost model under which an op in the canonical format takes the fastest kernel of the target, conversions included.

    A library that has a kernel for the canonical format, but a faster one for another format, converts the operands to that
    format, and the result back, where that is faster.

    Args:
        model: the prices, under which an op in the canonical format takes the kernel for that format if there is one.
    """

    def __init__(self, model: CostModel) -> None:
        super().__init__(model)

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature."""
        seconds, rule = self._model.kernel_seconds(op, signature), rule_of(op)
        if rule is None or isinstance(rule, View) or not is_canonical(signature):
            return seconds
        found = (rule.signature(op, dict(formats)) for formats in self._model.preferred_formats(op))
        return min(
            [seconds, *(self._kernel_with_conversions(op, each) for each in found if isinstance(each, Signature))]
        )

    def _kernel_with_conversions(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the kernel with the signature, and of the conversions from and to canonical formats."""
        conversions = 0.0
        for slot in op.slots():
            value, storage = op.operand(slot), signature[slot]
            if value is None or storage is None or value.is_constant:
                continue
            pair = (Storage(Format.canonical(storage.format.rank)), storage)
            conversions += self._model.conversion_seconds(value, *(pair if slot.side == "in" else reversed(pair)))
        return _INNER_KERNEL_FACTOR * self._model.kernel_seconds(op, signature) + INNER_CONVERSION_FACTOR * conversions


__all__ = ["InnerConversions"]
