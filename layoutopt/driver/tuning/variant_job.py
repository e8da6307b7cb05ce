"""The job of a variant: the same call of `optimize` with other prices, passes and rates."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from layoutopt.cost import CostModel, sized
from layoutopt.cost.scaled import ScaledCostModel
from layoutopt.dialects.onnxruntime.passes.winograd import Winograd
from layoutopt.dialects.onnxruntime.passes.winograd.estimate import MACHINE_RATES
from layoutopt.driver.gain import gain_of_variant
from layoutopt.driver.job import Job
from layoutopt.driver.tuning.knobs import ChangedRates, Changes
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature
from layoutopt.passes.base import Pass, PassContext, Pipeline
from layoutopt.report.builder import graph_report
from layoutopt.runtime.kernel_queries import blocked_channels

SAME_PLAN = "the plan is an earlier one"


@dataclass(frozen=True, slots=True)
class EndAtKnownPlan(Pass):
    """End the pipeline if a variant with the same changes behind planning has had the same plan.

    Attributes:
        known: the plans until now, which the pass adds to.
        others: the changes of the variant besides those of the plan.
    """

    known: set[Hashable]
    others: Hashable

    name = "end-at-known-plan"
    justifies_rewrite = False
    handles_bodies = True
    after = "assign-formats"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Set the reason to keep the original, which ends the pipeline."""
        assert context.plan is not None
        key = plan_key(context.plan.signatures, self.others)
        if key in self.known:
            context.reason_to_keep = SAME_PLAN
        self.known.add(key)


def plan_key(signatures: Mapping[Op, Signature], others: Hashable) -> Hashable:
    """A key that is equal for equal plans of variants with equal changes behind planning."""
    choices = frozenset((op.order, op.name, op.kind, signature) for op, signature in signatures.items())
    return choices, others


def variant_job(first: Job, changes: Changes, cost_model: CostModel, known_plans: set[Hashable]) -> Job:
    """The job of a variant.

    Args:
        first: the job of the call.
        changes: the changes of the variant.
        cost_model: the cost model of the first plan.
        known_plans: the plans until now, which the job adds its own to.
    """
    job = first.without(changes.omitted, watch=None, sizes_found=None, calibrate=False, profile=None, progress=None)
    model = job.context.cost_model if changes.has_target_prices else cost_model
    job.context.cost_model = ScaledCostModel(model, changes.factors) if changes.has_factors else model
    job.context.kernels -= changes.unfused
    job.context.plan_rank, others = changes.rank, changes.besides_plan
    if changes.is_new_plan:
        job.context.is_known_plan = lambda signatures: plan_key(signatures, others) in known_plans
    job.context.time_graphs = None if changes.has_target_prices else first.context.time_graphs
    passes = tuple(_with_rates(each, changes.winograd) for each in job.pipeline.passes)
    end = EndAtKnownPlan(known_plans, others)
    job.pipeline = Pipeline(passes, job.pipeline.verifies).extended([end])
    return job


def _with_rates(step: Pass, changed: ChangedRates | None) -> Pass:
    """A pass, with changed rates if it is the pass for Winograd and the machine has rates."""
    rates = MACHINE_RATES.get(blocked_channels() or 0)
    if changed is None or rates is None or not isinstance(step, Winograd):
        return step
    return replace(step, rates=changed(step.rates or rates))


def report_like(first: Job, job: Job, graph: Graph, cost_model: CostModel, changes: Changes) -> None:
    """Report the plan of a variant at the prices of the first plan.

    Args:
        first: the job of the call.
        job: the job of the variant.
        graph: its planned graph.
        cost_model: the cost model of the first plan.
        changes: the changes of the variant.
    """
    context, plan, first_plan = job.context, job.context.plan, first.context.plan
    job.passes = [each for each in job.passes if each.name != EndAtKnownPlan.name]
    job.calibration, has_same_ops = first.calibration, not changes.omitted and not changes.unfused
    if plan is None or first_plan is None or not (changes.has_factors or changes.has_target_prices):
        job.gain = gain_of_variant(first.gain, plan.seconds, has_same_ops=has_same_ops) if plan is not None else None
        return
    context.cost_model = cost_model
    found = graph_report(
        graph,
        sized(cost_model, context.sizes),
        context.sizes,
        keeps_qdq_groups=context.keeps_qdq_groups,
        target_model=job.target_model,
    )
    seconds = sum(each.seconds for each in found.ops) + sum(each.seconds for each in found.casts)
    # The scaled price of a plan is at most the price times the largest factor, which bounds the price from below.
    scaled_bound = 0.0 if changes.has_target_prices else plan.lower_bound / changes.factors.largest
    bound = min(seconds, first_plan.lower_bound if has_same_ops else scaled_bound)
    gap = 1 - bound / seconds if seconds else 0.0
    baseline = first_plan.baseline if has_same_ops else plan.baseline
    job.gain = gain_of_variant(first.gain, seconds, has_same_ops=has_same_ops)
    context.plan = replace(plan, seconds=seconds, baseline=baseline, lower_bound=bound, gap=gap, optimal=False)


__all__ = ["SAME_PLAN", "EndAtKnownPlan", "plan_key", "report_like", "variant_job"]
