"""Prices of ops that a dialect fuses into blocked convolutions."""

from collections.abc import Mapping

from layoutopt.cost.model import CostModel, CostModelWrapper
from layoutopt.ir.types import Op, Signature


class FusedIntoConvolutions(CostModelWrapper):
    """A cost model under which ops that become part of a blocked convolution cost a share of their time in blocked formats.

    Args:
        model: the prices of all other ops and formats.
        fused_tensors: the tensors that these ops compute, by name, with the share of the time of the op that remains.
    """

    def __init__(self, model: CostModel, fused_tensors: Mapping[str, float]) -> None:
        super().__init__(model)
        self._fused_tensors = fused_tensors

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature, or the share of them that remains if it is fused."""
        y, storage = next(zip(op.outputs, signature.outputs, strict=True), (None, None))
        if y is None or storage is None or y.tensor not in self._fused_tensors or storage.format.is_plain:
            return self._model.kernel_seconds(op, signature)
        same = (
            each is None or value is None or value.shape != y.shape or each.format == storage.format
            for value, each in zip(op.inputs, signature.inputs, strict=True)
        )
        share = self._fused_tensors[y.tensor] if all(same) else 1.0
        return share * self._model.kernel_seconds(op, signature) if share else 0.0


__all__ = ["FusedIntoConvolutions"]
