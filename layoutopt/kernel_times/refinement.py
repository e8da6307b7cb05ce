"""Prices from measurement: plan, time the kernels that the plan uses, and plan again until all of them have been timed.

The kernels of a plan are a few of those that the planner compares. A kernel enters the plan if its corrected estimate is the
best; then it is timed, and stays only if its time is the best as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from layoutopt.cost import CostModel, FusedOps, RuntimeBlocks
from layoutopt.cost_models import RooflineModel
from layoutopt.dialects.onnxruntime.fused_ops import fused_ops
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.kernel_times.baseline import OptimisedOriginal
from layoutopt.kernel_times.lowered_graph import LoweredGraph
from layoutopt.kernel_times.plan_kernels import UsedKernel, plan_kernels, total_seconds
from layoutopt.kernel_times.store import KernelStore
from layoutopt.kernel_times.stored_prices import StoredPrices
from layoutopt.kernel_times.timed_kernels import QUICK, TimedModel, time_kernels
from layoutopt.passes.base import PlanWith
from layoutopt.planner import Plan
from layoutopt.timing.interleaved import pinned

_PLANS = 6  # the largest number, the first and the last included
_BATCH = 32  # kernels that run in turns
_CLOSE = 1.5  # times the price of an op: parts of emulations that cost more are not timed
_NEGLIGIBLE = 1e-3  # of a plan's time: kernels below it are not timed


@dataclass(frozen=True, slots=True)
class RefinedPlan:
    """A plan at measured prices.

    Attributes:
        model: the cost model with these prices.
        plan: the plan.
        timed: the number of kernels that were timed for it.
        kernels: the kernels of the plan.
        direct: the same without other algorithms than the direct ones.
        before: the kernels of the original as onnxruntime runs it; empty if they are not known.
        seconds: the time that it took.
    """

    model: CostModel
    plan: Plan
    timed: int
    kernels: Sequence[UsedKernel]
    direct: Sequence[UsedKernel]
    before: Sequence[UsedKernel]
    seconds: float

    @property
    def known(self) -> int:
        """The number of kernels of the plan that have a time."""
        return sum(each.is_timed for each in self.kernels)

    @property
    def share(self) -> float:
        """Their share of the plan's time."""
        total = total_seconds(self.kernels)
        return total_seconds(each for each in self.kernels if each.is_timed) / total if total else 0.0


def refine_prices(
    graph: Graph,
    model: RooflineModel,
    sizes: Sizes,
    plan_with: PlanWith,
    store: KernelStore,
    budget: float,
    original: OptimisedOriginal | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> RefinedPlan:
    """Plan at measured prices.

    Args:
        graph: the graph, unplanned.
        model: the cost model of the target, whose estimates count for kernels that were not timed.
        sizes: the sizes of symbolic dimensions.
        plan_with: plans at the prices of a cost model.
        store: the times of kernels on this machine; new ones are added.
        budget: seconds after which no further kernel is timed; the last plan takes longer.
        original: the original as onnxruntime runs it, if its time is to be estimated, too.
        progress: called with what is timed.
    """
    prices, fused = StoredPrices(store, graph.opsets), fused_ops(graph)

    def new_model() -> CostModel:
        return RuntimeBlocks(FusedOps(model.with_measured(prices), fused))

    begin, timed, is_last = perf_counter(), set[str](), False
    priced: CostModel = model
    plan: Plan | None = None
    for number in range(_PLANS):
        prices.correct_estimates()
        refined = new_model()
        found = plan_with(refined)
        if plan is not None and found.stopped:
            break
        priced, plan = refined, found
        used = plan_kernels(graph, new_model(), sizes, prices, plan.signatures)
        wanted = _wanted(used)
        if not number:  # the times of the original's kernels correct the estimates of many others
            wanted |= _wanted(plan_kernels(graph, new_model(), sizes, prices, {}))
            wanted |= _wanted(original.kernels(model, sizes, prices) if original is not None else [])
        wanted = {key: each for key, each in wanted.items() if key not in timed}  # without those that do not run alone
        if found.stopped or is_last or not wanted or store.is_complete:
            break
        progress(f"timing {len(wanted)} kernels")
        timed.update(_time([*wanted.values()], store, begin + budget))
        if is_last := number == _PLANS - 2 or perf_counter() - begin >= budget:
            prices.be_cautious()
    assert plan is not None
    with prices.direct_algorithms():
        before = original.kernels(model, sizes, prices) if original is not None else []
        direct = plan_kernels(graph, new_model(), sizes, prices, plan.signatures)
    return RefinedPlan(priced, plan, len(timed), used, direct, before, perf_counter() - begin)


def time_graphs(graphs: Sequence[Graph], store: KernelStore, budget: float) -> list[float | None]:
    """The times of lowered graphs in seconds; None for those that do not run, or for which no time is left.

    Args:
        graphs: the graphs, the most important ones first.
        store: the times of kernels on this machine; new ones are added.
        budget: seconds after which no further graph is timed.
    """
    models = [LoweredGraph(each) for each in graphs]
    missing = {each.key: each for each in models if store.get(each.key) is None}
    if missing and not store.is_complete:
        _time([*missing.values()], store, perf_counter() + budget)
    return [store.get(each.key) for each in models]


def _wanted(used: list[UsedKernel]) -> dict[str, TimedModel]:
    """The kernels to time, with other algorithms for their ops, by key; those with the largest share first."""
    total = sum(each.total for each in used)
    pending = [each for each in used if not each.is_timed and each.total >= _NEGLIGIBLE * total]
    ranked = sorted(pending, key=lambda each: -each.total)
    found: dict[str, TimedModel] = {}
    for each in ranked:
        for part in each.parts:
            if part.kernel is not None and not part.is_timed and part.seconds <= each.seconds * _CLOSE:
                models: list[TimedModel] = [part.kernel, *part.kernel.alternatives]
                found |= {model.key: model for model in models}
    return found


def _time(kernels: Sequence[TimedModel], store: KernelStore, end: float) -> list[str]:
    """Time kernels until `end`, in seconds of the clock, and return the keys of those that were tried."""
    tried: list[str] = []
    with pinned(store.machine.threads):
        for start in range(0, len(kernels), _BATCH):
            found = time_kernels(kernels[start : start + _BATCH], store.machine.threads, QUICK)
            times = {each.key: seconds for each, seconds in found}
            store.add({key: seconds for key, seconds in times.items() if seconds is not None})
            tried += times
            if perf_counter() >= end:
                break
    return tried


__all__ = ["RefinedPlan", "refine_prices", "time_graphs"]
