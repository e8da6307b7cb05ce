"""Leaves the model as it is where the rewritten one would be no faster.

before: a planned graph
after:  the same; if nothing was gained, the pipeline ends here, unless sessions are to be fast
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class CheckGain(Pass):
    """End the pipeline if neither plan nor rewrite makes the model faster, no format is pinned, and sessions are balanced."""

    name = "check-gain"
    is_reason = False
    is_whole = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Set the reason for which the model stays as it is."""
        plan = context.plan
        if context.pins or context.is_rewritten or context.sessions == "fast" or (plan is not None and plan.improves):
            return
        context.unchanged = "no other formats are estimated to be faster"
        if plan is not None and plan.stopped:
            context.unchanged = f"the time limit ended planning ({plan.stopped}) before a faster plan was found"


__all__ = ["CheckGain"]
