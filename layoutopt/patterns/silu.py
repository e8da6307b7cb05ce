"""x * Sigmoid(alpha * x): SiLU, or Swish, where alpha is 1; with 1.702 an approximation of Gelu.

before: x * Sigmoid(alpha * x)
after:  QuickGelu(x, alpha)

The definition: Ramachandran, Zoph and Le, Searching for Activation Functions, arXiv:1710.05941.
"""

from typing_extensions import override

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.patterns.base import FusionPattern, Match, register_pattern
from layoutopt.patterns.gated_activation import gated_activations, is_near, polynomial


@register_pattern
class QuickGelu(FusionPattern):
    """A gated sigmoid with any alpha."""

    name = "quick-gelu"
    fused_op = "com.microsoft::QuickGelu"
    root_ops = ("Sigmoid",)

    @override
    def match(self, graph: Graph, op: Op) -> Match | None:
        inside = op.inputs[0]
        if inside is None:
            return None
        for activation in gated_activations(graph, op):
            if not is_near(activation.scale, 1.0) or activation.shift:
                continue
            found = polynomial(graph, inside, activation.x)
            if found is not None and len(found[0]) == 2 and not found[0][0]:
                alpha = float(found[0][1])
                inner = list(dict.fromkeys([*activation.inner, *found[1]]))
                return Match(activation.result, inner, (activation.x,), {"alpha": alpha})
        return None
