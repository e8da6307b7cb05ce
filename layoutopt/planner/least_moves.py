"""The least number of moves: the planning problem with a price of 1 for a cast and 0 for a kernel.

The fastest plan may have more moves, if a faster kernel requires a conversion. The result is a lower bound for comparison, not
a plan.
"""

from dataclasses import replace
from math import ceil

from layoutopt.cost import CostModelWrapper, emulation_conversions
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.planner.planning import make_plan
from layoutopt.planner.request import PlanRequest

_ROUNDING = 1e-6


def least_moves(request: PlanRequest) -> int:
    """A lower bound on the number of casts and view ops that move bytes of activations, over all plans of these candidates.

    Args:
        request: the planning request. The kernels of its target determine the candidates; an emulated op counts the conversions
            within it. If the deadline ends the search, the bound is the one that is proven by then, at least 0.
    """
    counting = _MoveCounter(request.cost_model)
    plan = make_plan(
        replace(
            request,
            cost_model=counting,
            weights_by_runs=False,
            breaks_ties=False,
            guards=(),
            memo=None,
        )
    )
    return max(0, ceil(plan.lower_bound - _ROUNDING))


class _MoveCounter(CostModelWrapper):
    """A cost model with the kernels of another model and a price of 1 for every move."""

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        return float(emulation_conversions(self._model, op, signature))

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        if value.shape is None:
            return float(src.format != dst.format)
        return float(not src.satisfies(dst, value.shape))


__all__ = ["least_moves"]
