"""Every lemma of the checker, on random small terms: the value of a term is that of its other side.

The values are those of onnx's reference implementation in float64. The proofs are in tests/proofs.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.lemmas import LEMMAS
from layoutopt.certificate.checker.normal import general, transposed
from layoutopt.certificate.checker.terms import CONSTANT, LEAF, OPSET, VIEW, Array, Term, constant, leaf, node_of

FLOAT = 1
Random = np.random.Generator
Values = Mapping[str, Array]

BY_NAME = {lemma.name: lemma for lemma in LEMMAS}


def value(term: Term, values: Values) -> Array:
    """The elements of a term, for given elements of its leaves."""
    if term.op == LEAF:
        return values["x"]
    if term.op == CONSTANT:
        return term.elements
    operands = [None if arg is None else value(arg, values) for arg in term.args]
    if term.op == VIEW:
        assert operands[0] is not None
        return maps.rearranged(operands[0], term["axes"], term.shape)
    if term.op == "Reshape":
        assert operands[0] is not None
        return operands[0].reshape([int(extent) for extent in term.shape])
    if term.op in ("Add", "Mul"):
        combine = np.add if term.op == "Add" else np.multiply
        return np.asarray(reduce(combine, [each for each in operands if each is not None]))
    if term.op == "IsNaN":
        return np.isnan(np.asarray(operands[0], np.float64))
    given = [
        None if arg is None or each is None else constant(each, arg.dtype)
        for arg, each in zip(term.args, operands, strict=True)
    ]
    return computed(term.op, given, dict(term.attributes))


def computed(op: str, args: list[Term | None], attributes: dict[str, Any]) -> Array:
    """The value of an operator on constants, by onnx's reference implementation in float64."""
    node, arrays = node_of(op, args, attributes)
    feeds = {f"x{k}": arg.elements for k, arg in enumerate(args) if arg is not None} | arrays
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info(name) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])


def x(*shape: int) -> Term:
    return leaf("x", shape, FLOAT)


def numbers(random: Random, *shape: int) -> Term:
    """A constant of small integers, which sums of products represent exactly."""
    return constant(random.integers(-4, 5, shape).astype(np.float64), FLOAT)


def number(value: Any, dtype: int = FLOAT) -> Term:
    return constant(np.asarray(value, np.float64), dtype)


def op(kind: str, *args: Term) -> Term:
    """An operator to which no lemma has been applied."""
    return general(kind, args, {})


def conv(image: Term, filter: Term, group: int = 1, strides: Any = (1, 1), pads: Any = (0, 0, 0, 0)) -> Term:
    """A convolution to which no lemma has been applied."""
    return general("Conv", (image, filter), {"group": group, "strides": strides, "pads": pads, "dilations": (1, 1)})


# --- terms that are one side of a lemma ---------------------------------------------------------------------------

Case = Callable[[Random], Term]


def padded(image: Term, pads: tuple[int, ...]) -> Term:
    return general("Pad", (image,), {"mode": "constant", "pads": pads})


def twice(random: Random, inner: str, outer: str) -> Term:
    """Two operators with constants, of the columns and of the rows."""
    return op(outer, op(inner, x(5, 3), numbers(random, 3)), numbers(random, 5, 1))


def scaled_filters(random: Random) -> Term:
    product = conv(x(2, 4, 5, 5), numbers(random, 4, 2, 3, 3), group=2, strides=(2, 2))
    return op("Mul", product, numbers(random, 4, 1, 1))


def zero_shift(random: Random) -> Term:
    return op("Add", conv(x(1, 2, 4, 4), numbers(random, 3, 2, 1, 1)), number(np.zeros((3, 1, 1))))


CASES: dict[str, list[Case]] = {
    "depthwise-as-product": [lambda random: conv(x(2, 3, 4, 5), numbers(random, 3, 1, 1, 1), group=3)],
    "pad-into-convolution": [
        lambda random: conv(
            padded(x(1, 2, 5, 6), (0, 0, 1, 2, 0, 0, 0, 1)),
            numbers(random, 4, 2, 3, 3),
            pads=(1, 0, 1, 1),
            strides=(2, 1),
        ),
        lambda random: conv(
            transposed(padded(x(1, 5, 6, 2), (0, 1, 2, 0, 0, 0, 1, 0)), (0, 3, 1, 2)), numbers(random, 4, 2, 3, 3)
        ),
    ],
    "zero-filter": [lambda _: conv(number(np.ones((1, 2, 5, 5))), number(np.zeros((3, 2, 3, 3))))],
    "scale-into-filters": [scaled_filters],
    "product-with-one": [lambda _: op("Mul", x(5, 3), number(np.ones(3)))],
    "factor-of-shift": [lambda random: twice(random, "Add", "Mul")],
    "sum-of-shifts": [lambda random: twice(random, "Add", "Add")],
    "zero-shift": [zero_shift],
    "quotient-by-constant": [lambda _: op("Div", x(5, 3), number([0.5, 4.0, -2.0]))],
    "scale-into-rows": [lambda random: op("MatMul", op("Mul", x(5, 3), numbers(random, 3)), numbers(random, 3, 4))],
    "scale-into-matrix": [lambda random: op("Mul", op("MatMul", x(5, 3), numbers(random, 3, 4)), numbers(random, 4))],
    "pointwise-as-product": [lambda random: conv(transposed(x(2, 4, 5, 3), (0, 3, 1, 2)), numbers(random, 6, 3, 1, 1))],
}


# --- laws ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NAME)
def test_both_sides_have_the_same_value(name: str) -> None:
    random = np.random.default_rng(0)
    for build in CASES[name]:
        before = build(random)
        after = BY_NAME[name].rewrite(before)
        assert after is not None, f"{name} does not apply to {before.op}"
        assert after.shape == before.shape and after.dtype == before.dtype
        image = next(iter(leaves(before)), number(0))
        values = {"x": random.integers(-4, 5, image.shape).astype(np.float64)}
        np.testing.assert_allclose(value(after, values), value(before, values), rtol=1e-12, atol=1e-9)


def leaves(term: Term) -> list[Term]:
    return [term] if term.op == LEAF else [found for arg in term.args if arg is not None for found in leaves(arg)]


def test_every_case_is_of_a_lemma() -> None:
    assert set(CASES) == set(BY_NAME)


def refused(name: str, term: Term) -> bool:
    return BY_NAME[name].rewrite(term) is None


def test_conditions() -> None:
    """Terms that look like one side of a lemma, and are not."""
    random = np.random.default_rng(1)
    ones = general("Pad", (x(1, 2, 5, 6), number(1)), {"mode": "constant", "pads": (0, 0, 1, 1, 0, 0, 1, 1)})
    assert refused("pad-into-convolution", conv(ones, numbers(random, 4, 2, 3, 3)))
    cropped = padded(x(1, 2, 5, 6), (0, -1, 0, 0, 0, 0, 0, 0))
    assert refused("pad-into-convolution", conv(cropped, numbers(random, 4, 1, 3, 3)))
    for each in (x(1, 2, 5, 5), number(np.full((1, 2, 5, 5), np.inf))):  # x may be infinite
        assert refused("zero-filter", conv(each, number(np.zeros((3, 2, 3, 3)))))
    assert refused("zero-shift", op("Add", x(3), number(0)))  # x may be -0


def shifted(first: float, second: float, outer: str = "Add") -> Term:
    return op(outer, op("Add", x(3), number(first)), number(second))


@pytest.mark.parametrize(
    ("name", "term"),
    [
        ("sum-of-shifts", shifted(100.0, -100.0)),
        ("sum-of-shifts", shifted(100.0, -99.0)),
        ("sum-of-shifts", shifted(np.inf, -np.inf)),
        ("factor-of-shift", shifted(1e30, 1e-30, "Mul")),
        ("scale-into-filters", op("Mul", conv(x(1, 2, 4, 4), number(np.full((2, 2, 1, 1), 1e-38))), number(1e-3))),
        ("quotient-by-constant", op("Div", x(3), number(0))),
    ],
)
def test_magnitudes_beyond_the_limits_are_refused(name: str, term: Term) -> None:
    assert refused(name, term)
