"""The estimated gain of a plan over the original as the runtime runs it by itself, by cause (`GainReport`).

    other runtimes   folded graph in canonical formats -> the plan                                 formats
    onnxruntime      folded graph in onnxruntime's default formats -> the plan                     formats
      kernels timed  original after onnxruntime's optimiser, in its default formats -> folded graph  folding
                     -> with all fusions -> the plan's formats -> with Winograd                    fusion, formats, algorithms

Both ends of a step have the same prices, so that the causes add up to the gain.
"""

from collections.abc import Iterable, Sequence

from layoutopt.cost import CostModel
from layoutopt.cost.size_growth import GrowthRequest
from layoutopt.dialects.onnxruntime.passes.winograd import Winograd
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.kernel_times import RefinedPlan
from layoutopt.kernel_times.baseline import kernels_in_default_formats
from layoutopt.kernel_times.plan_kernels import UsedKernel, total_seconds
from layoutopt.passes.check_gain import has_quantized_ops
from layoutopt.planner import Plan
from layoutopt.report.schema import GainReport


def gain_at_target_prices(
    graph: Graph, model: CostModel, sizes: Sizes, plan: Plan, *, chooses_blocked_formats: bool
) -> GainReport | None:
    """The gain of a plan at the prices of the target; None for several targets.

    Args:
        graph: the graph, unplanned.
        model: the cost model.
        sizes: the sizes of symbolic dimensions.
        plan: the plan.
        chooses_blocked_formats: whether the runtime chooses blocked formats by itself.
    """
    if plan.outcomes:
        return None
    kernels: list[UsedKernel] = []
    if chooses_blocked_formats and not has_quantized_ops(graph):
        kernels = kernels_in_default_formats(graph, model, {}, sizes)
    before = total_seconds(kernels) if kernels else plan.baseline
    return _over_folded(before, plan)


def _over_folded(before: float, plan: Plan) -> GainReport:
    """The gain of a plan over the folded graph, which takes `before` seconds."""
    saved = before - plan.seconds
    return GainReport(baseline="folded", seconds_before=before, seconds_after=plan.seconds, formats=saved)


def gain_at_timed_prices(found: RefinedPlan) -> GainReport:
    """The gain of a plan for onnxruntime at measured prices; over the graph in canonical formats if an extent is not known.

    Kernels that no plan has used have corrected estimates, so the causes have larger errors than the gain.
    """
    if not found.folded_kernels:
        return _over_folded(found.plan.baseline, found.plan)
    with_all_fusions, with_planned_formats = (
        found.folded_kernels_with_all_fusions,
        found.kernels_with_default_algorithms,
    )
    before = total_seconds(found.original_kernels or found.folded_kernels)
    folded, fused = total_seconds(found.folded_kernels), total_seconds(with_all_fusions)
    formatted, after = total_seconds(with_planned_formats), total_seconds(found.kernels)
    return GainReport(
        baseline="optimised" if found.original_kernels else "folded",
        seconds_before=before,
        seconds_after=after,
        folding=before - folded,
        fusion=folded - fused,
        formats=fused - formatted,
        data_movement=_move_seconds(with_all_fusions) - _move_seconds(with_planned_formats),
        algorithms=formatted - after,
    )


def without_declined_algorithms(gain: GainReport | None, requests: Iterable[GrowthRequest]) -> GainReport | None:
    """The gain without that of convolutions whose transformed filters exceed the permitted growth of the file.

    Args:
        gain: the gain of the plan with all algorithms that are faster.
        requests: the requests for growth, of which Winograd's that were declined count.
    """
    if gain is None:
        return None
    declined = sum(each.seconds for each in requests if each.source == Winograd.name and not each.is_accepted)
    lost = max(0.0, min(declined, gain.algorithms))
    changes = {"seconds_after": gain.seconds_after + lost, "algorithms": gain.algorithms - lost}
    return gain.model_copy(update=changes) if lost else gain


def _move_seconds(kernels: Sequence[UsedKernel]) -> float:
    """The seconds of the conversions among kernels."""
    return total_seconds(each for each in kernels if each.is_move)


__all__ = ["gain_at_target_prices", "gain_at_timed_prices", "without_declined_algorithms"]
