"""x * Phi(x), Phi the distribution function of the normal distribution, and its approximation by tanh.

before: x * (0.5 * (1 + Erf(x / sqrt(2))))                                    in any order of the factors
after:  Gelu(x)

before: 0.5 * x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
after:  FastGelu(x)

The definition: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415.
"""

from math import pi, sqrt
from typing import ClassVar

from typing_extensions import override

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.patterns.base import FusionPattern, Match, register_pattern
from layoutopt.patterns.gated_activation import gated_activations, is_near, is_polynomial, polynomial


@register_pattern
class Gelu(FusionPattern):
    """Gelu by the error function."""

    name = "gelu"
    fused_op = "com.microsoft::Gelu"
    root_ops: ClassVar[tuple[str, ...]] = ("Erf",)
    argument: ClassVar[tuple[float, ...]] = (0.0, 1.0 / sqrt(2.0))

    @override
    def match(self, graph: Graph, op: Op) -> Match | None:
        inside = op.inputs[0]
        if inside is None:
            return None
        for activation in gated_activations(graph, op):
            if not (is_near(activation.scale, 0.5) and is_near(activation.shift, 0.5)):
                continue
            found = polynomial(graph, inside, activation.x)
            if found is not None and is_polynomial(found[0], *self.argument):
                return Match(activation.result, list(dict.fromkeys([*activation.inner, *found[1]])), (activation.x,))
        return None


@register_pattern
class FastGelu(Gelu):
    """Gelu by tanh of a polynomial."""

    name = "fast-gelu"
    fused_op = "com.microsoft::FastGelu"
    root_ops = ("Tanh",)
    argument = (0.0, sqrt(2.0 / pi), 0.0, sqrt(2.0 / pi) * 0.044715)

    def match(self, graph: Graph, op: Op) -> Match | None:
        """As for Gelu; the kernel of the fused op does not accept scalars."""
        found = super().match(graph, op)
        return found if found is not None and found.inputs[0] is not None and found.inputs[0].rank else None
