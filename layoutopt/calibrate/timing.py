"""Timing of kernels: several models run in turns, and the first quartile of the runs of each model is its time.

    seconds of a kernel = (seconds of a run - seconds of an empty run) / copies in the model

As in a network, other kernels use the caches between two runs of the same kernel; a small kernel in a loop takes half the time
(measured for Transpose, Reorder and small convolutions). Other load of the machine only adds time and affects all models
alike; the first quartile excludes it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import onnxruntime

from layoutopt.calibrate.kernel_case import KernelCase, chain
from layoutopt.errors import LayoutoptError
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory
from layoutopt.timing.interleaved import Action, in_rounds

INTERLEAVED_MODELS = 8  # the number of models that run in turns
MIN_RUN_SECONDS = 150e-6  # a model has as many copies as a run of this length needs
MAX_COPIES = 8
MAX_BYTES = 24 << 20  # bytes of all copies together
CHAIN_LENGTHS = (2, 130)  # nodes


@dataclass(frozen=True, slots=True)
class RunOverhead:
    """The overhead of runs and nodes.

    Attributes:
        run: seconds of an empty run.
        node: seconds of a minimal node, with the allocation of its output.
    """

    run: float
    node: float


class TimedSession:
    """A session with bound inputs; onnxruntime allocates the outputs, as within a network."""

    def __init__(self, model: bytes, threads: int) -> None:
        """Create a session and run it once."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._binding = self._session.io_binding()
        generator = np.random.default_rng(0)
        for each in self._session.get_inputs():
            self._binding.bind_cpu_input(each.name, generator.standard_normal(each.shape, dtype=np.float32))
        for each in self._session.get_outputs():
            self._binding.bind_output(each.name)
        self.run()

    def run(self) -> float:
        """The seconds of one run."""
        begin = perf_counter()
        self._session.run_with_iobinding(self._binding)
        return perf_counter() - begin


def measure_overhead(threads: int) -> RunOverhead:
    """The overhead of a run and of a node, from chains of two lengths."""
    short, long = _quartiles([TimedSession(chain(length), threads).run for length in CHAIN_LENGTHS], 500)
    node = (long - short) / (CHAIN_LENGTHS[1] - CHAIN_LENGTHS[0])
    return RunOverhead(max(short - CHAIN_LENGTHS[0] * node, 0.0), node)


def measure(
    cases: Sequence[KernelCase], overhead: RunOverhead, threads: int, rounds: int
) -> Iterator[tuple[KernelCase, float]]:
    """Time kernels, `INTERLEAVED_MODELS` at a time.

    Args:
        cases: the kernels.
        overhead: the overhead to subtract.
        threads: threads of onnxruntime.
        rounds: the number of timed runs of each.

    Yields:
        each kernel with its seconds.

    Raises:
        LayoutoptError: onnxruntime cannot run a kernel.
    """
    for start in range(0, len(cases), INTERLEAVED_MODELS):
        batch = cases[start : start + INTERLEAVED_MODELS]
        copies, sessions = zip(*(_session_with_copies(case, threads) for case in batch), strict=True)
        for case, count, found in zip(batch, copies, _quartiles([each.run for each in sessions], rounds), strict=True):
            # A kernel that is not slower than an empty run counts as a tenth of a node.
            yield case, max((found - overhead.run) / count, overhead.node / 10)


def _quartiles(actions: Sequence[Action], rounds: int) -> list[float]:
    """The first quartile of the times of each action, over `rounds` rounds after one warm-up round."""
    timed = in_rounds(actions, lambda done, passed: done > rounds).times
    return [float(np.quantile(times[1:], 0.25)) for times in timed]


def _session_with_copies(case: KernelCase, threads: int) -> tuple[int, TimedSession]:
    """A model with enough copies for a run that is long enough to be timed."""
    try:
        single = TimedSession(case.model(1), threads)
        once = min(single.run() for _ in range(3))
        copies = min(MAX_COPIES, MAX_BYTES // case.nbytes(), int(MIN_RUN_SECONDS / once) + 1)
        return (1, single) if copies <= 1 else (copies, TimedSession(case.model(copies), threads))
    except RUNTIME_ERRORS as error:
        raise_if_out_of_memory(error)
        raise LayoutoptError(f"onnxruntime cannot run it: {error}", where=case.key) from error
