"""The estimated gain of a plan over the original as the runtime runs it by itself, by cause (`GainReport`).

    other runtimes   folded graph in canonical formats -> the plan                                     formats
    onnxruntime      folded graph in onnxruntime's own formats -> the plan                      formats
      kernels timed  original after onnxruntime's optimiser, in its own formats -> folded graph  folding
                     -> with all fusions -> the plan's formats -> with Winograd                 fusion, formats, algorithms

Both ends of a step have the same prices, so that the causes add up to the gain.
"""

from collections.abc import Sequence

from layoutopt.cost import CostModel
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.kernel_times import RefinedPlan
from layoutopt.kernel_times.baseline import kernels_in_own_formats
from layoutopt.kernel_times.plan_kernels import UsedKernel, total_seconds
from layoutopt.passes.check_gain import has_quantized_ops
from layoutopt.planner import Plan
from layoutopt.report.schema import GainReport


def gain_at_target_prices(
    graph: Graph, model: CostModel, sizes: Sizes, plan: Plan, *, has_blocks: bool
) -> GainReport | None:
    """The gain of a plan at the prices of the target; None for several targets.

    Args:
        graph: the graph, unplanned.
        model: the cost model.
        sizes: the sizes of symbolic dimensions.
        plan: the plan.
        has_blocks: whether the runtime chooses blocked formats by itself.
    """
    if plan.outcomes:
        return None
    own: list[UsedKernel] = []
    if has_blocks and not has_quantized_ops(graph):
        own = kernels_in_own_formats(graph, model, (), sizes)
    before = total_seconds(own) if own else plan.baseline
    return _over_folded(before, plan)


def _over_folded(before: float, plan: Plan) -> GainReport:
    """The gain of a plan over the folded graph, which takes `before` seconds."""
    saved = before - plan.seconds
    return GainReport(baseline="folded", seconds_before=before, seconds_after=plan.seconds, formats=saved)


def gain_at_timed_prices(found: RefinedPlan) -> GainReport:
    """The gain of a plan for onnxruntime at measured prices; over the graph in canonical formats if an extent is not known.

    Kernels that no plan has used have corrected estimates, so the causes have larger errors than the gain.
    """
    if not found.folded:
        return _over_folded(found.plan.baseline, found.plan)
    original = found.before or found.folded
    steps = (original, found.folded, found.fused, found.direct, found.kernels)
    before, folded, fused, direct, after = map(total_seconds, steps)
    return GainReport(
        baseline="optimised" if found.before else "folded",
        seconds_before=before,
        seconds_after=after,
        folding=before - folded,
        fusion=folded - fused,
        formats=fused - direct,
        data_movement=_moves(found.fused) - _moves(found.direct),
        algorithms=direct - after,
    )


def gain_of_variant(first: GainReport | None, seconds: float, *, has_same_ops: bool) -> GainReport | None:
    """The gain of another plan for the same original, at the same prices.

    Args:
        first: the gain of the first plan.
        seconds: the estimated time of the other plan.
        has_same_ops: whether it differs in formats only; otherwise the difference counts as folding.
    """
    if first is None:
        return None
    saved = first.seconds_after - seconds
    cause = {"formats": first.formats + saved} if has_same_ops else {"folding": first.folding + saved}
    return first.model_copy(update={"seconds_after": seconds, "data_movement": None, **cause})


def _moves(kernels: Sequence[UsedKernel]) -> float:
    return total_seconds(each for each in kernels if each.is_move)


__all__ = ["gain_at_target_prices", "gain_at_timed_prices", "gain_of_variant"]
