"""How few moves could there be? The same candidates, but a cast costs 1 and a kernel nothing.

What a plan that minimises seconds moves need not be the least: a slower kernel may read what is there. So this is a bound
and a measure of how much the formats cost, not a plan to be wished for.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from layoutopt.cost import CostModel, Emulating
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats
from layoutopt.planner.planning import make_plan
from layoutopt.planner.request import PlanRequest

_ROUNDING = 1e-6


def least_moves(request: PlanRequest) -> int:
    """A lower bound on the number of casts and view ops that move bytes of activations, over all plans of these candidates.

    Args:
        request: the planning request. Its target's kernels make the candidates; an op that the target emulates counts the
            conversions within it. Where the deadline ends the search, the bound is the one that is proven by then, at least 0.
    """
    plan = make_plan(replace(request, cost_model=_Counting(request.cost_model), by_runs=False, guards=()))
    return max(0, ceil(plan.lower_bound - _ROUNDING))


class _Counting:
    """A cost model that wants what another one wants, and counts moves."""

    def __init__(self, model: CostModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def dialect(self) -> str:
        return self._model.dialect

    def kernels(self, op: Op) -> Sequence[OperandFormats]:
        return self._model.kernels(op)

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        return float(self._model.hidden_conversions(op, signature)) if isinstance(self._model, Emulating) else 0.0

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        if value.shape is None:
            return float(src.format != dst.format)
        moves = src.lanes > dst.lanes or src.format.key(value.shape) != dst.format.key(value.shape)
        return float(moves)


__all__ = ["least_moves"]
