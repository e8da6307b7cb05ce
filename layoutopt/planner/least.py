"""How few moves could there be? The same candidates, but a cast costs 1 and a kernel nothing.

What a plan that minimises seconds moves need not be the least: a slower kernel may read what is there. So this is a bound
and a measure of how much the formats cost, not a plan to be wished for.
"""

from collections.abc import Mapping
from math import ceil

from layoutopt.cost import CostModel, CostModelWrapper, emulation_conversions
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.planner.deadline import NO_DEADLINE, Deadline
from layoutopt.planner.plan import make_plan

_ROUNDING = 1e-6


def least_moves(
    graph: Graph,
    cost_model: CostModel,
    *,
    pins: Mapping[Value, Format] | None = None,
    free_constants: bool = True,
    whole_units: bool = False,
    deadline: Deadline = NO_DEADLINE,
) -> int:
    """A number of casts and renames that move bytes of activations than which no plan of these candidates has fewer.

    Args:
        graph: the graph, unplanned.
        cost_model: the target, whose kernels make the candidates. What it emulates costs the conversions that hides.
        pins: formats that values must have.
        free_constants: whether constants are converted ahead of time, and count for nothing.
        whole_units: whether quantised units stay as they are.
        deadline: the end of the time for planning; after it the bound is the one that is proven by then, 0 at the least.
    """
    counting = _Counting(cost_model)
    plan = make_plan(
        graph,
        counting,
        pins=pins,
        free_constants=free_constants,
        whole_units=whole_units,
        deadline=deadline,
        by_runs=False,
    )
    return max(0, ceil(plan.lower_bound - _ROUNDING))


class _Counting(CostModelWrapper):
    """A cost model with the kernels of another one and 1 for every move as its price."""

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        return float(emulation_conversions(self._model, op, signature))

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        if value.shape is None:
            return float(src.format != dst.format)
        return float(not src.satisfies(dst, value.shape))


__all__ = ["least_moves"]
