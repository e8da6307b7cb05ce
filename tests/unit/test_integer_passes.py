"""The passes on baked quantised models: each returns the same integers as the ops that it replaces, for all integers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cost.size_growth import Growth
from layoutopt.dialects.onnxruntime.integer.absorb_pads import AbsorbPads
from layoutopt.dialects.onnxruntime.integer.affine_convolutions import (
    AffineConvolutions,
    AffineStep,
    channel_parameters,
)
from layoutopt.dialects.onnxruntime.integer.costs import kernel_costs
from layoutopt.dialects.onnxruntime.integer.matmul_convolutions import MatmulConvolutions
from layoutopt.dialects.onnxruntime.integer.pad_colours import PadColours
from layoutopt.dialects.onnxruntime.integer.quantization import Quantization
from layoutopt.dialects.onnxruntime.integer.split_transposes import SplitTransposes, reversed_groups
from layoutopt.dialects.onnxruntime.integer.widen_rows import WidenRows
from layoutopt.ir.dtype import Array, DType
from layoutopt.ir.graph import Graph
from layoutopt.passes.base import Pass, PassContext, Pipeline
from layoutopt.runtime.session import inference_session

HEADER = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>\n'


def model_of(text: str, **constants: Array) -> onnx.ModelProto:
    """A model with constants in the place of the inputs of these names."""
    model = onnx.parser.parse_model(HEADER + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def rewritten(model: onnx.ModelProto, step: Pass, growth: Growth | None = None) -> tuple[Graph, bytes]:
    """The graph and the model after a pass."""
    graph = inference.lift(onnx_ir.serde.deserialize_model(model))
    context = PassContext(None, growth=growth or Growth())  # type: ignore[arg-type]
    Pipeline((step,)).run(graph, context)
    return graph, onnx_io.to_bytes(onnx_io.emit(graph))


def run(model: bytes, feed: dict[str, Array], *, optimises: bool = False) -> Sequence[Any]:
    return inference_session(model, optimises=optimises).run(None, feed)


def kinds(graph: Graph) -> list[str]:
    return [op.op_type for op in graph.ops]


def scalar(value: float, dtype: Any = np.float32) -> Array:
    return np.array(value, dtype)


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
        np.testing.assert_array_equal(run(result, feed, optimises=optimised), expected)


@settings(max_examples=40, deadline=None)
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


PADDED = """agraph (uint8[1,7,7,8] q) => (uint8[1,8,8,8] p, float[1,8,8,8] f) {{
    a = DequantizeLinear (q, xs, xz)
    b = Pad <mode = "{mode}"> (a, widths{value})
    c = QuantizeLinear (b, {scale}, xz)
    p = com.microsoft.QLinearConv <channels_last = 1, group = 8, kernel_shape = [2, 2], pads = [0, 1, 1, 0]>
        (c, xs, xz, w, xs, wz, ys, xz)
    f = DequantizeLinear (p, ys, xz)
}}"""


def padded_model(
    mode: str = "constant", value: str = "", scale: str = "xs", widths: Sequence[int] = ()
) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    return model_of(
        PADDED.format(mode=mode, value=value, scale=scale),
        xs=scalar(0.02),
        ys=scalar(0.3),
        xz=scalar(11, np.uint8),
        wz=scalar(0, np.int8),
        one=scalar(1.0),
        w=random.integers(-128, 128, (8, 1, 2, 2)).astype(np.int8),
        widths=np.array(widths or [0, 1, 0, 0, 0, 0, 1, 0], np.int64),
    )


def test_a_pad_becomes_pads_of_the_convolution() -> None:
    model = padded_model()
    graph, result = rewritten(model, AbsorbPads())
    assert kinds(graph) == ["QLinearConv", "DequantizeLinear"]
    assert graph.ops[0].attributes["pads"] == (1, 1, 1, 1)
    feed = {"q": np.random.default_rng(1).integers(0, 256, (1, 7, 7, 8)).astype(np.uint8)}
    for one, other in zip(run(model.SerializeToString(), feed), run(result, feed), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "model",
    [
        padded_model(mode="edge"),
        padded_model(value=", one"),
        padded_model(scale="ys"),
    ],
    ids=["mode", "value", "scale"],
)
def test_pads_that_stay(model: onnx.ModelProto) -> None:
    graph, _ = rewritten(model, AbsorbPads())
    assert "Pad" in kinds(graph)


ROWS = """agraph (uint8[{n},56,56,16] q, uint8[{n},1,1,16] s) => (uint8[{n},56,56,16] p) {{
    a = com.microsoft.QLinearMul (q, xs, xz, c, ys, xz, ys, yz)
    b = com.microsoft.QLinearAdd (c, ys, xz, a, ys, yz, xs, xz)
    p = com.microsoft.QLinearMul (b, xs, xz, s, ys, xz, ys, yz)
}}"""


def rows_model(samples: int) -> onnx.ModelProto:
    return model_of(
        ROWS.format(n=samples),
        xs=scalar(0.02),
        ys=scalar(0.3),
        xz=scalar(11, np.uint8),
        yz=scalar(100, np.uint8),
        c=np.random.default_rng(0).integers(0, 256, (1, 1, 16)).astype(np.uint8),
    )


@pytest.mark.parametrize("samples", [1, 2])
def test_rows_are_merged_with_one_reshape_at_either_end(samples: int) -> None:
    model = rows_model(samples)
    graph, result = rewritten(model, WidenRows())
    chain = ["QLinearMul", "QLinearAdd", "QLinearMul"]
    assert [kind for kind in kinds(graph) if kind.startswith("QLinear")] == chain
    between = [op.inputs[0] for op in graph.ops if op.op_type == "QLinearMul"]
    assert all(value is not None and value.shape == (samples, 56, 56 * 16) for value in between)
    random = np.random.default_rng(1)
    feed = {name: random.integers(0, 256, (samples, *size)).astype(np.uint8) for name, size in
            (("q", (56, 56, 16)), ("s", (1, 1, 16)))}  # fmt: skip
    for optimised in (False, True):
        expected = run(model.SerializeToString(), feed, optimises=optimised)
        np.testing.assert_array_equal(run(result, feed, optimises=optimised), expected)


def test_rows_stay_short_where_constants_may_not_grow() -> None:
    model = rows_model(1)
    graph, _ = rewritten(model, WidenRows(), Growth(max_growth=1.0, source_bytes=-(1 << 30)))
    assert not any(value.name.startswith("c/columns") for value in graph.values)


@pytest.mark.parametrize(
    ("shape", "perm", "extents"),
    [
        ((1, 144, 256, 4), (0, 3, 2, 1), (144, 256, 4)),
        ((1, 12, 12, 256, 1, 4), (0, 4, 5, 3, 1, 2), (144, 256, 4)),
        ((32, 64, 16), (2, 1, 0), (32, 64, 16)),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_reversal_of_three_groups_of_axes_is_split(
    shape: tuple[int, ...], perm: tuple[int, ...], extents: tuple[int, int, int], dtype: str
) -> None:
    assert reversed_groups(shape, perm) == extents
    result_shape = [shape[axis] for axis in perm]
    model = model_of(
        f"agraph ({dtype}{list(shape)} q) => ({dtype}{result_shape} p) {{ p = Transpose <perm = {list(perm)}> (q) }}"
    )
    graph, result = rewritten(model, SplitTransposes())
    assert kinds(graph).count("Transpose") == 2
    feed = {"q": np.random.default_rng(0).integers(0, 128, shape).astype(dtype)}
    for optimised in (False, True):
        np.testing.assert_array_equal(run(result, feed, optimises=optimised)[0], feed["q"].transpose(perm))


@pytest.mark.parametrize(
    ("shape", "perm"),
    [((8, 16, 32), (0, 2, 1)), ((8, 16, 32), (1, 2, 0)), ((8, 1, 32), (2, 1, 0)), ((2, 3, 4, 5), (3, 2, 1, 0))],
)
def test_transposes_that_are_no_reversal_of_three_groups(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    assert reversed_groups(shape, perm) is None


COLOURS = """agraph (uint8[2,{channels},9,9] q) => (uint8[2,5,5,8] p) {{
    t = Transpose <perm = [0, 2, 3, 1]> (q)
    p = com.microsoft.QLinearConv <channels_last = 1, kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>
        (t, xs, xz, w, xs, wz, ys, xz)
}}"""


@pytest.mark.parametrize(("channels", "zero", "padded"), [(3, 0, True), (3, 5, False), (4, 0, False)])
def test_images_of_three_channels_get_a_fourth(channels: int, zero: int, padded: bool) -> None:
    random = np.random.default_rng(0)
    model = model_of(
        COLOURS.format(channels=channels),
        xs=scalar(0.02),
        ys=scalar(1.3),
        xz=scalar(11, np.uint8),
        wz=scalar(zero, np.int8),
        w=random.integers(-64, 64, (8, channels, 3, 3)).astype(np.int8),
    )
    graph, result = rewritten(model, PadColours())
    assert kinds(graph) == (["Pad"] if padded else []) + ["Transpose", "QLinearConv"]
    feed = {"q": random.integers(0, 256, (2, channels, 9, 9)).astype(np.uint8)}
    for optimised in (False, True):
        expected = run(model.SerializeToString(), feed, optimises=optimised)
        np.testing.assert_array_equal(run(result, feed, optimises=optimised), expected)


def test_the_costs_have_every_op_that_the_passes_look_up() -> None:
    needed = {"QLinearAdd", "QLinearMul", "QLinearConv", "DequantizeLinear", "QuantizeLinear", "Reshape", "Tile"}
    needed |= {"Transpose, reversed", "Transpose, split"}
    needed |= {"Add", "Sub", "Mul", "Div"}
    assert needed <= kernel_costs().keys()


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
    expected = run(model.SerializeToString(), feed, optimises=True)
    np.testing.assert_array_equal(run(result.proto.SerializeToString(), feed, optimises=True), expected)
    again = layoutopt.optimize(result.proto, "cpu")
    assert not again.report.changed
    plain = model_of("agraph (float[1,8] x) => (float[1,8] y) { y = Sub (x, m) }", m=np.ones(8, np.float32))
    assert not any(each.name == "affine-convolutions" for each in layoutopt.optimize(plain, "cpu").report.passes)


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


PRODUCT = """agraph ({dtype}{shape} q) => ({dtype}{result} p) {{
    p = QLinearMatMul (q, xs, xz, w, ws, wz, ys, xz)
}}"""


def product_model(
    shape: tuple[int, ...], channels: tuple[int, int], dtype: str = "uint8", zero: int = 0, per_channel: bool = True
) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    count = channels[1] if per_channel else 1
    return model_of(
        PRODUCT.format(dtype=dtype, shape=list(shape), result=[*shape[:-1], channels[1]]),
        xs=scalar(0.02),
        ys=scalar(0.9),
        xz=scalar(11, dtype),
        w=random.integers(-128, 128, channels).astype(np.int8),
        ws=random.uniform(0.5, 1.5, count).astype(np.float32),
        wz=np.full(count, zero, np.int8),
    )


@pytest.mark.parametrize("shape", [(1, 9, 8), (4, 9, 8), (7, 8), (2, 3, 5, 8)])
@pytest.mark.parametrize("per_channel", [True, False])
def test_a_product_becomes_a_convolution(shape: tuple[int, ...], per_channel: bool) -> None:
    model = product_model(shape, (8, 24), per_channel=per_channel)
    graph, result = rewritten(model, MatmulConvolutions())
    assert [kind for kind in kinds(graph) if kind != "Reshape"] == ["QLinearConv"]
    feed = {"q": np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)}
    for optimised in (False, True):
        expected = run(model.SerializeToString(), feed, optimises=optimised)
        np.testing.assert_array_equal(run(result, feed, optimises=optimised), expected)


@pytest.mark.parametrize(
    "model",
    [
        product_model((4, 9, 6), (6, 24)),
        product_model((4, 9, 8), (8, 20)),
        product_model((4, 9, 8), (8, 24), dtype="int8"),
        product_model((4, 9, 8), (8, 24), zero=5),
        product_model((3, 8), (8, 24)),
    ],
    ids=["inputs", "outputs", "signed", "zero point", "few rows"],
)
def test_products_that_stay(model: onnx.ModelProto) -> None:
    graph, _ = rewritten(model, MatmulConvolutions())
    assert kinds(graph) == ["QLinearMatMul"]


MEAN = """agraph (uint8[1,{image}] q) => (uint8[1,1,1,8] p) {{
    a = DequantizeLinear (q, xs, xz)
    m = ReduceMean <keepdims = 0> (a, axes)
    v = Reshape (m, shape)
    p = QuantizeLinear (v, xs, xz)
}}"""


@pytest.mark.parametrize(("image", "axes"), [("12,14,8", (1, 2)), ("8,12,14", (-2, -1))])
def test_a_mean_that_is_reshaped_before_it_is_quantised_is_computed_on_integers(
    image: str, axes: tuple[int, ...]
) -> None:
    model = model_of(
        MEAN.format(image=image),
        xs=scalar(0.0231),
        xz=scalar(11, np.uint8),
        axes=np.array(axes, np.int64),
        shape=np.array([1, 1, 1, -1], np.int64),
    )
    result = layoutopt.optimize(model, "cpu")
    assert "QLinearGlobalAveragePool" in [node.op_type for node in result.proto.graph.node]
    feed = {"q": np.random.default_rng(0).integers(0, 256, (1, *map(int, image.split(",")))).astype(np.uint8)}
    np.testing.assert_array_equal(run(result.proto.SerializeToString(), feed), run(model.SerializeToString(), feed))
