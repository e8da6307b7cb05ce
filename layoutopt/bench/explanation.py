"""Comparison of estimated and measured kernel times of one model: per op type, and the largest differences."""

from collections import defaultdict
from collections.abc import Sequence

from layoutopt.bench.bench_report import Explanation, KernelDifference, KernelKind
from layoutopt.bench.measure import BenchCase, Progress
from layoutopt.kernel_times import KernelStore, RunEstimate, estimate_run
from layoutopt.verification import Runnable

DIFFERENCES = 10
"""The number of kernels that an explanation names."""


def explain(case: BenchCase, store: KernelStore, progress: Progress) -> Explanation | None:
    """The explanation of a model's time; None in another runtime than onnxruntime.

    Args:
        case: the model and its inputs.
        store: the times of single kernels.
        progress: called with the name of each step.
    """
    if case.runtime.name != "onnxruntime":
        return None
    return explanation(estimate_run(Runnable.of(case.path), case.feed, store, progress))


def explanation(found: RunEstimate) -> Explanation:
    """The explanation of a run by the times of its kernels."""
    by_kind: dict[str, list[tuple[float, float]]] = defaultdict(list)
    by_kernel: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for each in found.kernels:
        times = (each.seconds, each.kernel.traced)
        by_kind[each.kernel.op].append(times)
        by_kernel[each.kernel.op, each.kernel.shapes].append(times)
    kinds = [KernelKind(op=op, nodes=len(times), **_sums(times)) for op, times in by_kind.items()]
    kernels = [
        KernelDifference(op=op, shapes=shapes, nodes=len(times), **_sums(times))
        for (op, shapes), times in by_kernel.items()
    ]
    return Explanation(
        estimated=found.seconds,
        traced=sum(each.kernel.traced for each in found.kernels),
        not_alone=sum(each.seconds for each in found.kernels if not each.is_alone),
        kinds=sorted(kinds, key=lambda each: (-each.traced, each.op)),
        differences=sorted(kernels, key=lambda each: (-abs(each.estimated - each.traced), each.op))[:DIFFERENCES],
    )


def _sums(times: Sequence[tuple[float, float]]) -> dict[str, float]:
    return {"estimated": sum(each for each, _ in times), "traced": sum(each for _, each in times)}


__all__ = ["DIFFERENCES", "explain", "explanation"]
