"""Einsum of any number of operands goes through every target, and equals numpy's; permutations of one operand move nothing."""

import random
from collections.abc import Iterator
from string import ascii_letters

import numpy as np
import onnx
import onnx.parser
import pytest
from parsed_models import parsed

import layoutopt
from layoutopt.runtime.session import Session

TARGETS = ("gpu-hopper", "gpu-turing", "cpu-avx2", "cpu-avx512", "cpu-neon", "ascend-910b")
DIALECTS = ("ops", "functions", "onnxruntime", "ascend")
FIXED = (
    "abcd->dcba",
    "acdb->abcd",
    "...cd->...dc",
    "a...->...a",
    "abcd",
    "dcba",
    "bBaA->ABab",
    "aabb->ab",
    "abcd->",
    "ab...->...",
)


def equations(count: int, operands: int) -> Iterator[str]:
    """Random equations of operands with four axes: repeated letters, capital letters, an ellipsis, spaces, no arrow."""
    draw = random.Random(operands)
    for _ in range(count):
        pool = draw.sample(ascii_letters, 5)
        terms = [draw.choices(pool, k=4) if draw.random() < 0.3 else draw.sample(pool, 4) for _ in range(operands)]
        hidden = (
            draw.randrange(3) if draw.random() < 0.3 else 0
        )  # axes under an ellipsis, the first ones of every operand
        used = sorted({letter for term in terms for letter in term[hidden:]})
        result = draw.sample(used, draw.choice((len(used), draw.randint(0, len(used)))))
        dots = "..." if hidden else ""
        text = ",".join(dots + "".join(term[hidden:]) for term in terms)
        text = "".join(f" {each}" if each.isalpha() and draw.random() < 0.2 else each for each in text)
        # Without an arrow onnxruntime (1.31) accepts lower-case letters only.
        yield f"{text}->{dots}{''.join(result)}" if draw.random() < 0.8 else text.lower()


def einsum(equation: str) -> onnx.ModelProto:
    """Convolutions of cubes, in formats of their own on most targets, and an Einsum of them; computed by a product with 1."""
    names = [f"c{place}" for place in range(equation.count(",") + 1)]
    lines = " ".join(f"{name} = Conv <pads = [1, 1, 1, 1]> (x, w{name})" for name in names)
    rank = np.einsum(equation, *[np.zeros((4,) * 4, np.float32)] * len(names)).ndim
    dims = ",".join("4" * rank)
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[4,4,4,4] x) => (float[{dims}] y) {{ {lines} e = Einsum <equation = "{equation}"> ({", ".join(names)})
        y = Relu (e) }}"""
    return parsed(text, **{f"w{name}": (4, 4, 3, 3) for name in names})


def computed(model: bytes) -> np.ndarray:
    x = np.random.default_rng(1).normal(size=(4, 4, 4, 4)).astype(np.float32)
    result: np.ndarray = Session(model, threads=1).run(None, {"x": x})[0]
    return result


def assert_equal(equation: str, target: str, dialect: str) -> None:
    proto = einsum(equation)
    if dialect == "onnxruntime":
        target = "cpu"  # its kernels take the blocks of this machine only
    result = layoutopt.optimize(proto, target, dialect=dialect, verify=False)
    want = computed(proto.SerializeToString())
    got = computed(result.proto.SerializeToString())
    assert want.shape == got.shape
    assert np.abs(want - got).max(initial=0) <= 1e-4 * np.abs(want).max(initial=0), (equation, target, dialect)


@pytest.mark.parametrize("equation", [*FIXED, *equations(14, 1), *equations(3, 2), *equations(5, 3)])
def test_random_equations(equation: str) -> None:
    place = sum(map(ord, equation))
    assert_equal(equation, TARGETS[place % len(TARGETS)], DIALECTS[place % len(DIALECTS)])


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("bhwc->bchw", "bchw->bhwc"),
        (" B h W c -> B c h W ", "...xyz->...yzx"),
        ("acdb", "adbc"),
        ("a...C->aC...", "aC...->a...C"),
    ],
)
def test_a_permutation_costs_what_a_transpose_costs(first: str, last: str) -> None:
    """An Einsum that permutes propagates formats, so a convolution between two of them needs no conversion."""

    def planned(before: str, after: str) -> layoutopt.Report:
        proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
            g (float[1,8,8,32] x) => (float[1,8,8,32] y) <float[32,32,1,1] w = {{{", ".join(["1.0"] * 1024)}}}>
            {{ a = {before} (x) c = Conv (a, w) y = {after} (c) }}""")
        return layoutopt.optimize(proto, "gpu-hopper", runtime="compiler").report

    einsums = planned(f'Einsum <equation = "{first}">', f'Einsum <equation = "{last}">')
    transposes = planned("Transpose <perm = [0, 3, 1, 2]>", "Transpose <perm = [0, 2, 3, 1]>")
    assert einsums.plan is not None and transposes.plan is not None
    assert einsums.plan.seconds_after == transposes.plan.seconds_after
    assert einsums.after == transposes.after
