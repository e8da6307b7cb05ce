"""Keep the original if the rewritten model would be no faster.

before: a planned graph
after:  the same graph; the pipeline ends here if nothing was gained, except with `sessions="fast"`
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ops.interfaces import is_quantized
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class CheckGain(Pass):
    """End the pipeline if neither plan nor rewrite makes the model faster, no format is pinned, and sessions are balanced.

    For a quantised model with passes after baking, `reason_to_keep` is called after these passes instead.
    """

    name = "check-gain"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Set the reason to keep the original, if there is one."""
        if not (context.has_baked_passes and has_quantized_ops(graph)):
            context.reason_to_keep = reason_to_keep(context)


def has_quantized_ops(graph: Graph) -> bool:
    """Whether an op of the graph, at any depth, computes on integers of few bits or converts to or from them."""
    return any(is_quantized(op) for each in regions_with_rule(graph) for op in each.ops)


def reason_to_keep(context: PassContext) -> str:
    """The reason to return the original; empty if the plan, a pass, a pin or fast sessions justify the rewritten model."""
    plan = context.plan
    if context.pins or context.is_rewritten or context.sessions == "fast" or (plan is not None and plan.improves):
        return ""
    if plan is not None and plan.stopped:
        return f"the time limit ended planning ({plan.stopped}) before a faster plan was found"
    return "no other formats are estimated to be faster"


__all__ = ["CheckGain", "has_quantized_ops", "reason_to_keep"]
