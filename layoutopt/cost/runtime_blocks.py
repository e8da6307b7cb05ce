"""Prices of convolutions and poolings in canonical formats, which onnxruntime runs in blocked formats by itself."""

from collections.abc import Callable

from layoutopt.cost.model import CostModel, CostModelWrapper
from layoutopt.ir.types import Op, Signature
from layoutopt.ops import is_canonical, rule_of


class RuntimeBlocks(CostModelWrapper):
    """A cost model under which a canonical op costs at least as much as the blocked kernel as which onnxruntime runs it.

    onnxruntime runs the op in the canonical format as a blocked kernel between two reorders. If the measured time of the op in
    the canonical format is less than that of the blocked kernel alone, the difference is noise, and the planner must not choose
    the canonical format for it: there the convolution has neither a fused residual nor Winograd's algorithm.

    Args:
        model: the prices.
        is_chosen: whether onnxruntime runs an op by itself under a signature.
    """

    def __init__(self, model: CostModel, is_chosen: Callable[[Op, Signature], bool]) -> None:
        super().__init__(model)
        self._is_chosen = is_chosen
        self._least: dict[Op, float] = {}

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature; at least those of the chosen blocked kernel if canonical."""
        seconds = self._model.kernel_seconds(op, signature)
        if rule_of(op) is None or not is_canonical(signature):
            return seconds
        if op not in self._least:
            self._least[op] = min(self._blocked(op), default=0.0)
        return max(seconds, self._least[op])

    def _blocked(self, op: Op) -> list[float]:
        """The seconds of the blocked kernels that onnxruntime chooses for the op."""
        rule = rule_of(op)
        assert rule is not None
        found = [rule.signature(op, dict(formats)) for formats in self._model.preferred_formats(op)]
        signatures = [each for each in found if isinstance(each, Signature) and self._is_chosen(op, each)]
        return [self._model.kernel_seconds(op, each) for each in signatures]


__all__ = ["RuntimeBlocks"]
