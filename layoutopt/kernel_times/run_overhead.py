"""The overhead of a run in onnxruntime, by the times of tiny ops.

It depends on the caches: a run takes up to four times as long after a kernel that has used them. So tiny ops run between the
kernels whose times they correct, and behind another run, after which the code of onnxruntime's `Run` is in the caches.
"""

from functools import cache
from typing import NamedTuple

from layoutopt.kernel_times.kernel_session import KernelSession, ScratchMemory
from layoutopt.kernel_times.reference_models import TINY, TINY_SUM, chain_of_tiny_ops, tiny_sum

_CHAIN = 33  # tiny ops


class RunOverhead(NamedTuple):
    """The overhead of a run, without that of a node, which a network has too.

    Attributes:
        run: seconds of a run with one input.
        operand: seconds for each further input.
    """

    run: float
    operand: float

    @classmethod
    def of(cls, one: float, chain: float, two_inputs: float) -> "RunOverhead":
        """The overhead by the times of a tiny op, of a chain of them, and of a tiny op with two inputs."""
        return cls(one - (chain - one) / (_CHAIN - 1), max(two_inputs - one, 0.0))

    def seconds(self, num_inputs: int) -> float:
        """The overhead of a kernel with a number of inputs."""
        return self.run + self.operand * (num_inputs - 1)


class TinySessions(NamedTuple):
    """Sessions of a tiny op, of a chain of them, and of a tiny op with two inputs."""

    one: KernelSession
    chain: KernelSession
    two_inputs: KernelSession

    @classmethod
    @cache
    def of(cls, number: int, threads: int) -> "TinySessions":
        """The sessions of one measurement of the overhead in a round; they are created once.

        Each measurement has sessions of its own, so that they are as long out of the caches as those of the kernels.

        Args:
            number: the position of the measurement in the round.
            threads: threads of onnxruntime.
        """
        scratch = ScratchMemory()
        one, chain = (KernelSession(chain_of_tiny_ops(length), TINY, threads, scratch) for length in (1, _CHAIN))
        return cls(one, chain, KernelSession(tiny_sum(), TINY_SUM, threads, scratch))


__all__ = ["RunOverhead", "TinySessions"]
