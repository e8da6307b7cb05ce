"""Prices from measurement: plan, time the kernels that the plan uses, and plan again until all of them have been timed.

    plan at the target's prices -> its kernels timed -> plan at measured prices -> its new kernels timed -> plan ...

The planner chooses a kernel by its corrected estimate, and keeps it if its measured time is still the lowest. A minimum over
noisy times is biased low, and time may end before all kernels of the last plan have been timed. So the last plan is compared
with the plan at the target's prices: the kernels in which they differ are timed (again), all in the same rounds, and the last
plan has to be 2 % faster.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import inf
from time import perf_counter

from layoutopt.cost import CostModel, FusedIntoConvolutions, RuntimeBlocks, sized
from layoutopt.cost_models import RooflineModel
from layoutopt.dialects.onnxruntime.default_blocks import is_chosen_by_default
from layoutopt.dialects.onnxruntime.fused_tensors import find_fused_tensors
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Signature
from layoutopt.kernel_times.baseline import OptimisedOriginal, kernels_in_default_formats
from layoutopt.kernel_times.plan_kernels import UsedKernel, plan_kernels, total_seconds
from layoutopt.kernel_times.store import KernelStore
from layoutopt.kernel_times.stored_prices import PricedKernel, StoredPrices
from layoutopt.kernel_times.timed_batches import LARGEST_BATCH, time_batches
from layoutopt.kernel_times.timed_kernels import TimedModel, TimingBudget
from layoutopt.passes.base import PlanWith
from layoutopt.planner import Plan

_PLANS = 5  # at measured prices, per comparison
_MAX_PRICE_RATIO = 1.5  # kernels of an emulation that cost more than this times the price of the op are not timed
_SHORT = 1e-4  # seconds of a kernel that takes little time to time, and much more than the overhead of a run
_MIN_SHARE = 1e-3  # of a plan's time: kernels below it are not timed
_MIN_SPEED_UP = 1.02  # of a plan at measured prices over the plan at the target's prices
_COMPARISONS = 2  # with the plan at the target's prices
_COMPARISON_BUDGET = TimingBudget(repetitions=1, min_rounds=4, max_rounds=24, seconds=0.012)
_COMPARISON_SECONDS = 3.0  # after which no further kernels are compared


@dataclass(frozen=True, slots=True)
class RefinedPlan:
    """A plan at measured prices, or the one at the target's prices if that is as fast.

    Attributes:
        model: the cost model with the prices of the plan.
        plan: the plan.
        is_refined: whether it was made at measured prices.
        speed_up: the time of the kernels of the plan at the target's prices, divided by that of the kernels of the plan at
            measured prices; None if no plan was compared.
        num_newly_timed: the number of kernels that got a time, those of the original and of other plans included.
        kernels: the kernels of the plan.
        kernels_with_default_algorithms: the kernels of the plan, without Winograd.
        original_kernels: the kernels of the original as onnxruntime runs it; empty if they are not known.
        folded_kernels: the kernels of the folded graph in the default formats and with the fusions of onnxruntime; empty if
            they are not known.
        folded_kernels_with_all_fusions: the same with all fusions of the dialect.
        seconds: seconds of timing and planning.
        has_times: whether the price of an op under a signature consists of times of kernels; false for all ops if the prices
            are those of the target.
    """

    model: CostModel
    plan: Plan
    is_refined: bool
    speed_up: float | None
    num_newly_timed: int
    kernels: Sequence[UsedKernel]
    kernels_with_default_algorithms: Sequence[UsedKernel]
    original_kernels: Sequence[UsedKernel]
    folded_kernels: Sequence[UsedKernel]
    folded_kernels_with_all_fusions: Sequence[UsedKernel]
    seconds: float
    has_times: Callable[[Op, Signature], bool] = lambda op, signature: False

    @property
    def num_timed(self) -> int:
        """The number of kernels of the plan that have a time."""
        return sum(each.is_timed for each in self.kernels)

    @property
    def timed_share(self) -> float:
        """The share of the plan's time that timed kernels cover."""
        total = total_seconds(self.kernels)
        return total_seconds(each for each in self.kernels if each.is_timed) / total if total else 0.0


def refine_prices(
    graph: Graph,
    model: RooflineModel,
    sizes: Sizes,
    plan_with: PlanWith,
    store: KernelStore,
    max_seconds: float,
    original: OptimisedOriginal | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> RefinedPlan:
    """The plan at measured prices, or the one at the target's prices unless the former is at least 2 % faster.

    Args:
        graph: the graph, unplanned.
        model: the cost model of the target, which estimates the kernels that were not timed.
        sizes: the sizes of symbolic dimensions.
        plan_with: plans at the prices of a cost model.
        store: the times of kernels on this machine; new ones are added.
        max_seconds: the seconds after which no further kernel is timed; the last plan and the comparison take longer.
        original: the original as onnxruntime runs it, if its time is to be estimated, too.
        progress: called with the name of each step.
    """
    begin = perf_counter()
    refinement = _Refinement(graph, model, sizes, plan_with, store, progress)
    first = plan_with(model)
    best = _PricedPlan(model, first)
    if not first.stopped:
        best = refinement.find_best_plan(best, begin + max_seconds, original)
    plan = best.plan
    refinement.prices.be_cautious(False)
    refinement.prices.correct_estimates()
    kernels = refinement.kernels(plan.signatures)
    with refinement.prices.default_algorithms():
        original_kernels = refinement.kernels_of_original(original)
        with_default_algorithms = refinement.kernels(plan.signatures)
        folded = refinement.kernels_in_default_formats(has_all_fusions=False)
        with_all_fusions = refinement.kernels_in_default_formats(has_all_fusions=True)
    return RefinedPlan(
        model=best.model,
        plan=plan,
        is_refined=plan is not first,
        speed_up=best.speed_up,
        num_newly_timed=sum(store.get(key) is not None for key in refinement.tried),
        kernels=kernels,
        kernels_with_default_algorithms=with_default_algorithms,
        original_kernels=original_kernels,
        folded_kernels=folded,
        folded_kernels_with_all_fusions=with_all_fusions,
        seconds=perf_counter() - begin,
        has_times=refinement.has_times if plan is not first else lambda op, signature: False,
    )


@dataclass(frozen=True, slots=True)
class _PricedPlan:
    """A plan with the cost model of its prices, and the speed-up of its comparison, if there was one."""

    model: CostModel
    plan: Plan
    speed_up: float | None = None


class _Refinement:
    """Plans of one graph at kernel times, which are added while it runs.

    Attributes:
        prices: the measured prices.
        tried: the keys of the kernels that were timed for the first time, or that onnxruntime did not run alone.
    """

    def __init__(
        self,
        graph: Graph,
        model: RooflineModel,
        sizes: Sizes,
        plan_with: PlanWith,
        store: KernelStore,
        progress: Callable[[str], None],
    ) -> None:
        self.prices = StoredPrices(store, graph.opsets)
        self.tried: set[str] = set()
        self._graph, self._model, self._sizes = graph, model, sizes
        self._plan_with, self._store, self._progress = plan_with, store, progress
        self._fused_tensors = find_fused_tensors(graph)

    def _new_model(self) -> CostModel:
        """A cost model with the current prices, which has cached none."""
        measured = FusedIntoConvolutions(self._model.with_measured(self.prices), self._fused_tensors)
        return RuntimeBlocks(measured, is_chosen_by_default)

    def has_times(self, op: Op, signature: Signature) -> bool:
        """Whether the price of an op under a signature consists of times of kernels."""
        with self.prices.recording() as priced:
            sized(self._new_model(), self._sizes).kernel_seconds(op, signature)
        return bool(priced) and all(each.is_timed for each in priced)

    def kernels(self, signatures: Mapping[Op, Signature]) -> list[UsedKernel]:
        """The kernels of a plan, or of the graph in canonical formats, at current prices."""
        return plan_kernels(self._graph, self._new_model(), self._sizes, self.prices, signatures)

    def kernels_of_original(self, original: OptimisedOriginal | None) -> list[UsedKernel]:
        """The kernels of the original as onnxruntime runs it, at current prices."""
        return [] if original is None else original.kernels(self._model, self._sizes, self.prices)

    def kernels_in_default_formats(self, *, has_all_fusions: bool) -> list[UsedKernel]:
        """The kernels of the graph in onnxruntime's default formats, with all fusions or its own, at current prices."""
        fused_tensors = find_fused_tensors(self._graph, by_runtime=not has_all_fusions)
        return kernels_in_default_formats(self._graph, self._model, fused_tensors, self._sizes, self.prices)

    def find_best_plan(self, first: "_PricedPlan", end: float, original: OptimisedOriginal | None) -> "_PricedPlan":
        """The plan at measured prices if it wins the comparison with the first plan, or else the first plan.

        A plan that loses is made once more, since the comparison has added the times that were missing.
        """
        used = [*self.kernels(first.plan.signatures), *self.kernels({}), *self.kernels_of_original(original)]
        self._time(_one_of_each_kind(used), end)
        self.prices.correct_estimates()
        # The times of the original's kernels correct the estimates of many others.
        for used in (self.kernels(first.plan.signatures), self.kernels({}), self.kernels_of_original(original)):
            self._time(self._untimed(used), end)
        best = first
        for _ in range(_COMPARISONS):
            found = self._make_refined_plan(end)
            if found is None or found.plan.signatures == first.plan.signatures:
                return best
            if self._store.is_complete:
                return found
            speed_up = self._compare(first.plan, found.plan)
            if speed_up >= _MIN_SPEED_UP:
                return replace(found, speed_up=speed_up)
            best = replace(first, speed_up=speed_up)
        return best

    def _make_refined_plan(self, end: float) -> "_PricedPlan | None":
        """The last complete plan at measured prices; None if the time limit of planning ended the first one."""
        found: _PricedPlan | None = None
        for number in range(_PLANS):
            is_last = number == _PLANS - 1 or perf_counter() >= end
            self.prices.be_cautious(is_last)
            self.prices.correct_estimates()
            model = self._new_model()
            plan = self._plan_with(model)
            if plan.stopped:
                break
            found = _PricedPlan(model, plan)
            if is_last or not self._time(self._untimed(self.kernels(plan.signatures)), end):
                break
        return found

    def _time(self, kernels: Mapping[str, TimedModel], end: float) -> bool:
        """Time the kernels that were not tried, and return whether there were any."""
        pending = [each for key, each in kernels.items() if key not in self.tried]
        if not pending or self._store.is_complete:
            return False
        self._progress(f"timing {len(pending)} kernels")
        self.tried.update(time_batches(pending, self._store, end))
        return True

    def _compare(self, first: Plan, last: Plan) -> float:
        """The time of one plan divided by that of another, with new times of the kernels that only one of them uses."""
        models = [_models(self.kernels(each.signatures)) for each in (first, last)]
        common = models[0].keys() & models[1].keys()
        only = [[each for key, each in found.items() if key not in common] for found in models]
        pending = [each for pair in zip_longest(*only) for each in pair if each is not None]
        self._progress(f"comparing {len(pending)} kernels")
        end = perf_counter() + _COMPARISON_SECONDS
        untimed = {each.key for each in pending if self._store.get(each.key) is None}
        self.tried |= untimed.intersection(time_batches(pending, self._store, end, _COMPARISON_BUDGET, LARGEST_BATCH))
        before, after = (total_seconds(self.kernels(each.signatures)) for each in (first, last))
        return before / after if after else 1.0

    def _untimed(self, used: Sequence[UsedKernel]) -> dict[str, TimedModel]:
        """The models without times among those of kernels and of other algorithms for their ops."""
        models = _models(used, lambda each: each.kernel is not None and not self.prices.has_all_times(each.kernel))
        return {key: each for key, each in models.items() if self._store.get(key) is None}


def _one_of_each_kind(used: Iterable[UsedKernel]) -> dict[str, TimedModel]:
    """The model of a short kernel of each kind that has no time, by key.

    An estimate of the target may be wrong by any factor for a kind of op. The corrected estimates show which kernels of the
    kind take enough time to be timed.
    """
    timed: set[Hashable] = set()
    untimed: dict[Hashable, list[PricedKernel]] = defaultdict(list)
    for priced in (priced for each in used for priced in each.priced_kernels):
        if priced.is_timed:
            timed.add(priced.kind)
        elif priced.kernel is not None:
            untimed[priced.kind].append(priced)
    found: dict[str, TimedModel] = {}
    for kernels in (kernels for kind, kernels in untimed.items() if kind not in timed):
        chosen = min(kernels, key=lambda each: (each.seconds < _SHORT, abs(each.seconds - _SHORT)))
        if chosen.kernel is not None:
            found[chosen.kernel.key] = chosen.kernel
    return found


def _models(
    used: Sequence[UsedKernel], is_chosen: Callable[[PricedKernel], bool] = lambda priced: True
) -> dict[str, TimedModel]:
    """The models of kernels by key, each followed by other algorithms for its op; sorted by total time, largest first."""
    total = total_seconds(used)
    found: dict[str, TimedModel] = {}
    for each in sorted(used, key=lambda each: -each.total):
        # The price of an op that is fused is a share of that of its only kernel.
        limit = inf if len(each.priced_kernels) == 1 else each.seconds * _MAX_PRICE_RATIO
        for priced in each.priced_kernels if each.total >= _MIN_SHARE * total else ():
            if priced.kernel is not None and is_chosen(priced) and priced.seconds <= limit:
                models: list[TimedModel] = [priced.kernel, *priced.kernel.alternatives]
                found |= {model.key: model for model in models}
    return found


__all__ = ["RefinedPlan", "refine_prices"]
