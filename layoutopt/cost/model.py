"""The interface of cost models: estimated times of ops and conversions on one target, in seconds.

Layout rules decide which signatures are legal; a cost model only prices them. Its prices are finite: a signature without a
kernel costs as much as its emulation, conversions included.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Protocol, runtime_checkable

from layoutopt.errors import TargetError
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops import OperandFormats, rule_of, storage_bytes
from layoutopt.record import Record

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


class PropagatedFormats(dict[Slot, Format]):
    """The formats of a kernel that is a candidate only where a neighbour has one of them."""


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


class Device(Record):
    """A device of a platform.

    Attributes:
        name: its name.
        model: the cost model of its target.
        memory: the bytes of constants that it has room for.
        ops: the op types and families of which it has kernels; None for all.
        lacks: those of which it has none.
    """

    name: str
    model: CostModel
    memory: float = inf
    ops: frozenset[str] | None = None
    lacks: frozenset[str] = frozenset()

    def has_kernel(self, op: Op) -> bool:
        """Whether the device can run an op."""
        rule = rule_of(op)
        names = {op.kind} if rule is None else {op.kind, rule.family}
        return (self.ops is None or not names.isdisjoint(self.ops)) and names.isdisjoint(self.lacks)


class DeviceLink(Record):
    """A link between devices.

    Attributes:
        devices: the names of the devices; each of them is linked with each other one, in both directions.
        bandwidth: bytes per second.
        latency: seconds of a transfer of no bytes.
        converts: whether a transfer changes the format of a tensor at no further cost.
    """

    devices: tuple[str, ...]
    bandwidth: float
    latency: float = 0.0
    converts: bool = False

    def seconds(self, nbytes: float) -> float:
        """Estimated seconds of a transfer."""
        return self.latency + nbytes / self.bandwidth


class Platform:
    """Devices that run one model together: a kernel has the price of the device of its signature.

    Args:
        name: the name of the platform.
        devices: the devices, the host first, which has the inputs and outputs of the model and runs control flow.
        links: the links; of two devices the first one with both counts.
        dialect: the default output dialect.
    """

    def __init__(
        self, name: str, devices: Sequence[Device], links: Sequence[DeviceLink] = (), dialect: str = "functions"
    ) -> None:
        self.name, self.dialect = name, dialect
        self.devices, self.links = tuple(devices), tuple(links)
        self.models = {each.name: each.model for each in devices}

    def link(self, *devices: str) -> DeviceLink | None:
        """The link between two devices."""
        return next((each for each in self.links if {*devices} <= {*each.devices}), None)

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """The formats that the kernels of any device require."""
        return distinct(formats for each in self.devices for formats in each.model.preferred_formats(op))

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds on the device of the signature; on the fastest one if it has none."""
        models = [self.models[signature.device]] if signature.device else self.models.values()
        return min(model.kernel_seconds(op, signature) for model in models)

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """Estimated seconds of a conversion, the transfer between devices included."""
        return self.conversion(value, src, dst)[0]

    def conversion(self, value: Value, src: Storage, dst: Storage) -> tuple[float, str]:
        """Estimated seconds of a conversion, and the device that changes the format: before or after the transfer."""
        if src.is_on(dst.device):
            device = dst.device or src.device
            models = {device: self.models[device]} if device else self.models
            return min((each.conversion_seconds(value, src, dst), name) for name, each in models.items())
        link = self.link(src.device, dst.device)
        assert link is not None, (src, dst)
        before, after = dst.placed(src.device), src.placed(dst.device)
        first, last = (link.seconds(storage_bytes(value, each)) for each in (before, after))
        if link.converts:
            return max(first, last), dst.device
        return min(
            (last + self.models[dst.device].conversion_seconds(value, after, dst), dst.device),
            (first + self.models[src.device].conversion_seconds(value, src, before), src.device),
            key=lambda each: each[0],
        )


def targets_of(model: CostModel) -> tuple[CostModel, ...]:
    """The cost model of each target."""
    return model.models if isinstance(model, MultiTargetCostModel) else (model,)


def for_targets(models: Sequence[CostModel]) -> CostModel:
    """One cost model for one or several targets.

    Raises:
        TargetError: one of several is a platform.
    """
    if len(models) > 1 and (platform := next((each for each in models if isinstance(each, Platform)), None)):
        raise TargetError("a platform is planned for alone", where=platform.name, hint="name one target")
    return models[0] if len(models) == 1 else MultiTargetCostModel(models)
