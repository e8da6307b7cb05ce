"""Kernels of calibration as timed models, and invented times."""

from collections.abc import Iterable, Iterator
from hashlib import sha256

from layoutopt.calibrate.grid import kernel_cases
from layoutopt.calibrate.kernel_case import KernelCase
from layoutopt.cost_models.roofline import formats_of
from layoutopt.ir.graph import is_cast
from layoutopt.ir.types import TensorType
from layoutopt.kernel_times import Machine
from layoutopt.kernel_times.lowered_kernel import LoweredKernel
from layoutopt.kernel_times.reference_models import ReferenceKernel
from layoutopt.kernel_times.timed_kernels import TimedModel, TimingBudget
from layoutopt.runtime.kernel_queries import blocked_channels

MACHINE = Machine("a processor", "avx2", "32K 1M", "1.32.0", 1)
OPSETS = {"": 20, "com.microsoft": 1}


def kernel_of(case: KernelCase) -> LoweredKernel | None:
    op = case.op()
    assert op.signature is not None
    if is_cast(op):
        value, src, dst = op.inputs[0], op.signature.inputs[0], op.signature.outputs[0]
        assert value is not None and isinstance(value.type, TensorType) and src is not None and dst is not None
        return LoweredKernel.of_conversion(value.type, src.format, dst.format, OPSETS)
    return LoweredKernel.of(op, formats_of(op, op.signature), OPSETS)


def families() -> list[KernelCase]:
    """The smallest kernel of every family of calibration."""
    first: dict[str, KernelCase] = {}
    for case in sorted(kernel_cases(blocked_channels() or 8), key=KernelCase.nbytes):
        first.setdefault(case.family, case)
    return list(first.values())


class InventedTimes:
    """Times of kernels from their keys: 10 us times a number between 1 / factor and factor.

    Attributes:
        timed: the keys of the kernels that were timed, without that of the reference.
        speed: the speed of the machine.
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.timed: set[str] = set()
        self.speed = 1.0

    def seconds(self, kernel: TimedModel) -> float:
        if kernel.key.startswith(ReferenceKernel.NAME):
            return 1e-5
        digest = int.from_bytes(sha256(kernel.key.encode()).digest()[:4]) / 2**32
        return float(1e-5 * self.factor ** (2 * digest - 1))

    def __call__(
        self, kernels: Iterable[LoweredKernel], threads: int, budget: TimingBudget, end: float
    ) -> Iterator[tuple[LoweredKernel, float | None]]:
        for each in kernels:
            self.timed |= set() if each.key.startswith(ReferenceKernel.NAME) else {each.key}
            yield each, self.seconds(each) / self.speed
