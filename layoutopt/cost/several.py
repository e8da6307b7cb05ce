"""Several targets as one."""

from collections.abc import Sequence

from layoutopt.cost.model import CostModel, Emulating
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats


class Several:
    """The kernels of all, and the mean of their prices; the planner looks for one plan that is good on each."""

    def __init__(self, models: Sequence[CostModel]) -> None:
        """Ask all of `models`, two or more."""
        self.models = tuple(models)

    @property
    def name(self) -> str:
        """The names of the targets."""
        return ",".join(model.name for model in self.models)

    @property
    def dialect(self) -> str:
        """The one that all targets are written in, or else functions, which run everywhere."""
        dialects = {model.dialect for model in self.models}
        return dialects.pop() if len(dialects) == 1 else "functions"

    def kernels(self, op: Op) -> Sequence[OperandFormats]:
        """What the kernels of any target want."""
        wishes = {tuple(wish.items()): wish for model in self.models for wish in model.kernels(op)}
        return list(wishes.values())

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """The mean over the targets."""
        return sum(model.kernel_seconds(op, signature) for model in self.models) / len(self.models)

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """The mean over the targets."""
        return sum(model.conversion_seconds(value, src, dst) for model in self.models) / len(self.models)

    def hidden_conversions(self, op: Op, signature: Signature) -> int:
        """How many operands are converted within the op where there are fewest; none for targets that do not tell."""
        told = (each.hidden_conversions(op, signature) if isinstance(each, Emulating) else 0 for each in self.models)
        return min(told)
