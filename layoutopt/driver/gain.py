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
from layoutopt.dialects.onnxruntime.winograd import Winograd
from layoutopt.errors import InvariantError
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.kernel_times import RefinedPlan
from layoutopt.kernel_times.baseline import kernels_in_default_formats
from layoutopt.kernel_times.prices import UsedKernel, total_seconds
from layoutopt.passes.casts import PretransformWeights
from layoutopt.passes.planning import has_quantized_ops
from layoutopt.planner import Plan
from layoutopt.planner.problem import TOLERANCE
from layoutopt.report.schema import GainReport
from layoutopt.report.units import seconds

_NEGLIGIBLE = 1e-3  # of the time of the original


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
    formatted, after = total_seconds(with_planned_formats), found.plan.seconds
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


def within_growth(gain: GainReport | None, requests: Iterable[GrowthRequest]) -> GainReport | None:
    """The gain without that of constants that exceed the permitted growth of the file.

    Args:
        gain: the gain of the plan, for which all constants may be packed and all algorithms that are faster may be used.
        requests: the requests for growth, of which those that were declined count: Winograd's, and packed constants, which are
            converted at run time instead.
    """
    if gain is None:
        return None
    declined = [each for each in requests if not each.is_accepted]
    converting = sum(each.seconds for each in declined if each.source == PretransformWeights.name)
    direct = sum(each.seconds for each in declined if each.source == Winograd.name)
    lost = max(0.0, min(direct, gain.algorithms))
    changes = {
        "seconds_after": gain.seconds_after + lost + converting,
        "formats": gain.formats - converting,
        "algorithms": gain.algorithms - lost,
    }
    return gain.model_copy(update=changes) if lost or converting else gain


def reason_of_loss(gain: GainReport | None, requests: Iterable[GrowthRequest]) -> str:
    """The reason to keep the original if the plan is estimated to be slower; empty if it is not.

    Args:
        gain: the gain within the permitted growth.
        requests: the requests for growth.
    """
    if gain is None or gain.seconds_after <= gain.seconds_before * (1 + _NEGLIGIBLE):
        return ""
    slower = f"{seconds(gain.seconds_before)} -> {seconds(gain.seconds_after)}"
    growth = "" if all(each.is_accepted for each in requests) else ", within the permitted growth of the file"
    return f"the best plan is estimated to be slower than the original{growth}: {slower}"


def check_bound(plan: Plan, gain: GainReport | None) -> None:
    """Check that the lower bound has the prices of the estimates.

    Raises:
        InvariantError: it exceeds the estimated time of the plan.
    """
    after = plan.seconds if gain is None else gain.seconds_after
    if plan.lower_bound > min(after, plan.seconds) * (1 + TOLERANCE):
        what = (
            f"the lower bound {plan.lower_bound:g} s exceeds the estimate {after:g} s of the plan of {plan.seconds:g} s"
        )
        raise InvariantError(what, hint="this is a bug; please report it with the model")


def _move_seconds(kernels: Sequence[UsedKernel]) -> float:
    """The seconds of the conversions among kernels."""
    return total_seconds(each for each in kernels if each.is_move)


__all__ = [
    "check_bound",
    "gain_at_target_prices",
    "gain_at_timed_prices",
    "reason_of_loss",
    "within_growth",
]
