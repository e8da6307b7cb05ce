"""Fusion patterns of activations: GELU by the error function or by tanh, and SiLU."""

from collections.abc import Mapping
from math import pi, sqrt
from typing import ClassVar

import numpy as np
from typing_extensions import override

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Attribute, DType, Op, Value
from layoutopt.ops.base import OLDEST_OPSET
from layoutopt.patterns.base import FusionPattern, Match, multiple, number, other_input, register_pattern, result_of

# Gated activations: a tensor times a bounded function f of itself.
#
# Exporters write the factors in any order: x * (0.5 * (1 + f)), 0.5 * (x * (1 + f)), (0.5 * x) * (1 + f), ... So the
# matcher does not compare ops. It computes the argument of f and the product from numbers in place of x and f, and compares
# the results with the definition.

_ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power}
_MAX_OPS = 8  # the largest number of consecutive ops in front of f, or behind it
_X = np.array([1.0, -0.25, 0.5, 1.5, 3.0])
_F = np.array([0.75, -0.5, 0.25, -0.125, 0.5])
TOLERANCE = 1e-6  # relative, of results: exporters round constants to float32, which is 6e-8, once or twice


class GatedActivation(FusionPattern):
    """A product of x and a function of f(argument(x))."""

    min_rank: ClassVar[int] = 0
    """The smallest rank that the kernel of the fused op accepts."""

    def argument(self, x: Array, slope: float) -> Array:
        """The argument of f, which is `slope` where x is 1."""
        raise NotImplementedError

    def product(self, x: Array, f: Array) -> Array:
        """The result."""
        return 0.5 * x * (1.0 + f)

    def attributes(self, slope: float) -> Mapping[str, Attribute]:
        """The attributes of the fused op."""
        del slope
        return {}

    @override
    def match(self, graph: Graph, op: Op) -> Match | None:
        value, candidates = result_of(op), list[Value]()
        for _ in range(_MAX_OPS):
            reader = graph.only_reader(value)
            other = other_input(reader, value) if reader is not None and value is not None else None
            if reader is None or other is None or op.version < OLDEST_OPSET:
                return None
            if number(other) is None:
                scaled = multiple(graph, other)
                candidates += [other] if scaled is None else [other, scaled.value]
            value = result_of(reader)
            for x in candidates:
                if value is not None and (match := self._match(graph, op, x, value)) is not None:
                    return match
        return None

    def _match(self, graph: Graph, op: Op, x: Value, result: Value) -> Match | None:
        """The match, if `result` is the activation of `x`."""
        if {x.dtype, result.dtype} != {DType.FLOAT32} or x.rank is None or x.rank != result.rank:
            return None
        inner = [op]
        argument = _computed(graph, op.inputs[0], {x: _X}, inner)
        product = _computed(graph, result, {x: _X, result_of(op): _F}, inner)
        if argument is None or product is None or x.rank < self.min_rank:
            return None
        slope = float(argument.flat[0])
        if not _is_near(argument, self.argument(_X, slope)) or not _is_near(product, self.product(_X, _F)):
            return None
        return Match(result, list(dict.fromkeys(inner)), (x,), self.attributes(slope))


def _computed(
    graph: Graph, value: Value | None, known: Mapping[Value | None, Array], inner: list[Op], depth: int = _MAX_OPS
) -> Array | None:
    """The numbers of a value, from those of other values and constants; None if it depends on anything else.

    The ops are added to `inner`.
    """
    if value in known:
        return known[value]
    if (constant := number(value)) is not None:
        return np.asarray(constant, np.float64)
    op = graph.producer(value)
    if op is None or op.kind not in _ARITHMETIC or not depth:
        return None
    one, other = (_computed(graph, each, known, inner, depth - 1) for each in op.inputs)
    if one is None or other is None:
        return None
    inner.append(op)
    with np.errstate(all="ignore"):
        return np.asarray(_ARITHMETIC[op.kind](one, other))


def _is_near(found: Array, expected: Array) -> bool:
    return np.allclose(found, expected, rtol=TOLERANCE, atol=0.0)


@register_pattern
class Gelu(GatedActivation):
    """Gelu by the error function.

    before: x * (0.5 * (1 + Erf(x / sqrt(2))))                                    in any order of the factors
    after:  Gelu(x)

    The definition: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415.
    """

    name = "gelu"
    fused_op = "com.microsoft::Gelu"
    root_ops: ClassVar[tuple[str, ...]] = ("Erf",)

    @override
    def argument(self, x: Array, slope: float) -> Array:
        return x / sqrt(2.0)


@register_pattern
class FastGelu(GatedActivation):
    """Gelu by tanh of a polynomial.

    before: 0.5 * x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
    after:  FastGelu(x)
    """

    name = "fast-gelu"
    fused_op = "com.microsoft::FastGelu"
    root_ops: ClassVar[tuple[str, ...]] = ("Tanh",)
    min_rank = 1

    @override
    def argument(self, x: Array, slope: float) -> Array:
        return sqrt(2.0 / pi) * (x + 0.044715 * x**3)


@register_pattern
class QuickGelu(GatedActivation):
    """A gated sigmoid with any alpha.

    before: x * Sigmoid(alpha * x)
    after:  QuickGelu(x, alpha)

    The definition: Ramachandran, Zoph and Le, Searching for Activation Functions, arXiv:1710.05941.
    """

    name = "quick-gelu"
    fused_op = "com.microsoft::QuickGelu"
    root_ops: ClassVar[tuple[str, ...]] = ("Sigmoid",)

    @override
    def argument(self, x: Array, slope: float) -> Array:
        return slope * x

    @override
    def product(self, x: Array, f: Array) -> Array:
        return x * f

    @override
    def attributes(self, slope: float) -> Mapping[str, Attribute]:
        return {"alpha": slope}
