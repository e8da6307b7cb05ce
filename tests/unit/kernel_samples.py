"""Kernels of calibration as timed models, and invented times."""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from math import prod

from layoutopt.calibrate import probes
from layoutopt.cost_models import load_target
from layoutopt.kernel_times.kernels import REFERENCE, LoweredKernel
from layoutopt.kernel_times.store import Machine
from layoutopt.runtime.kernel_queries import blocked_channels

MACHINE = Machine("a processor", "avx2", "32K 1M", "1.32.0", 1)
OPSETS = {"": 20, "com.microsoft": 1}


def nbytes(kernel: LoweredKernel) -> int:
    """Bytes of all operands, without padding."""
    return 4 * sum(prod(each.shape or ()) for each in (*kernel.op.inputs, *kernel.op.outputs) if each is not None)


@cache
def calibrated_kernels(target: str = "") -> list[LoweredKernel]:
    """The kernels of calibration; by default in blocks of this machine."""
    target = target or ("cpu-avx512" if blocked_channels() == 16 else "cpu-avx2")
    return probes(load_target(target))


@cache
def families() -> list[LoweredKernel]:
    """The smallest kernel of every op type of calibration in each of its formats."""
    first: dict[str, LoweredKernel] = {}
    for kernel in sorted(calibrated_kernels(), key=nbytes):
        first.setdefault(f"{kernel.op.kind} {kernel.op.signature}", kernel)
    return list(first.values())


class InventedTimes:
    """Times of kernels from their keys: 10 us times a number between 1 / factor and factor; `timed` are the keys so far."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.timed: set[str] = set()
        self.speed = 1.0

    def seconds(self, kernel: LoweredKernel) -> float:
        digest = int.from_bytes(sha256(kernel.key.encode()).digest()[:4]) / 2**32
        return float(1e-5 * self.factor ** (2 * digest - 1))

    def __call__(
        self, kernels: Sequence[LoweredKernel], threads: int, end: float, engine: None
    ) -> dict[str, float | None]:
        self.timed |= {each.key for each in kernels}
        return {REFERENCE: 1e-5 / self.speed, **{each.key: self.seconds(each) / self.speed for each in kernels}}
