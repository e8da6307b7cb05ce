"""Prices from measurement: plan, time the kernels that the plan uses, and plan again until all of them have been timed.

    plan at the target's prices -> its kernels timed -> plan at measured prices -> its new kernels timed -> plan ...

The planner chooses a kernel by its corrected estimate, and keeps it if its measured time is still the lowest. All numbers of
the result have the prices of the last plan.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from time import perf_counter

from layoutopt.cost import CostModel, priced_with
from layoutopt.cost_models import RooflineModel
from layoutopt.dialects.onnxruntime.default_blocks import find_fused_tensors, is_chosen_by_default
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Signature
from layoutopt.kernel_times.baseline import kernels_in_default_formats
from layoutopt.kernel_times.prices import PricedKernel, StoredPrices, UsedKernel, plan_kernels, total_seconds
from layoutopt.kernel_times.timed_batches import RequestedTimes
from layoutopt.kernel_times.timer import TimedModel
from layoutopt.passes.base import PlanWith
from layoutopt.planner import Plan

_PLANS = 5  # at measured prices
_MAX_PRICE_RATIO = 1.5  # kernels of an emulation that cost more than this times the price of the op are not timed
_SHORT = 1e-4  # seconds of a kernel that takes little time to time, and much more than the overhead of a run
_MIN_SHARE = 1e-3  # of a plan's time: kernels below it are not timed


@dataclass(frozen=True, slots=True)
class RefinedPlan:
    """A plan at measured prices.

    Attributes:
        model: the cost model with the prices of the plan.
        plan: the plan.
        kernels: the kernels of the plan.
        original_kernels: the kernels of the original as onnxruntime runs it; empty if they are not known.
        folded_kernels: the kernels of the folded graph in the default formats and with the fusions of onnxruntime; empty if
            they are not known.
        seconds: seconds of timing and planning.
    """

    model: CostModel
    plan: Plan
    kernels: Sequence[UsedKernel]
    original_kernels: Sequence[UsedKernel]
    folded_kernels: Sequence[UsedKernel]
    seconds: float

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
    first: Plan,
    plan_with: PlanWith,
    times: RequestedTimes,
    original: Graph | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> RefinedPlan | None:
    """The plan at measured prices; None if a time limit ended planning at these prices.

    Args:
        graph: the graph, unplanned.
        model: the cost model of the target, which estimates the kernels that were not timed.
        sizes: the sizes of symbolic dimensions.
        first: the plan at the prices of the target.
        plan_with: plans at the prices of a cost model.
        times: requests the times of kernels on this machine.
        original: the original after onnxruntime's optimiser, if its time is to be estimated, too.
        progress: called with the name of each step.
    """
    begin = perf_counter()
    refinement = _Refinement(graph, model, sizes, plan_with, times, progress, StoredPrices(times, graph.opsets))
    found = refinement.find_best_plan(first, original)
    if found is None:
        return None
    model_with_times, plan = found
    refinement.prices.uses_alternatives = False
    original_kernels = refinement.default_kernels(original)
    folded_kernels = refinement.default_kernels(graph)
    refinement.prices.uses_alternatives = True
    return RefinedPlan(
        model=model_with_times,
        plan=plan,
        kernels=refinement.kernels(plan.signatures),
        original_kernels=original_kernels,
        folded_kernels=folded_kernels,
        seconds=perf_counter() - begin,
    )


@dataclass(frozen=True)
class _Refinement:
    """Plans of one graph at kernel times, which are requested while it runs."""

    graph: Graph
    model: RooflineModel
    sizes: Sizes
    plan_with: PlanWith
    times: RequestedTimes
    progress: Callable[[str], None]
    prices: StoredPrices

    @cached_property
    def _fused_tensors(self) -> Mapping[str, float]:
        return find_fused_tensors(self.graph)

    def _new_model(self) -> CostModel:
        """A cost model with the current prices, which has cached none."""
        measured = self.model.with_measured(self.prices)
        return priced_with(measured, fused_tensors=self._fused_tensors, is_default_kernel=is_chosen_by_default)

    def kernels(self, signatures: Mapping[Op, Signature]) -> list[UsedKernel]:
        """The kernels of a plan, or of the graph in canonical formats, at current prices."""
        return plan_kernels(self.graph, self._new_model(), self.sizes, self.prices, signatures)

    def default_kernels(self, graph: Graph | None) -> list[UsedKernel]:
        """The kernels of a graph in onnxruntime's default formats, with its own fusions, at current prices."""
        if graph is None:
            return []
        fused_tensors = find_fused_tensors(graph, by_runtime=True)
        return kernels_in_default_formats(graph, self.model, fused_tensors, self.sizes, self.prices)

    def find_best_plan(self, first: Plan, original: Graph | None) -> tuple[CostModel, Plan] | None:
        """The last plan at measured prices, with its cost model; None if the time limit of planning ended the first one.

        Its prices stay as they are. If some of its kernels may have no times, it is made at raised prices of such kernels.
        """
        used = [*self.kernels(first.signatures), *self.kernels({}), *self.default_kernels(original)]
        self._request(_one_of_each_kind(used))
        self.prices.correct_estimates()
        # The times of the original's kernels correct the estimates of many others.
        for used in (self.kernels(first.signatures), self.kernels({}), self.default_kernels(original)):
            self._request(self._untimed(used))
        found = None
        for number in range(_PLANS):
            is_last = number == _PLANS - 1 or self.times.is_spent
            self.prices.is_cautious = is_last
            self.prices.correct_estimates()
            model = self._new_model()
            plan = self.plan_with(model)
            if plan.stopped:
                return None
            found = model, plan
            if is_last or not self._request(self._untimed(self.kernels(plan.signatures))):
                break
        return found

    def _request(self, kernels: Mapping[str, TimedModel]) -> bool:
        """Request the times of kernels, and return whether there were new requests."""
        if kernels:
            self.progress(f"timing {len(kernels)} kernels")
        return self.times.request(kernels.values())

    def _untimed(self, used: Sequence[UsedKernel]) -> dict[str, TimedModel]:
        """The models without times among those of kernels and of other algorithms for their ops."""
        models = _models(used, lambda each: each.kernel is not None and not self.prices.has_all_times(each.kernel))
        return {key: each for key, each in models.items() if self.times.get(key) is None}


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
