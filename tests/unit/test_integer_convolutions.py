"""Pads, images of three channels and products as integer convolutions, which return the same integers."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from integer_models import kinds, model_of, rewritten, run, scalar

from layoutopt.dialects.onnxruntime.integer.absorb_pads import AbsorbPads
from layoutopt.dialects.onnxruntime.integer.matmul_convolutions import MatmulConvolutions
from layoutopt.dialects.onnxruntime.integer.pad_colours import PadColours

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
        expected = run(model.SerializeToString(), feed, is_optimised=optimised)
        np.testing.assert_array_equal(run(result, feed, is_optimised=optimised), expected)


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
        expected = run(model.SerializeToString(), feed, is_optimised=optimised)
        np.testing.assert_array_equal(run(result, feed, is_optimised=optimised), expected)


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
