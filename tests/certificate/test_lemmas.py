"""Every lemma of the checker, on random small terms: the value of a term is that of its other side.

The values are those of onnx's reference implementation in float64. The proofs are in tests/proofs.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pytest

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.inference import evaluated
from layoutopt.certificate.checker.lemmas import LEMMAS
from layoutopt.certificate.checker.normal import general, make, reshaped, transposed, view
from layoutopt.certificate.checker.terms import CONSTANT, LEAF, VIEW, Array, Term, apply, constant, leaf

FLOAT = 1
Random = np.random.Generator
Values = Mapping[str, Array]

BY_NAME = {lemma.name: lemma for lemma in LEMMAS}


def value(term: Term, values: Values) -> Array:
    """The elements of a term, for given elements of its leaves."""
    if term.op in (LEAF, "RandomUniform"):
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
    given = [
        None if arg is None or each is None else constant(each, arg.dtype)
        for arg, each in zip(term.args, operands, strict=True)
    ]
    return evaluated(term.op, given, dict(term.attributes))


def x(*shape: int) -> Term:
    return leaf("x", shape, FLOAT)


def numbers(random: Random, *shape: int) -> Term:
    """A constant of small integers, which sums of products represent exactly."""
    return constant(random.integers(-4, 5, shape).astype(np.float64), FLOAT)


def conv(image: Term, filter: Term, group: int = 1, strides: Any = (1, 1), pads: Any = (0, 0, 0, 0)) -> Term:
    """A convolution to which no lemma has been applied."""
    return general("Conv", (image, filter), {"group": group, "strides": strides, "pads": pads, "dilations": (1, 1)})


# --- terms that are one side of a lemma ---------------------------------------------------------------------------

Case = Callable[[Random], Term]
CASES: dict[str, list[Case]] = {}


def case(name: str) -> Callable[[Case], Case]:
    def register(made: Case) -> Case:
        CASES.setdefault(name, []).append(made)
        return made

    return register


@case("depthwise-as-product")
def _(random: Random) -> Term:
    return conv(x(2, 3, 4, 5), numbers(random, 3, 1, 1, 1), group=3)


@case("pad-into-convolution")
def _(random: Random) -> Term:
    padded = general("Pad", (x(1, 2, 5, 6),), {"mode": "constant", "pads": (0, 0, 1, 2, 0, 0, 0, 1)})
    return conv(padded, numbers(random, 4, 2, 3, 3), pads=(1, 0, 1, 1), strides=(2, 1))


@case("pad-into-convolution")
def _(random: Random) -> Term:
    padded = general("Pad", (x(1, 5, 6, 2),), {"mode": "constant", "pads": (0, 1, 2, 0, 0, 0, 1, 0)})
    return conv(transposed(padded, (0, 3, 1, 2)), numbers(random, 4, 2, 3, 3))


@case("zero-filter")
def _(random: Random) -> Term:
    return conv(apply("RandomUniform", (), (1, 2, 5, 5), FLOAT), constant(np.zeros((3, 2, 3, 3)), FLOAT))


@case("gate-into-filter")
def _(random: Random) -> Term:
    gated = general("Mul", (x(1, 3, 5, 5), numbers(random, 3, 1, 1)), {})
    return conv(gated, numbers(random, 4, 3, 3, 3), pads=(1, 1, 0, 0))


@case("gate-into-filter")
def _(random: Random) -> Term:
    gated = general("Mul", (x(1, 3, 5, 5), numbers(random, 3, 1, 1)), {})
    return conv(gated, numbers(random, 3, 1, 3, 3), group=3, pads=(1, 1, 1, 1))


@case("scale-into-filters")
def _(random: Random) -> Term:
    product = conv(x(2, 4, 5, 5), numbers(random, 4, 2, 3, 3), group=2, strides=(2, 2))
    return general("Mul", (product, numbers(random, 4, 1, 1)), {})


@case("conv-of-conv")
def _(random: Random) -> Term:
    """An input transform of Winograd's algorithm along rows, and the product, which runs along columns."""
    shared = constant(np.tile(random.integers(-4, 5, (1, 1, 4, 1)), (3, 1, 1, 1)).astype(np.float64), FLOAT)
    inner = conv(x(1, 3, 9, 6), shared, group=3, strides=(2, 1), pads=(1, 0, 2, 0))
    return conv(inner, numbers(random, 4, 3, 1, 3), pads=(0, 1, 0, 1))


@case("conv-of-conv")
def _(random: Random) -> Term:
    shared = constant(np.tile(random.integers(-4, 5, (1, 1, 3, 2)), (3, 1, 1, 1)).astype(np.float64), FLOAT)
    inner = conv(x(1, 3, 11, 12), shared, group=3, strides=(2, 3), pads=(1, 0, 0, 1))
    return conv(inner, numbers(random, 2, 3, 2, 3), strides=(2, 1))


@case("conv-of-conv")
def _(random: Random) -> Term:
    inner = conv(x(2, 3, 5, 4), numbers(random, 6, 3, 1, 1), strides=(2, 1))
    return conv(inner, numbers(random, 2, 6, 1, 1))


@case("sum-of-convs")
def _(random: Random) -> Term:
    one = conv(x(1, 3, 6, 6), numbers(random, 2, 3, 3, 1), pads=(1, 0, 1, 0))
    other = conv(x(1, 3, 6, 6), numbers(random, 2, 3, 1, 3), pads=(0, 1, 0, 1))
    return apply("Add", (one, other, numbers(random, 2, 1, 1)), one.shape, FLOAT)


@case("sum-of-convs")
def _(random: Random) -> Term:
    one = conv(x(1, 3, 8, 8), numbers(random, 2, 3, 4, 3), strides=(2, 2), pads=(0, 1, 0, 0))
    other = conv(x(1, 3, 8, 8), numbers(random, 2, 3, 3, 4), strides=(2, 2), pads=(0, 1, 0, 1))
    return general("Add", (one, other), {})


def phases(random: Random, count: int, filter: Array, rows: int) -> list[Term]:
    """The rows j, j + count, .. of a convolution of three taps with pads of 1, as convolutions with that stride."""
    height = rows * count
    parts = []
    for phase in range(count):
        taps = np.zeros((*filter.shape[:2], count + 2, filter.shape[3]))
        taps[:, :, phase : phase + 3] = filter
        parts.append(conv(x(1, 2, height, 5), constant(taps, FLOAT), strides=(count, 1), pads=(1, 0, 1, 0)))
    return parts


@case("rows-as-phases")
def _(random: Random) -> Term:
    """A Concat of phases along an axis behind the rows, as the columns of an image are interleaved."""
    parts = phases(random, 4, random.integers(1, 5, (3, 2, 3, 1)).astype(np.float64), 2)
    views = [reshaped(part, (3, 2, 1, 5)) for part in parts]
    return general("Concat", tuple(views), {"axis": 2})


@case("rows-as-phases")
def _(random: Random) -> Term:
    """The same behind an activation and a bias."""
    bias = numbers(random, 3, 1, 1)
    parts = phases(random, 2, random.integers(1, 5, (3, 2, 3, 1)).astype(np.float64), 3)
    active = [general("Relu", (general("Add", (part, bias), {}),), {}) for part in parts]
    return general(
        "Concat",
        tuple(view(part, maps.reshape(maps.identity(part.shape), (9, 1, 5)) or ()) for part in active),
        {"axis": 1},
    )


@case("fewer-rows")
def _(random: Random) -> Term:
    whole = general("Relu", (conv(x(1, 2, 6, 5), numbers(random, 3, 2, 3, 3), pads=(1, 1, 3, 1)),), {})
    rows = view(whole, maps.reshape(maps.identity(whole.shape), (3, 8, 5)) or ())
    return general("Slice", (rows,), {"axes": (1,), "starts": (0,), "ends": (6,), "steps": (1,)})


@case("shift-of-input")
def _(random: Random) -> Term:
    shifted = general("Add", (x(2, 3, 5, 5), numbers(random, 3, 1, 1)), {})
    return conv(shifted, numbers(random, 4, 3, 3, 3), strides=(2, 1))


@case("shift-of-input")
def _(random: Random) -> Term:
    shifted = general("Add", (x(2, 3, 5, 5), numbers(random, 3, 1, 1)), {})
    return conv(shifted, numbers(random, 3, 1, 3, 3), group=3)


@case("shift-of-input")
def _(random: Random) -> Term:
    return general("MatMul", (general("Add", (x(5, 3), numbers(random, 3)), {}), numbers(random, 3, 4)), {})


@case("scale-into-rows")
def _(random: Random) -> Term:
    return general("MatMul", (general("Mul", (x(5, 3), numbers(random, 3)), {}), numbers(random, 3, 4)), {})


@case("scale-of-operand")
def _(random: Random) -> Term:
    return general("MatMul", (general("Mul", (x(5, 3), numbers(random)), {}), numbers(random, 3, 4)), {})


@case("scale-into-matrix")
def _(random: Random) -> Term:
    return general("Mul", (general("MatMul", (x(5, 3), numbers(random, 3, 4)), {}), numbers(random, 4)), {})


@case("product-of-products")
def _(random: Random) -> Term:
    first = general("MatMul", (x(6, 3), numbers(random, 3, 4)), {})
    return general("MatMul", (first, numbers(random, 4, 2)), {})


@case("map-of-concat")
def _(random: Random) -> Term:
    parts = (x(1, 3, 4, 4), general("Relu", (conv(x(1, 3, 4, 4), numbers(random, 2, 3, 1, 1)),), {}))
    return conv(general("Concat", parts, {"axis": 1}), numbers(random, 4, 5, 3, 3), pads=(1, 1, 1, 1))


@case("map-of-mean")
def _(random: Random) -> Term:
    return conv(general("ReduceMean", (x(2, 3, 4, 4),), {"axes": (2, 3), "keepdims": 1}), numbers(random, 4, 3, 1, 1))


@case("map-of-mean")
def _(random: Random) -> Term:
    sizes = constant(np.array([1, 3, 8, 6]), 7)
    fields = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return conv(general("Resize", (x(1, 3, 4, 3), None, None, sizes), fields), numbers(random, 4, 3, 1, 1))


@case("pointwise-as-product")
def _(random: Random) -> Term:
    return conv(transposed(x(2, 4, 5, 3), (0, 3, 1, 2)), numbers(random, 6, 3, 1, 1))


@case("no-nan")
def _(random: Random) -> Term:
    weights = general("Softmax", (general("MatMul", (x(5, 3), numbers(random, 3, 4)), {}),), {"axis": 1})
    return general("Where", (general("IsNaN", (weights,), {}), constant(np.zeros(()), FLOAT), weights), {})


@case("shift-of-mean")
def _(random: Random) -> Term:
    shifted = general("Add", (x(1, 3, 4, 3), numbers(random, 3, 1, 1)), {})
    fields = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    return general("Resize", (shifted, None, None, constant(np.array([1, 3, 8, 6]), 7)), fields)


@case("shift-of-mean")
def _(random: Random) -> Term:
    shifted = general("Add", (x(1, 3, 4, 3), numbers(random, 3, 1, 1)), {})
    return general("ReduceMean", (shifted,), {"axes": (2, 3), "keepdims": 1})


@case("resize-of-same-extent")
def _(random: Random) -> Term:
    fields = {"mode": random.choice(["linear", "nearest"]), "coordinate_transformation_mode": "half_pixel"}
    return general("Resize", (x(1, 3, 4, 3), None, None, constant(np.array([1, 3, 4, 3]), 7)), fields)


@case("concat-of-views")
def _(random: Random) -> Term:
    """Images in blocks of two channels."""
    parts = (x(2, 4, 3, 5), general("Relu", (conv(x(2, 4, 3, 5), numbers(random, 6, 4, 1, 1)),), {}))
    blocks = [transposed(reshaped(each, (2, int(each.shape[1]) // 2, 2, 3, 5)), (0, 1, 3, 4, 2)) for each in parts]
    return general("Concat", tuple(blocks), {"axis": 1})


# --- laws ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NAME)
def test_both_sides_have_the_same_value(name: str) -> None:
    random = np.random.default_rng(0)
    for build in CASES[name]:
        before = build(random)
        after = BY_NAME[name].rewrite(before)
        assert after is not None, f"{name} does not apply to {before.op}"
        assert after.shape == before.shape and after.dtype == before.dtype
        image = next(each for each in leaves(before))
        values = {"x": random.integers(-4, 5, image.shape).astype(np.float64)}
        np.testing.assert_allclose(value(after, values), value(before, values), rtol=1e-12, atol=1e-9)


def leaves(term: Term) -> list[Term]:
    return [term] if term.op in (LEAF, "RandomUniform") else [found for arg in term.operands for found in leaves(arg)]


def test_every_case_is_of_a_lemma() -> None:
    assert set(CASES) == set(BY_NAME)


def refused(name: str, term: Term) -> bool:
    return BY_NAME[name].rewrite(term) is None


def test_conditions() -> None:
    """Terms that look like one side of a lemma, and are not."""
    random = np.random.default_rng(1)
    shifted = general("Add", (x(2, 3, 5, 5), numbers(random, 3, 1, 1)), {})
    assert refused(
        "shift-of-input", conv(shifted, numbers(random, 4, 3, 3, 3), pads=(1, 1, 1, 1))
    )  # zeros are not shifted
    ones = general(
        "Pad", (x(1, 2, 5, 6), constant(np.ones(()), FLOAT)), {"mode": "constant", "pads": (0, 0, 1, 1, 0, 0, 1, 1)}
    )
    assert refused("pad-into-convolution", conv(ones, numbers(random, 4, 2, 3, 3)))
    per_sample = general("Mul", (x(2, 3, 5, 5), leaf("g", (2, 3, 1, 1), FLOAT)), {})
    assert refused("gate-into-filter", conv(per_sample, numbers(random, 4, 3, 3, 3)))
    assert refused("zero-filter", conv(x(1, 2, 5, 5), constant(np.zeros((3, 2, 3, 3)), FLOAT)))  # x may be infinite
    scales = constant(np.array([1, 1, 1.2, 1.2], np.float64), FLOAT)
    fields = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    assert refused(
        "resize-of-same-extent", general("Resize", (x(1, 3, 3, 3), None, scales), fields)
    )  # 3 times 1.2 is 3
    masked = general("Add", (x(2, 3), constant(np.array([0, 0, -np.inf]), FLOAT)), {})
    weights = general("Softmax", (masked,), {"axis": 1})
    replaced = (general("IsNaN", (weights,), {}), constant(np.zeros(()), FLOAT), weights)
    assert refused("no-nan", general("Where", replaced, {}))
    shared = constant(np.ones((3, 1, 3, 1)), FLOAT)
    padded = conv(conv(x(1, 3, 9, 6), shared, group=3), numbers(random, 4, 3, 3, 1), pads=(1, 0, 1, 0))
    assert refused("conv-of-conv", padded)  # zeros around the first result are not results of the first filter


def test_a_changed_phase_is_refused() -> None:
    """One weight of one phase that differs by more than rounding."""
    random = np.random.default_rng(2)
    first, second = phases(random, 2, random.integers(1, 5, (3, 2, 3, 1)).astype(np.float64), 3)
    filter = second.args[1]
    assert filter is not None
    elements = filter.elements.copy()
    elements[1, 1, 2, 0] += 1e-3
    changed = conv(x(1, 2, 6, 5), constant(elements, FLOAT), strides=(2, 1), pads=(1, 0, 1, 0))
    shape = (9, 1, 5)
    for other, is_equal in ((second, True), (changed, False)):
        parts = [view(part, maps.reshape(maps.identity(part.shape), shape) or ()) for part in (first, other)]
        found = BY_NAME["rows-as-phases"].rewrite(general("Concat", tuple(parts), {"axis": 1}))
        assert (found is not None) == is_equal


def test_a_row_that_is_broadcast_is_no_phase() -> None:
    random = np.random.default_rng(4)
    row = conv(x(1, 2, 3, 5), numbers(random, 3, 2, 3, 1), strides=(2, 1))
    rows = conv(leaf("z", (1, 2, 6, 5), FLOAT), numbers(random, 3, 2, 2, 1), strides=(2, 1))
    part = general("Add", (row, rows), {})
    views = [view(part, maps.reshape(maps.identity(part.shape), (9, 1, 5)) or ())] * 2
    assert refused("rows-as-phases", general("Concat", tuple(views), {"axis": 1}))
    lines = view(part, maps.reshape(maps.identity(part.shape), (3, 3, 5)) or ())
    assert refused(
        "fewer-rows", general("Slice", (lines,), {"axes": (1,), "starts": (0,), "ends": (2,), "steps": (1,)})
    )


def test_a_shift_of_parts_of_channels_is_refused() -> None:
    """Two numbers for four channels, of which each has two."""
    image = view(leaf("x", (1, 2, 2, 5, 5), FLOAT), (((0, 1, 1),), ((1, 1, 2), (2, 1, 2)), ((3, 1, 5),), ((4, 1, 5),)))
    core = image.args[0]
    assert core is not None
    shifted = general("Add", (core, constant(np.ones((2, 1, 1, 1)), FLOAT)), {})
    axes = (image["axes"][0], *image["axes"][1:])
    viewed = apply("view", (shifted,), (1, 4, 5, 5), FLOAT, axes=axes)
    assert refused("shift-of-input", conv(viewed, constant(np.ones((3, 4, 1, 1)), FLOAT)))


def test_winograd_is_the_convolution() -> None:
    """F(2, 3) along rows, from input transforms to interleaved rows, with the constants that the pass computes."""
    from layoutopt.dialects.onnxruntime.passes.winograd.algorithm import minimal_filtering

    random = np.random.default_rng(3)
    algorithm = minimal_filtering(2, 3)
    assert algorithm is not None
    image, filter = x(1, 4, 8, 5), random.normal(size=(6, 4, 3, 1))
    products = []
    for inputs, taps in zip(algorithm.input_rows, algorithm.filter_rows, strict=True):
        transform = np.tile(np.array([*map(float, inputs)]).reshape(1, 1, 4, 1), (4, 1, 1, 1))
        transformed = np.einsum("oikw,k->oiw", filter, [*map(float, taps)]).astype(np.float32)
        tiles = make(
            "Conv", image, constant(transform, FLOAT), group=4, strides=(2, 1), pads=(1, 0, 1, 0), dilations=(1, 1)
        )
        one = {"group": 1, "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
        products.append(make("Conv", tiles, constant(transformed.reshape(6, 4, 1, 1), FLOAT), **one))
    rows = [
        make(
            "Add",
            *(
                make("Mul", each, constant(np.array(float(a)), FLOAT))
                for each, a in zip(products, output, strict=True)
                if a
            ),
        )
        for output in algorithm.output_rows
    ]
    interleaved = make("Concat", *(reshaped(row, (24, 1, 5)) for row in rows), axis=1)
    whole = reshaped(interleaved, (1, 6, 8, 5))
    assert (whole.op, whole["pads"], whole["strides"], whole["group"]) == ("Conv", (1, 0, 1, 0), (1, 1), 1)
    assert whole.args[1] is not None and whole.args[1].shape == (6, 4, 3, 1)
    np.testing.assert_allclose(whole.args[1].elements, filter, atol=1e-6)
