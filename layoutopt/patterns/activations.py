"""Fusion patterns of activations: GELU by the error function or by tanh, and SiLU."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import pi, sqrt
from typing import ClassVar

import numpy as np
from numpy.polynomial.polynomial import polyadd, polymul, polypow, polysub
from typing_extensions import override

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Op, Value
from layoutopt.ops.base import OLDEST_OPSET
from layoutopt.patterns.base import FusionPattern, Match, multiple, number, other_input, register_pattern, result_of

# Gated activations: a tensor times a bounded function of itself, (a * f(p(x)) + b) * x, p a polynomial.
#
#     Gelu        f = Erf       p = x / sqrt(2)                               a = b = 1/2
#     fast Gelu   f = Tanh      p = sqrt(2/pi) * (x + 0.044715 * x^3)         a = b = 1/2
#     quick Gelu  f = Sigmoid   p = alpha * x                                 a = 1, b = 0
#
# Exporters write the factors in any order: x * (0.5 * (1 + f)), 0.5 * (x * (1 + f)), (0.5 * x) * (1 + f), ... So the
# matcher visits the readers of f and folds constants into a and b up to the multiplication by x. Then it computes the
# argument of f as a polynomial in x.

TOLERANCE = 1e-6  # relative, of constants: exporters round them to float32, which is 6e-8, once or twice

_MAX_OPS = 8  # the largest number of ops of a polynomial
_MAX_DEGREE = 3


@dataclass(slots=True)
class GatedActivation:
    """A product (scale * f(argument) + shift) * x around f.

    Attributes:
        x: the tensor.
        result: the product.
        scale, shift: the constants.
        inner: the ops that compute it from f on, including f.
    """

    x: Value
    result: Value
    scale: float
    shift: float
    inner: list[Op] = field(default_factory=list)


def gated_activations(graph: Graph, f: Op) -> Iterator[GatedActivation]:
    """Every gated activation that the readers of f compute; if x is a multiple of a value, also that of the value."""
    value, scale, shift = result_of(f), 1.0, 0.0
    inner, factor = [f], None
    while value is not None and f.version >= OLDEST_OPSET and (op := graph.only_reader(value)) is not None:
        other = other_input(op, value)
        constant = number(other)
        inner.append(op)
        if op.kind == "Mul" and constant is not None:
            scale, shift = scale * constant, shift * constant
        elif op.kind == "Div" and constant and op.inputs[0] is value:
            scale, shift = scale / constant, shift / constant
        elif op.kind == "Add" and constant is not None and factor is None:
            shift += constant
        elif op.kind == "Mul" and other is not None and not other.is_constant and factor is None:
            factor = other
        else:
            return
        value = result_of(op)
        if factor is not None and value is not None:
            yield from _interpretations(graph, factor, GatedActivation(factor, value, scale, shift, inner))


def _interpretations(graph: Graph, factor: Value, product: GatedActivation) -> Iterator[GatedActivation]:
    """The gated activation of the factor, and that of the value of which the factor is a multiple."""
    bases = [(factor, 1.0, list(product.inner))]
    if (found := multiple(graph, factor)) is not None:
        bases.append((found.value, found.factor, [*product.inner, found.op]))
    for x, number_of_x, inner in bases:
        types = {x.dtype, product.result.dtype}
        if types == {DType.FLOAT32} and x.rank is not None and x.rank == product.result.rank:
            yield GatedActivation(x, product.result, product.scale * number_of_x, product.shift * number_of_x, inner)


def polynomial(graph: Graph, value: Value, x: Value) -> tuple[Array, list[Op]] | None:
    """The coefficients of a value as a polynomial in x, the constant first, and its ops; None if it is no polynomial in x."""
    known: dict[Value, Array] = {x: np.array([0.0, 1.0])}
    inner: list[Op] = []
    pending = [value]
    while pending:
        each = pending[-1]
        constant, op = number(each), graph.producer(each)
        if each in known or constant is not None:
            known.setdefault(each, np.array([constant or 0.0]))
            pending.pop()
            continue
        if op is None or len(op.inputs) != 2 or len(pending) > _MAX_OPS or len(inner) > _MAX_OPS:
            return None
        first, second = op.inputs
        if first is None or second is None:
            return None
        missing = [other for other in (first, second) if other not in known]
        if missing:
            pending += missing
            continue
        result = _combined(op.kind, known[first], known[second])
        if result is None or len(result) > _MAX_DEGREE + 1:
            return None
        known[each] = result
        inner.append(op)
    return known[value], inner


def _combined(kind: str, one: Array, other: Array) -> Array | None:
    """The result of an op on two polynomials; None if it is no polynomial."""
    is_number = len(other) == 1
    result: Array
    match kind:
        case "Add":
            result = polyadd(one, other)
        case "Sub":
            result = polysub(one, other)
        case "Mul":
            result = polymul(one, other)
        case "Div" if is_number and other[0]:
            result = one / other[0]
        case "Pow" if is_number and other[0] in (2.0, 3.0) and len(one) == 2:
            result = polypow(one, int(other[0]))
        case _:
            return None
    return np.asarray(result, dtype=np.float64)


def is_near(found: float, expected: float) -> bool:
    """Whether two numbers are equal up to rounding."""
    return abs(found - expected) <= TOLERANCE * abs(expected)


def is_polynomial(found: Array, *expected: float) -> bool:
    """Whether coefficients, the constant first, are equal up to rounding."""
    return len(found) == len(expected) and all(map(is_near, map(float, found), expected))


@register_pattern
class Gelu(FusionPattern):
    """Gelu by the error function.

    before: x * (0.5 * (1 + Erf(x / sqrt(2))))                                    in any order of the factors
    after:  Gelu(x)

    before: 0.5 * x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
    after:  FastGelu(x)

    The definition: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415.
    """

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


@register_pattern
class QuickGelu(FusionPattern):
    """A gated sigmoid with any alpha.

    before: x * Sigmoid(alpha * x)
    after:  QuickGelu(x, alpha)

    The definition: Ramachandran, Zoph and Le, Searching for Activation Functions, arXiv:1710.05941.
    """

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
