"""The dialect `ascend`: packed filters, networks of convolutions and matrix products, and the written model."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from ascend_models import attributes_of, calls, convolutions, model_of, routes, run
from onnx import helper, numpy_helper

import layoutopt
from layoutopt.cost_models import load_target
from layoutopt.dialects.ascend import ASCEND
from layoutopt.formats import Conversion, Format
from layoutopt.formats.ascend import C1HWNCoC0, FractalZC04, GroupedFractalZ, pack_filter
from layoutopt.ir.graph import CAST
from layoutopt.ir.types import DType, Storage

ASCENDS = ("ascend-310", "ascend-910b")


# --- filters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ASCENDS)
@pytest.mark.parametrize(
    ("shape", "group", "image"),
    [
        ((64, 4, 3, 3), 16, [1, 64, 20, 20]),
        ((72, 24, 3, 3), 3, [1, 72, 20, 20]),
        ((40, 5, 1, 1), 4, [2, 20, 24, 24]),
        ((64, 4, 3), 16, [1, 64, 400]),
        ((40, 1, 3, 3), 40, [1, 40, 20, 20]),
    ],
)
def test_filters_with_groups(target: str, shape: tuple[int, ...], group: int, image: list[int]) -> None:
    """Packed filters have the published storage of the original filter, zeros included; `optimize` verifies the outputs."""
    around = [((channels, channels, *(3,) * (len(shape) - 2)), 1) for channels in (image[1], shape[0])]
    model = convolutions([around[0], (shape, group), around[1]], image)
    result = layoutopt.optimize(model, target, dialect="ascend")
    assert result.report.verification.status == "passed"
    node = next(node for node in calls(result.proto, "Conv") if node.name == "conv1")
    weights = {each.name: numpy_helper.to_array(each) for each in result.proto.graph.initializer}
    (packed,) = (weights[each] for each in node.input if each in weights and weights[each].ndim > 1)
    whole = numpy_helper.to_array(next(each for each in model.graph.initializer if each.name == "w1"))
    whole = whole.reshape(*shape[:2], *(1,) * (4 - len(shape)), *shape[2:])
    block = load_target(target).spec.block(DType.FLOAT32)
    if group == shape[0]:
        expected, title = pack_filter(whole.swapaxes(0, 1), C1HWNCoC0(block)), "C1HWNCoC0"
    else:
        expected, title = pack_filter(whole, GroupedFractalZ(group, block)), "FRACTAL_Z"
    assert np.array_equal(packed, expected)
    assert attributes_of(node)["input_formats"] == ["NC1HWC0", title, "ND"]
    assert attributes_of(node)["kernel_shape"] == list(shape[2:])
    assert not set(weights) - {each for node in result.proto.graph.node for each in node.input}


def test_the_first_layer_is_of_four_channels() -> None:
    model = convolutions([((64, 3, 7, 7), 1), ((64, 64, 3, 3), 1)], [1, 3, 112, 112], np.float16)
    result = layoutopt.optimize(model, "ascend-310", dialect="ascend")
    first, second = calls(result.proto, "Conv")
    assert attributes_of(first)["input_formats"] == ["NC1HWC0_C04", "FRACTAL_Z_C04", "ND"]
    assert attributes_of(second)["input_formats"] == ["NC1HWC0", "FRACTAL_Z", "ND"]
    weights = {each.name: numpy_helper.to_array(each) for each in result.proto.graph.initializer}
    whole = numpy_helper.to_array(model.graph.initializer[0])
    assert any(np.array_equal(each, pack_filter(whole, FractalZC04())) for each in weights.values())
    assert routes(result.proto)[0] == ("NCHW", "NC1HWC0_C04")


# --- convolutions and matrix products ----------------------------------------------------------------------------


def hybrid(size: int) -> onnx.ModelProto:
    """Convolution, flattened into tokens, two products, back into an image, convolution."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((64, 64, 3, 3)).astype(np.float32) / 24,
        "up": rng.standard_normal((64, 128)).astype(np.float32) / 8,
        "down": rng.standard_normal((128, 64)).astype(np.float32) / 8,
        "flat": np.array([1, 64, size * size]),
        "image": np.array([1, 64, size, size]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Reshape", ["c", "flat"], ["f"]),
        helper.make_node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "up"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("MatMul", ["q", "down"], ["r"]),
        helper.make_node("Transpose", ["r"], ["u"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["u", "image"], ["v"]),
        helper.make_node("Conv", ["v", "w"], ["y"], pads=[1] * 4),
    ]
    return model_of(nodes, [1, 64, size, size], weights, np.float32)


@pytest.mark.parametrize(("size", "is_free"), [(56, True), (50, False)])
def test_between_convolution_and_product_is_one_step(size: int, is_free: bool) -> None:
    """One op converts NC1HWC0 to FRACTAL_NZ, whose rows are the pixels, padded to 16; Ascend's compiler uses two."""
    result = layoutopt.optimize(hybrid(size), "ascend-310", dialect="ascend")
    assert routes(result.proto) == [
        ("NCHW", "NC1HWC0"),
        ("NC1HWC0", "FRACTAL_NZ"),
        ("FRACTAL_NZ", "NC1HWC0"),
        ("NC1HWC0", "NCHW"),
    ]
    assert [attributes_of(node)["origin_format"] for node in calls(result.proto, "TransData")] == [
        "NCHW",
        "NHWC",
        "NHWC",
        "NCHW",
    ]
    model = load_target("ascend-310")
    for op in (op for op in result.graph.ops if op.op_type == CAST and not op.inputs[0].is_constant):
        value, src, dst = op.inputs[0], op.inputs[0].storage, op.outputs[0].storage
        if value.rank != 3:
            continue
        steps = Conversion(src.format, dst.format).steps(value.static_shape)
        moving = [type(step).__name__ for step in steps if type(step).__name__ != "Reshape"]
        seconds = model.conversion_seconds(value, src, dst)
        plain = Storage(Format.canonical(3))
        detour = model.conversion_seconds(value, src, plain) + model.conversion_seconds(value, plain, dst)
        if is_free:
            assert not moving and not seconds
        else:
            assert moving in (["Pad"], ["Slice"]) and 0 < seconds < 0.6 * detour


@pytest.mark.parametrize(("target", "left"), [("ascend-310", "FRACTAL_NZ"), ("ascend-910b", "ND")])
def test_products_are_fractal_nz(target: str, left: str) -> None:
    """The 910B converts plain operands to fractals when it loads them, so a few products are not worth a TransData."""
    weights = {"w": np.random.default_rng(0).standard_normal((512, 512)).astype(np.float16) / 16}
    steps = [("x", "a"), ("a", "b"), ("b", "c"), ("c", "y")]
    nodes = [helper.make_node("MatMul", [source, "w"], [result]) for source, result in steps]
    result = layoutopt.optimize(model_of(nodes, [1, 512, 512], weights, np.float16), target, dialect="ascend")
    assert {tuple(attributes_of(node)["input_formats"]) for node in calls(result.proto, "MatMul")} == {
        (left, "FRACTAL_NZ")
    }
    (shape,) = (list(each.dims) for each in result.proto.graph.initializer if len(each.dims) > 1)
    assert shape == [32, 32, 16, 16]


# --- the written model -------------------------------------------------------------------------------------------


def test_it_is_read_like_any_other(tmp_path: Path) -> None:
    """A second run for the same target changes nothing; one for another target removes the functions and stays equivalent."""
    model = hybrid(20)
    written = layoutopt.optimize(model, "ascend-310", dialect="ascend").proto
    onnx.checker.check_model(written, full_check=True)
    assert written.ir_version >= 10
    keys = [(each.domain, each.name, each.overload) for each in written.functions]
    assert len(set(keys)) == len(keys) and {each[0] for each in keys} == {ASCEND}
    again = layoutopt.optimize(written, "ascend-310", dialect="ascend")
    assert not again.report.changed and again.proto == written
    other = layoutopt.optimize(written, "gpu-hopper", dialect="ops").proto
    assert {node.domain for node in other.graph.node} == {""} and not other.functions
    assert ASCEND not in {each.domain for each in other.opset_import}
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 64, 20, 20)).astype(np.float32)}
    results = [run(each.SerializeToString(), feeds)[0] for each in (model, written, other)]
    assert np.allclose(results[0], results[1], atol=1e-5) and np.allclose(results[0], results[2], atol=1e-5)
