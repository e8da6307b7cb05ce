"""The interface of cost models: estimated times of ops and conversions on one target, in seconds.

Layout rules decide which signatures are legal; a cost model only prices them. Its prices are finite: a signature without a
kernel costs as much as its emulation, conversions included.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops import OperandFormats

INNER_CONVERSION_FACTOR = 1.01
"""The price of a conversion inside an emulated op, as a multiple of one between ops, which several readers can share."""


@runtime_checkable
class CostModel(Protocol):
    """Prices ops and conversions on one target."""

    @property
    def name(self) -> str:
        """The name of the target, for example `gpu-hopper`."""

    @property
    def dialect(self) -> str:
        """The default output dialect for this target."""

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """The formats that the target's kernels for this op require, one mapping of operands to formats per kernel."""

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature."""

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """Estimated seconds of a conversion of a tensor between storages; 0 if no byte moves."""


def distinct(formats: Iterable[OperandFormats]) -> list[OperandFormats]:
    """The formats of several kernels without duplicates, in order."""
    return list({tuple(each.items()): each for each in formats}.values())


class MeasuredPrices(Protocol):
    """Times of kernels on one machine. A kernel that was not timed gets its estimate, perhaps corrected by similar kernels."""

    def kernel(self, op: Op, formats: Mapping[Slot, Format], estimate: float) -> float:
        """Seconds of the kernel for an op on operands in given formats.

        Args:
            op: the op.
            formats: the format of every operand of known rank.
            estimate: the cost model's own price, in seconds.
        """

    def conversion(self, type: TensorType, src: Format, dst: Format, estimate: float) -> float:
        """Seconds of a conversion that moves bytes.

        Args:
            type: of the tensor.
            src: its format.
            dst: the format of the result.
            estimate: the cost model's own price, in seconds.
        """


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


def targets_of(model: CostModel) -> tuple[CostModel, ...]:
    """The cost model of each target."""
    return model.models if isinstance(model, MultiTargetCostModel) else (model,)


def for_targets(models: Sequence[CostModel]) -> CostModel:
    """One cost model for one or several targets."""
    return models[0] if len(models) == 1 else MultiTargetCostModel(models)
