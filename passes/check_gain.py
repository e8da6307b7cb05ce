"""Leaves the model as it is where the rewritten one would be no faster.

before: a planned graph
after:  the same; if nothing was gained, the pipeline ends here, unless sessions are to be fast
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ops.interfaces.numerics import is_quantized
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class CheckGain(Pass):
    """End the pipeline if neither plan nor rewrite makes the model faster, no format is pinned, and sessions are balanced.

    A quantised model that has passes after baking is judged behind these.
    """

    name = "check-gain"
    is_reason = False
    is_whole = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Set the reason for which the model stays as it is."""
        if not (context.has_baked_passes and has_quantized_ops(graph)):
            context.unchanged = reason_to_keep(context)


def has_quantized_ops(graph: Graph) -> bool:
    """Whether an op of the graph, at any depth, computes on integers of few bits or converts to or from them."""
    return any(is_quantized(op) for each in regions_with_rule(graph) for op in each.ops)


def reason_to_keep(context: PassContext) -> str:
    """The reason for which a model stays as it is; empty if plan, rewrite, pin or fast sessions are a reason for it."""
    plan = context.plan
    if context.pins or context.is_rewritten or context.sessions == "fast" or (plan is not None and plan.improves):
        return ""
    if plan is not None and plan.stopped:
        return f"the time limit ended planning ({plan.stopped}) before a faster plan was found"
    return "no other formats are estimated to be faster"


__all__ = ["CheckGain", "has_quantized_ops", "reason_to_keep"]
