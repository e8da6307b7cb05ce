"""Prices of convolutions that a runtime blocks by itself."""

from layoutopt.cost.model import CostModel, CostModelWrapper
from layoutopt.ir.types import Op, Signature
from layoutopt.ops import canonical_signature, is_canonical, rule_of

BLOCKED_FAMILIES = ("convolution", "pooling", "global_pooling")
"""The families of layout rules whose ops onnxruntime runs in blocked formats by itself."""


class RuntimeBlocks(CostModelWrapper):
    """A cost model under which a kernel in ONNX order costs at least as much as the blocked one that the runtime runs for it.

    Measured alone, the two differ by two reorders, which may be less than the noise; but in ONNX order a convolution has
    neither fused residuals nor other algorithms.

    Args:
        model: the prices.
    """

    def __init__(self, model: CostModel) -> None:
        super().__init__(model)
        self._least: dict[Op, float] = {}

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature."""
        seconds = self._model.kernel_seconds(op, signature)
        rule = rule_of(op)
        if rule is None or rule.family not in BLOCKED_FAMILIES or not is_canonical(signature):
            return seconds
        if op not in self._least:
            self._least[op] = min(self._blocked(op), default=0.0)
        return max(seconds, self._least[op])

    def _blocked(self, op: Op) -> list[float]:
        rule = rule_of(op)
        assert rule is not None
        found = [rule.signature(op, dict(formats)) for formats in self._model.preferred_formats(op)]
        signatures = [each for each in found if isinstance(each, Signature) and each != canonical_signature(op)]
        return [self._model.kernel_seconds(op, each) for each in signatures]


__all__ = ["BLOCKED_FAMILIES", "RuntimeBlocks"]
