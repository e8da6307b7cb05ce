"""Fusion patterns of activations: GELU by the error function or by tanh, and SiLU."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from typing_extensions import override

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Op, Value
from layoutopt.ops.base import OLDEST_OPSET
from layoutopt.patterns.base import FusionPattern, Match, add_pattern, multiple, number, other_input, result_of

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


@dataclass(frozen=True)
class GatedActivation(FusionPattern):
    """A product of x and a function of f(argument(x)).

    Attributes:
        name: the name in notes.
        fused_op: the kind of the fused op.
        root_ops: the op type of f.
        argument: the argument of f, given x and the argument where x is 1.
        product: the result, given x and f.
        has_alpha: whether the fused op has that argument as an attribute `alpha`.
        min_rank: the smallest rank that the kernel of the fused op accepts.
    """

    name: str
    fused_op: str
    root_ops: tuple[str, ...]
    argument: Callable[[Array, float], Array]
    product: Callable[[Array, Array], Array] = lambda x, f: 0.5 * x * (1.0 + f)
    has_alpha: bool = False
    min_rank: int = 0

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
        return Match(result, list(dict.fromkeys(inner)), (x,), {"alpha": slope} if self.has_alpha else {})


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


# before: x * (0.5 * (1 + Erf(x / sqrt(2))))                                            in any order of the factors
# after:  Gelu(x)                               Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415
add_pattern(GatedActivation("gelu", "com.microsoft::Gelu", ("Erf",), lambda x, slope: x / sqrt(2.0)))

# before: 0.5 * x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
# after:  FastGelu(x)
add_pattern(
    GatedActivation(
        "fast-gelu",
        "com.microsoft::FastGelu",
        ("Tanh",),
        lambda x, slope: sqrt(2.0 / pi) * (x + 0.044715 * x**3),
        min_rank=1,
    )
)

# before: x * Sigmoid(alpha * x)                Ramachandran, Zoph and Le, Searching for Activation Functions, arXiv:1710.05941
# after:  QuickGelu(x, alpha)
add_pattern(
    GatedActivation(
        "quick-gelu",
        "com.microsoft::QuickGelu",
        ("Sigmoid",),
        lambda x, slope: slope * x,
        lambda x, f: x * f,
        has_alpha=True,
    )
)
