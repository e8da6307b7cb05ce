"""Prices of convolutions and poolings in canonical formats, which onnxruntime runs in blocked formats by itself."""

from layoutopt.cost.model import CostModel, CostModelWrapper
from layoutopt.ir.types import Op, Signature
from layoutopt.ops import canonical_signature, is_canonical, rule_of

BLOCKED_FAMILIES = ("convolution", "pooling", "global_pooling")
"""The families of layout rules whose ops onnxruntime runs in blocked formats by itself."""


class RuntimeBlocks(CostModelWrapper):
    """A cost model under which a canonical convolution or pooling costs at least as much as its fastest blocked kernel.

    onnxruntime runs the op in the canonical format as a blocked kernel between two reorders. If the measured time of the op in
    the canonical format is less than that of the blocked kernel alone, the difference is noise, and the planner must not choose
    the canonical format for it: there the convolution has neither a fused residual nor Winograd's algorithm.

    Args:
        model: the prices.
    """

    def __init__(self, model: CostModel) -> None:
        super().__init__(model)
        self._least: dict[Op, float] = {}

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature; at least those of the fastest blocked kernel if canonical."""
        seconds = self._model.kernel_seconds(op, signature)
        rule = rule_of(op)
        if rule is None or rule.family not in BLOCKED_FAMILIES or not is_canonical(signature):
            return seconds
        if op not in self._least:
            self._least[op] = min(self._blocked(op), default=0.0)
        return max(seconds, self._least[op])

    def _blocked(self, op: Op) -> list[float]:
        """The seconds of the kernels for the op in other formats than the canonical one."""
        rule = rule_of(op)
        assert rule is not None
        found = [rule.signature(op, dict(formats)) for formats in self._model.preferred_formats(op)]
        signatures = [each for each in found if isinstance(each, Signature) and each != canonical_signature(op)]
        return [self._model.kernel_seconds(op, each) for each in signatures]


__all__ = ["BLOCKED_FAMILIES", "RuntimeBlocks"]
