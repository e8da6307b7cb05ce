"""Affine ops per channel as integer convolutions, which return the same integers for all integers."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_models import kinds, model_of, rewritten, run, scalar

import layoutopt
from layoutopt.dialects.onnxruntime.integer.affine_convolutions import (
    AffineConvolutions,
    AffineStep,
    channel_parameters,
)
from layoutopt.dialects.onnxruntime.integer.quantization import Quantization
from layoutopt.ir.types import Array, DType


def affine_model(ops: str, dtype: str, channels: int, **constants: Array) -> onnx.ModelProto:
    """DequantizeLinear, ops from `a` to `b` and QuantizeLinear on every integer in every channel."""
    return model_of(
        f"""agraph ({dtype}[1,16,16,{channels}] q) => ({dtype}[1,16,16,{channels}] p) {{
            a = DequantizeLinear (q, xs, xz)
            {ops}
            p = QuantizeLinear (b, ys, yz)
        }}""",
        **constants,
    )


OPS = {
    "sub": "b = Sub (a, c)",
    "from": "b = Sub (c, a)",
    "add": "b = Add (c, a)",
    "mul": "b = Mul (a, c)",
    "div": "b = Div (a, d)",
    "norm": "m = Sub (a, c)\n n = Mul (m, d)\n b = Add (n, c)",
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_affine_ops_become_a_convolution_that_is_equal_for_every_integer(name: str, dtype: str) -> None:
    random, channels = np.random.default_rng(len(name)), 24
    integers = np.arange(256).astype(dtype)
    constants = {
        "xs": scalar(0.0231),
        "xz": scalar(11, dtype),
        "ys": scalar(0.0237),
        "yz": scalar(3, dtype),
        "c": random.normal(size=channels).astype(np.float32),
        "d": random.uniform(0.5, 2, (1, 1, 1, channels)).astype(np.float32),
    }
    model = affine_model(OPS[name], dtype, channels, **constants)
    graph, result = rewritten(model, AffineConvolutions())
    assert kinds(graph) == ["QLinearConv"]
    feed = {"q": np.tile(integers.reshape(1, 16, 16, 1), channels)}
    expected = run(model.SerializeToString(), feed)
    for optimised in (False, True):
        np.testing.assert_array_equal(run(result, feed, is_optimised=optimised), expected)


@settings(max_examples=40)
@given(
    st.floats(1e-3, 1.0),
    st.floats(0.9, 3.0),
    st.integers(0, 255),
    st.integers(0, 255),
    st.lists(st.floats(-4, 4), min_size=1, max_size=4),
)
def test_the_parameters_of_a_convolution_are_exact(
    scale: float, ratio: float, x_zero: int, y_zero: int, shifts: list[float]
) -> None:
    """Where parameters are found, integer arithmetic with them gives what the float32 ops give."""
    before = Quantization(np.float32(scale), x_zero, DType.UINT8)
    after = Quantization(np.float32(scale * ratio), y_zero, DType.UINT8)
    constant = (np.array(shifts) * scale).astype(np.float32)
    found = channel_parameters(before, [AffineStep("Sub", constant, False)], after, len(shifts))
    if found is None:
        return
    integers = np.arange(256)[:, None]
    expected = after.quantize(before.dequantize(integers) - constant)
    sums = (integers - x_zero) * found.weights.astype(np.int64) + found.biases
    exact = sums * (before.scale * found.scales / after.scale).astype(np.float64)
    np.testing.assert_array_equal(np.clip(np.rint(exact) + y_zero, 0, 255), expected)


def test_affine_ops_that_change_the_scale_only_are_removed() -> None:
    """6 x is quantised with 6 times the scale; the next op reads the integers of x."""
    model = model_of(
        """agraph (uint8[4,4,16,16] q) => (float[4,4,16,16] y) {
            a = DequantizeLinear (q, xs, xz)
            b = Div (a, six)
            p = QuantizeLinear (b, ys, xz)
            y = DequantizeLinear (p, ys, xz)
        }""",
        xs=scalar(0.36),
        ys=scalar(0.06),
        xz=scalar(120, np.uint8),
        six=scalar(6.0),
    )
    graph, result = rewritten(model, AffineConvolutions())
    assert kinds(graph) == ["DequantizeLinear"]
    feed = {"q": np.random.default_rng(0).integers(0, 256, (4, 4, 16, 16)).astype(np.uint8)}
    np.testing.assert_array_equal(run(result, feed), run(model.SerializeToString(), feed))


def test_affine_ops_that_stay() -> None:
    """An op along another axis, another element type of the result, a value with a second reader, a division by x."""
    constants = {
        "xs": scalar(0.02),
        "xz": scalar(11, np.uint8),
        "ys": scalar(0.02),
        "yz": scalar(3, np.uint8),
        "c": np.arange(1, 9, dtype=np.float32),
        "r": np.arange(1, 17, dtype=np.float32).reshape(1, 16, 1, 1),
    }
    for ops in ("b = Sub (a, r)", "b = Div (c, a)", "b = Max (a, c)"):
        graph, _ = rewritten(affine_model(ops, "uint8", 8, **constants), AffineConvolutions())
        assert "QLinearConv" not in kinds(graph)
    text = """agraph (uint8[1,16,16,8] q) => (int8[1,16,16,8] p) {
        a = DequantizeLinear (q, xs, xz)
        b = Sub (a, c)
        p = QuantizeLinear (b, ys, yz)
    }"""
    graph, _ = rewritten(model_of(text, **{**constants, "yz": scalar(3, np.int8)}), AffineConvolutions())
    assert "QLinearConv" not in kinds(graph)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_constant_that_is_stored_as_integers_is_one_of_an_affine_op(dtype: str) -> None:
    """A model quantised per tensor, whose activations are uint8 and constants int8."""
    random, channels = np.random.default_rng(5), 24
    model = affine_model(
        "w = DequantizeLinear (k, ks, kz)\n b = Mul (a, w)",
        dtype,
        channels,
        xs=scalar(0.0231),
        xz=scalar(11, dtype),
        ys=scalar(0.0237),
        yz=scalar(3, dtype),
        k=random.integers(-128, 128, (1, 1, 1, channels)).astype(np.int8),
        ks=scalar(0.0147),
        kz=scalar(-64, np.int8),
    )
    graph, result = rewritten(model, AffineConvolutions())
    assert "QLinearConv" in kinds(graph)
    assert "Mul" not in kinds(graph)
    feed = {"q": np.tile(np.arange(256).astype(dtype).reshape(1, 16, 16, 1), channels)}
    np.testing.assert_array_equal(run(result, feed), run(model.SerializeToString(), feed))


QDQ = """agraph (float[1,8,28,28] x) => (float[1,28,28,8] y) {
    q = QuantizeLinear (x, xs, xz)
    d = DequantizeLinear (q, xs, xz)
    v = DequantizeLinear <axis = 0> (w, ws, wz)
    c = Conv <kernel_shape = [1, 1]> (d, v)
    t = Transpose <perm = [0, 2, 3, 1]> (c)
    tq = QuantizeLinear (t, xs, xz)
    td = DequantizeLinear (tq, xs, xz)
    u = Sub (td, m)
    uq = QuantizeLinear (u, xs, xz)
    y = DequantizeLinear (uq, xs, xz)
}"""


def test_a_quantised_model_is_rewritten_after_baking_and_a_float_model_is_not() -> None:
    random = np.random.default_rng(3)
    model = model_of(
        QDQ,
        xs=scalar(0.03),
        xz=scalar(120, np.uint8),
        w=random.integers(-64, 64, (8, 8, 1, 1)).astype(np.int8),
        ws=np.full(8, 0.01, np.float32),
        wz=np.zeros(8, np.int8),
        m=random.normal(size=8).astype(np.float32),
    )
    result = layoutopt.optimize(model, "cpu")
    assert result.report.changed
    assert {each.name for each in result.report.passes if each.changed} >= {"affine-convolutions"}
    assert [node.op_type for node in result.proto.graph.node].count("QLinearConv") == 2
    feed = {"x": random.normal(size=(1, 8, 28, 28)).astype(np.float32)}
    expected = run(model.SerializeToString(), feed, is_optimised=True)
    np.testing.assert_array_equal(run(result.proto.SerializeToString(), feed, is_optimised=True), expected)
    again = layoutopt.optimize(result.proto, "cpu")
    assert not again.report.changed
    plain = model_of("agraph (float[1,8] x) => (float[1,8] y) { y = Sub (x, m) }", m=np.ones(8, np.float32))
    assert not any(each.name == "affine-convolutions" for each in layoutopt.optimize(plain, "cpu").report.passes)
