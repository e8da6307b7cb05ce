"""Verification of two models: accepted and rejected differences, values of all types, perturbations, random numbers."""

from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from onnx import numpy_helper
from text_models import text_model

import layoutopt
from layoutopt.runtime.session import Session
from layoutopt.verification import verify_models
from layoutopt.verification.difference import Difference, difference
from layoutopt.verification.file_comparison import verify_files
from layoutopt.verification.perturbation import perturbed_inputs
from layoutopt.verification.verdict import SPREAD_FACTOR, ULPS, Comparison


def model(body: str, w: float = 1.0, shape: tuple[int, ...] = (1, 8, 4, 4), out: str = "y") -> onnx.ModelProto:
    """x -> body -> y, with the constant w: 64 numbers of which the first is scaled."""
    dims = ",".join(map(str, shape))
    parsed = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> net (float[{dims}] x) => (float[{dims}] {out}) {{ {body} }}'
    )
    weights = np.random.default_rng(7).normal(size=(8, 8, 1, 1)).astype(np.float32)
    weights[0] *= w
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return parsed


CONV = "y = Conv(x, w)"


def passes(want: object, got: object, spread: float = 0.0) -> bool:
    """Whether an output with a given rounding spread passes."""
    return Comparison.against_spread("y", want, difference(want, got), Difference(spread, spread)).passed


def test_one_percent_in_some_weights_fails() -> None:
    result = verify_models(model(CONV).SerializeToString(), model(CONV, w=1.01).SerializeToString())
    assert result.status == "failed"
    assert "y differs by" in result.reason
    assert result.worst is not None and 1e-3 < result.worst.error < 2e-2


def test_an_output_that_does_not_depend_on_the_input_is_told() -> None:
    constant = model("z = Sub(x, x) y = Add(z, z)")
    result = verify_models(constant.SerializeToString(), constant.SerializeToString())
    assert result.status == "passed"
    assert not result.depends_on_inputs


def test_infinities_and_nans_keep_their_places() -> None:
    nan, inf = float("nan"), float("inf")
    want = np.asarray([1.0, nan, inf, -inf], np.float32)
    assert passes(want, want.copy())
    for other in ([1.0, 2.0, inf, -inf], [nan, nan, inf, -inf], [1.0, nan, -inf, -inf], [1.0, nan, inf, 5.0]):
        assert not passes(want, np.asarray(other, np.float32), spread=1.0)
    assert passes(want, np.asarray([1.00001, nan, inf, -inf], np.float32), spread=1e-5)


@pytest.mark.parametrize("spread", [0.0, 1e-5, 1e-3])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_an_output_may_differ_by_a_multiple_of_the_spread(dtype: str, spread: float) -> None:
    """Or by some units in the last place, if rounding does not move it at all."""
    want = np.linspace(0.5, 1.0, 64).astype(dtype)
    unit = float(np.finfo(dtype).eps)
    limit = max(SPREAD_FACTOR * spread, ULPS * unit)
    for factor, passed in ((0.7, True), (1.5, False)):
        off = want.astype(np.float64)
        off[-1] += max(factor * limit, limit + 2 * unit if factor > 1 else 0)
        assert passes(want, off.astype(dtype), spread) == passed


def test_an_error_everywhere_counts_more_than_one_in_one_place() -> None:
    """An error in all elements has a lower limit, that of the root mean square, than an error in one element."""
    want = np.ones(100, np.float32)
    error = np.zeros(100, np.float32)
    error[0] = 2.5e-3
    limits = Difference(1e-3, 1e-4)
    for off, passed in ((error, True), (np.full(100, 2.5e-3, np.float32), False)):
        assert Comparison.against_spread("y", want, difference(want, want + off), limits).passed == passed


def test_integers_and_booleans_are_equal_or_not() -> None:
    for dtype in ("int64", "int32", "bool", "uint16"):
        want = np.asarray([1, 0, 1], dtype)
        assert passes(want, want.copy())
        assert not passes(want, np.asarray([1, 1, 1], dtype))
    steps = np.asarray([100, -100], np.int8)
    assert passes(steps, steps + np.int8(1))
    assert not passes(steps, steps + np.int8(5))
    words = np.asarray(["a", "b"], dtype=object)
    assert passes(words, words.copy())
    assert not passes(words, words[::-1])


def test_shapes_and_types_have_to_agree() -> None:
    want = np.ones((2, 3), np.float32)
    assert not passes(want, np.ones((3, 2), np.float32))
    assert not passes(want, np.ones((2, 3), np.float64))
    assert not passes(want, [1.0])
    assert not passes([1.0], want)
    empty = np.ones((0, 3), np.float32)
    assert passes(empty, empty)


def test_sequences_and_maps_are_judged_by_their_worst_element() -> None:
    ones = np.ones(3, np.float32)
    want = [ones, {"a": 0.5, "b": 0.25}, {"n": 3}]
    near = [ones * np.float32(1 + 1e-7), {"a": 0.5000001, "b": 0.25}, {"n": 3}]
    assert passes(want, near)
    assert not passes(want, [ones * np.float32(1.01), *near[1:]])
    assert not passes(want, [near[0], {"a": 0.6, "b": 0.25}, near[2]])
    assert not passes(want, [*near[:2], {"n": 4}])
    assert not passes(want, [near[0], {"a": 0.5, "c": 0.25}, near[2]])
    assert not passes(want, near[:2])
    assert passes([], [])


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8e4m3fn", "float8e5m2", "int4", "uint4", "float16", "double", "int8"]
)
def test_every_element_type_goes_in_and_out(dtype: str) -> None:
    def transposed(*body: str) -> bytes:
        head = f'<ir_version: 10, opset_import: ["" : 21]> g ({dtype}[3,5] x) => ({dtype}[5,3] y)'
        return onnx.parser.parse_model(f"{head} {{ {' '.join(body)} }}").SerializeToString()

    plain = transposed("y = Transpose <perm = [1, 0]> (x)")
    assert verify_models(plain, plain).status == "passed"
    other = transposed("t = Transpose <perm = [1, 0]> (x) f = Cast <to = 1> (t) n = Neg(f) y = CastLike(n, t)")
    assert verify_models(plain, other).reason.startswith("y differs")


HEAD = '<ir_version: 9, opset_import: ["" : 18]> net'


def test_models_with_different_inputs_are_told_apart(tmp_path: Path) -> None:
    for name in "xz":
        text = f"{HEAD} (float[2] {name}) => (float[2] y) {{ y = Relu ({name}) }}"
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    verdict = verify_files(tmp_path / "x.onnx", tmp_path / "z.onnx")
    assert verdict.status == "failed"
    assert verdict.reason == "the models take different inputs: only the first has x, only the second z"


def test_perturbations_stay_within_their_units() -> None:
    x = {"x": np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32), "n": np.arange(9.0, dtype=np.float32)}
    moved = perturbed_inputs(x, 0)
    ratio = np.abs(moved["x"] / x["x"] - 1) / 2.0**-23
    assert 0 < ratio.max() < 1.6
    assert moved["n"] is x["n"], "whole numbers stay"


def test_a_run_that_takes_too_long_ends() -> None:
    body = "".join(f"a{n + 1} = MatMul (a{n}, a0) " for n in range(60))
    text = f"{HEAD} (float[1500,1500] a0) => (float[1500,1500] a60) {{ {body} }}"
    session = Session(onnx.parser.parse_model(text).SerializeToString(), threads=1)
    with pytest.raises(TimeoutError, match="did not finish within 0 s of processor time"):
        session.run(None, {"a0": np.zeros((1500, 1500), np.float32)}, 0.05)


DRAWING = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1,16,24,24] x) => (float[1,32,24,24] y) <float[32,16,3,3] filter>
{
    a = Transpose<perm=[0,2,3,1]>(x)
    b = Relu(a)
    c = Transpose<perm=[0,3,1,2]>(b)
    noise = RandomNormalLike(c)
    d = Add(c, noise)
    e = Conv<pads=[1,1,1,1]>(d, filter)
    y = Tanh(e)
}"""


@pytest.mark.parametrize(("target", "runtime"), [("cpu", None), ("gpu-hopper", "compiler"), ("gpu-hopper", "any")])
def test_a_model_that_draws_random_numbers_is_verified(target: str, runtime: str | None) -> None:
    result = layoutopt.optimize(text_model(DRAWING), target, runtime=runtime)
    assert result.report.changed and result.report.verification.status == "passed"
    (noise,) = [node for node in result.proto.graph.node if node.op_type == "RandomNormalLike"]
    assert "seed" not in {each.name for each in noise.attribute}, "the seed is for the comparison only"


def test_a_fault_behind_random_numbers_is_detected(tmp_path: Path) -> None:
    original, changed = tmp_path / "original.onnx", tmp_path / "changed.onnx"
    onnx.save(text_model(DRAWING), original)
    onnx.save(text_model(DRAWING), changed)
    assert verify_files(original, changed).status == "passed"
    faulty = text_model(DRAWING)
    weights = numpy_helper.to_array(faulty.graph.initializer[0]).copy()
    weights[[3, 4]] = weights[[4, 3]]
    faulty.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "filter"))
    onnx.save(faulty, changed)
    assert verify_files(original, changed).status == "failed"
