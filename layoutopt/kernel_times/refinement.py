"""Prices from measurement: plan, time the kernels that the plan uses, and plan again until all of them have been timed.

    plan at the target's prices -> its kernels timed -> plan at measured prices -> its new kernels timed -> plan ...

The planner chooses a kernel by its corrected estimate, and keeps it if its measured time is still the lowest. All numbers of
the result have the prices of the last plan.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from time import perf_counter
from typing import Literal

from layoutopt.cost import CostModel, priced_with
from layoutopt.cost_models import RooflineModel
from layoutopt.dialects.onnxruntime.default_blocks import find_fused_tensors, is_chosen_by_default
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Signature
from layoutopt.kernel_times.baseline import kernels_in_default_formats
from layoutopt.kernel_times.prices import StoredPrices, UsedKernel, plan_kernels, total_seconds
from layoutopt.kernel_times.store import RequestedTimes
from layoutopt.kernel_times.timer import TimedModel
from layoutopt.passes.base import PlanWith
from layoutopt.planner import Plan

_PLANS = 5  # at measured prices
_MAX_PRICE_RATIO = 1.5  # kernels of an emulation that cost more than this times the price of the op are not timed
_MIN_SHARE = 1e-3  # of a plan's time: kernels below it are not timed


@dataclass(frozen=True, slots=True)
class RefinedPlan:
    """A plan at measured prices.

    Attributes:
        model: the cost model with the prices of the plan.
        plan: the plan.
        kernels: the kernels of the plan.
        baseline: the model to which the plan is compared, in onnxruntime's default formats and with its fusions: the original
            after onnxruntime's optimiser, or the folded graph.
        baseline_seconds: its seconds; 0 if they are not known.
        seconds: seconds of timing and planning.
    """

    model: CostModel
    plan: Plan
    kernels: Sequence[UsedKernel]
    baseline: Literal["optimised", "folded"]
    baseline_seconds: float
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


@dataclass(frozen=True)
class Refinement:
    """Plans of one graph at kernel times, which are requested while it runs.

    Attributes:
        graph: the graph, unplanned.
        model: the cost model of the target, which estimates the kernels that were not timed.
        sizes: the sizes of symbolic dimensions.
        plan_with: plans at the prices of a cost model.
        times: requests the times of kernels on this machine.
        progress: called with the name of each step.
    """

    graph: Graph
    model: RooflineModel
    sizes: Sizes
    plan_with: PlanWith
    times: RequestedTimes
    progress: Callable[[str], None] = lambda step: None

    def best_plan(self, first: Plan, original: Graph | None = None) -> RefinedPlan | None:
        """The last plan at measured prices; None if the time limit of planning ended the first one.

        Its prices stay as they are. If some of its kernels may have no times, it is made at raised prices of such kernels.

        Args:
            first: the plan at the prices of the target.
            original: the original after onnxruntime's optimiser, if its time is to be estimated, too.
        """
        begin, prices = perf_counter(), self._prices
        # The times of the original's kernels correct the estimates of many others.
        for used in (self._kernels(first.signatures), self._kernels({}), self._default_kernels(original)):
            self._request(used)
        for number in range(_PLANS):
            prices.is_cautious = number == _PLANS - 1 or self.times.is_spent
            prices.correct_estimates()
            model = self._new_model()
            plan = self.plan_with(model)
            if plan.stopped:
                return None
            if prices.is_cautious or not self._request(self._kernels(plan.signatures)):
                break
        prices.uses_alternatives = False
        before = self._default_kernels(original)
        baseline: Literal["optimised", "folded"] = "optimised" if before else "folded"
        seconds = total_seconds(before or self._default_kernels(self.graph))
        prices.uses_alternatives = True
        return RefinedPlan(model, plan, self._kernels(plan.signatures), baseline, seconds, perf_counter() - begin)

    @cached_property
    def _prices(self) -> StoredPrices:
        return StoredPrices(self.times, self.graph.opsets)

    @cached_property
    def _fused_tensors(self) -> Mapping[str, float]:
        return find_fused_tensors(self.graph)

    def _new_model(self) -> CostModel:
        """A cost model with the current prices, which has cached none."""
        measured = self.model.with_measured(self._prices)
        return priced_with(measured, fused_tensors=self._fused_tensors, is_default_kernel=is_chosen_by_default)

    def _kernels(self, signatures: Mapping[Op, Signature]) -> list[UsedKernel]:
        """The kernels of a plan, or of the graph in canonical formats, at current prices."""
        return plan_kernels(self.graph, self._new_model(), self.sizes, self._prices, signatures)

    def _default_kernels(self, graph: Graph | None) -> list[UsedKernel]:
        """The kernels of a graph in onnxruntime's default formats, with its own fusions, at current prices."""
        if graph is None:
            return []
        fused_tensors = find_fused_tensors(graph, by_runtime=True)
        return kernels_in_default_formats(graph, self.model, fused_tensors, self.sizes, self._prices)

    def _request(self, used: Sequence[UsedKernel]) -> bool:
        """Request times of kernels that have none and of other algorithms for their ops; return whether there were requests.

        Those that take a share of the total time are requested, longest first, and the longest one of each kind, since an
        estimate of the target may be wrong by any factor for a kind of op.
        """
        least = _MIN_SHARE * total_seconds(used)
        kinds: set[Hashable] = set()
        found: dict[str, TimedModel] = {}
        for each in sorted(used, key=lambda each: -each.total):
            # A fused op has a share of the price of its only kernel.
            limit = inf if len(each.priced_kernels) == 1 else each.seconds * _MAX_PRICE_RATIO
            for priced in each.priced_kernels:
                if priced.kernel is None or priced.seconds > limit:
                    continue
                if each.total >= least or priced.kind not in kinds:
                    kinds.add(priced.kind)
                    found |= {model.key: model for model in (priced.kernel, *priced.kernel.alternatives)}
        untimed = [each for key, each in found.items() if self.times.get(key) is None]
        if untimed:
            self.progress(f"timing {len(untimed)} kernels")
        return self.times.request(untimed)
