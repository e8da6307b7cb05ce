"""A cost model of several targets."""

from collections.abc import Sequence

from layoutopt.cost.model import CostModel, distinct, emulation_conversions
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats


class MultiTargetCostModel:
    """The kernels of all targets and the mean of their prices, from which the planner makes one plan for all of them."""

    def __init__(self, models: Sequence[CostModel]) -> None:
        """Combine two or more models."""
        self.models = tuple(models)

    @property
    def name(self) -> str:
        """The names of the targets, separated by commas."""
        return ",".join(model.name for model in self.models)

    @property
    def dialect(self) -> str:
        """The default dialect of all targets if they agree, otherwise `functions`, which runs everywhere."""
        dialects = {model.dialect for model in self.models}
        return dialects.pop() if len(dialects) == 1 else "functions"

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """The formats that the kernels of any target require."""
        return distinct(formats for model in self.models for formats in model.preferred_formats(op))

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """The mean over the targets."""
        return sum(model.kernel_seconds(op, signature) for model in self.models) / len(self.models)

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """The mean over the targets."""
        return sum(model.conversion_seconds(value, src, dst) for model in self.models) / len(self.models)

    def emulation_conversions(self, op: Op, signature: Signature) -> int:
        """The smallest number of operands that are converted within the op on any target."""
        return min(emulation_conversions(each, op, signature) for each in self.models)
