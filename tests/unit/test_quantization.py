"""QDQ groups: planned as one op if a target has integer kernels, and never split by a cast."""

from itertools import product

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper
from tiers import tiered

import layoutopt
from layoutopt.cost_models.registry import host_target
from layoutopt.formats import lookup, pack, unpack
from layoutopt.ir import Graph
from layoutopt.ir.graph import is_cast
from layoutopt.ops import is_dequantizer, is_quantizer

MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64,56,56] x) => (float[1,64,56,56] y)
<float scale = {0.05}, uint8 zero = {128}, float weight_scale = {0.01}, int8 weight_zero = {0}>
{
    q = QuantizeLinear (x, scale, zero)
    d = DequantizeLinear (q, scale, zero)
    w = DequantizeLinear (v, weight_scale, weight_zero)
    c = Conv <pads = [1, 1, 1, 1]> (d, w)
    r = Relu (c)
    p = QuantizeLinear (r, scale, zero)
    y = DequantizeLinear (p, scale, zero)
}"""
RESIDUAL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,C,28,28] x) => (float[1,D,14,14] y)
<float s = {0.05}, uint8 z = {ZERO}>
{
    q = QuantizeLinear (x, s, z)
    d = DequantizeLinear (q, s, z)
    v = DequantizeLinear <axis = 0> (v8, vs)
    b = DequantizeLinear <axis = 0> (b32, bs)
    c = Conv <pads = [1, 1, 1, 1]> (d, v, b)
    r = Relu (c)
    p = QuantizeLinear (r, s, z)
    e = DequantizeLinear (p, s, z)
    u = DequantizeLinear <axis = 0> (u8, us)
    f = Conv <GROUP> (e, u)
    k = QuantizeLinear (f, s, z)
    l = DequantizeLinear (k, s, z)
    a = Add (l, e)
    m = QuantizeLinear (a, s, z)
    n = DequantizeLinear (m, s, z)
    o = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (n)
    y8 = QuantizeLinear (o, s, z)
    y = DequantizeLinear (y8, s, z)
}"""


def unit() -> onnx.ModelProto:
    model = onnx.parser.parse_model(MODEL)
    weight = np.random.default_rng(0).integers(-128, 128, (64, 64, 3, 3)).astype(np.int8)
    model.graph.initializer.append(numpy_helper.from_array(weight, "v"))
    return model


def residual(inside: int, outside: int, zero: int, *, depthwise: bool) -> onnx.ModelProto:
    """QDQ groups of two convolutions with scales per channel, a residual and a pool."""
    side = 3 if depthwise else 1
    group = f"group = {outside}, pads = [1, 1, 1, 1]" if depthwise else "group = 1"
    text = RESIDUAL.replace("[1,C,", f"[1,{inside},").replace("[1,D,", f"[1,{outside},").replace("ZERO", str(zero))
    model = onnx.parser.parse_model(text.replace("GROUP", group))
    generator = np.random.default_rng(0)
    constants = {
        "v8": generator.integers(-128, 128, (outside, inside, 3, 3)).astype(np.int8),
        "vs": (0.0005 + 0.001 * generator.random(outside)).astype(np.float32),
        "b32": generator.integers(-1000, 1000, outside).astype(np.int32),
        "bs": (0.0005 + 0.001 * generator.random(outside)).astype(np.float32),
        "u8": generator.integers(-128, 128, (outside, 1 if depthwise else outside, side, side)).astype(np.int8),
        "us": (0.001 + 0.002 * generator.random(outside)).astype(np.float32),
    }
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def formats(result: layoutopt.Result, kind: str) -> list[list[str | None]]:
    return [[*op.inputs[:2], *op.outputs] for op in result.report.ops if op.kind == kind]


def split_groups(graph: Graph) -> list[str]:
    """The casts next to a Q/DQ op on its floating-point side."""
    found = []
    for op in filter(is_cast, graph.ops):
        (source,), (copy,) = op.inputs, op.outputs
        assert source is not None and copy is not None
        if is_dequantizer(graph.producer(source)) and not graph.is_output(copy):
            found.append(op.name)
        found += [op.name for use in graph.uses(copy) if is_quantizer(use.op) and use.index == 0]
    return found


@pytest.mark.parametrize("model", [unit(), residual(64, 64, 128, depthwise=False)])
def test_a_runtime_that_does_better_with_units_keeps_them(model: onnx.ModelProto) -> None:
    if host_target() not in ("cpu-avx2", "cpu-avx512"):
        pytest.skip("stock onnxruntime has no blocked kernels here")
    report = layoutopt.optimize(model, "cpu").report
    assert not report.changed
    assert {note.reason for note in report.notes} == {"it is part of a QDQ group, which stays as it is"}


@pytest.mark.parametrize(
    ("target", "wanted"),
    [("gpu-turing", "NCHW32c"), ("gpu-ampere", "NHWC"), ("gpu-hopper", "NHWC"), ("ascend-910b", "NCHW32c")],
)
def test_a_unit_lies_as_kernels_for_its_integers_want_it(target: str, wanted: str) -> None:
    result = layoutopt.optimize(unit(), target, runtime="compiler")
    assert result.report.changed and result.report.verification.status == "passed"
    ((x, _, y),) = formats(result, "Conv")
    assert x == y == wanted
    assert not split_groups(result.graph)
    assert all(str(cast.tensor) in ("q", "p") for cast in result.report.casts if cast.moves_data)
    (weight,) = (tensor for tensor in result.proto.graph.initializer if np.prod(tensor.dims) == 64 * 64 * 9)
    assert weight.data_type == onnx.TensorProto.INT8


TARGETS = ("gpu-turing", "gpu-hopper", "ascend-310", "ascend-910b", "cpu-avx2")
SIZES = ((64, 64), (17, 33), (16, 40))


UNITS = sorted(enumerate(product(TARGETS, SIZES, (0, 128), (False, True))), key=lambda each: (each[0] % 7, each[0]))


@pytest.mark.parametrize("dialect", ["functions", "ops"])
@pytest.mark.parametrize(("target", "sizes", "zero", "depthwise"), tiered((unit for _, unit in UNITS), 9))
def test_no_unit_is_torn(target: str, sizes: tuple[int, int], zero: int, depthwise: bool, dialect: str) -> None:
    """The result is equivalent, has whole QDQ groups and is stable, also after a run for another target."""
    model = residual(*sizes, zero, depthwise=depthwise)
    result = layoutopt.optimize(model, target, dialect=dialect)
    assert result.report.verification.status == "passed"
    assert not split_groups(result.graph)
    assert not layoutopt.optimize(result.proto, target, dialect=dialect).report.changed
    other = layoutopt.optimize(result.proto, "gpu-ampere", dialect=dialect)
    assert other.report.verification.status == "passed"
    assert not split_groups(other.graph)


def test_weights_that_are_quantised_in_the_model_are_integers_in_the_file() -> None:
    """Weights with a QuantizeLinear in the model are stored as integers; weights with a DequantizeLinear only stay so."""
    text = MODEL.replace("w = Deq", "v = QuantizeLinear (u, weight_scale, weight_zero)\n    w = Deq")
    model = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).normal(size=(64, 64, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "u"))
    result = layoutopt.optimize(model, "gpu-hopper", runtime="compiler")
    large = [tensor for tensor in result.proto.graph.initializer if np.prod(tensor.dims) > 1000]
    assert [tensor.data_type for tensor in large] == [onnx.TensorProto.INT8]
    assert [op.op_type for op in result.graph.ops].count("DequantizeLinear") == 3


AT_OUTPUTS = """<ir_version: 10, opset_import: ["" : OPSET]>
g (float[1,40,8,9] x) => (float[1,40,8,9] c, float[1,40,8,9] d, float[1,40,4,4] y)
<float s = {0.05}, int8 z = {3}, float t = {0.01}, int8 o = {0}>
{
    q = QuantizeLinear (x, s, z)
    b = DequantizeLinear (q, s, z)
    w = DequantizeLinear (v, t, o)
    c = Conv <pads = [1, 1, 1, 1]> (b, w)
    p = QuantizeLinear (c, s, z)
    d = DequantizeLinear (p, s, z)
    e = Relu (d)
    f = QuantizeLinear (e, s, z)
    h = DequantizeLinear (f, s, z)
    a = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (h)
    m = QuantizeLinear (a, s, z)
    y = DequantizeLinear (m, s, z)
}"""


def ran(model: onnx.ModelProto, feed: dict[str, np.ndarray], is_optimised: bool = True) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


@pytest.mark.parametrize("dialect", ["functions", "ops", "ascend"])
@pytest.mark.parametrize("target", ["ascend-310", "gpu-turing", "gpu-hopper"])
@pytest.mark.parametrize("pins", [{"x": "NHWC"}, {"d": "NHWC", "y": "CHWN"}], ids=str)
@pytest.mark.parametrize("opset", tiered([21, 20, 25], 1))
def test_int8_at_outputs_is_loaded_as_it_is_by_default(
    opset: int, pins: dict[str, str], target: str, dialect: str
) -> None:
    """At opset 21, onnxruntime 1.31 does not load DequantizeLinear -> Transpose."""
    model = onnx.parser.parse_model(AT_OUTPUTS.replace("OPSET", str(opset)))
    weight = np.random.default_rng(0).integers(-128, 128, (40, 40, 3, 3)).astype(np.int8)
    model.graph.initializer.append(numpy_helper.from_array(weight, "v"))
    feed = {"x": np.random.default_rng(1).normal(size=(1, 40, 8, 9)).astype(np.float32)}
    result = layoutopt.optimize(model, target, dialect=dialect, pins=pins, verify=False)
    assert result.report.changed
    logical = dict(zip(("c", "d", "y"), ran(model, feed, is_optimised=False), strict=True))
    feed = {name: pack(value, lookup(pins[name])) if name in pins else value for name, value in feed.items()}
    step = 0.05 * 1.01  # of the quantised values: a sum in another order may be rounded to the next one
    for (name, want), got in zip(logical.items(), ran(result.proto, feed), strict=True):
        got = unpack(got, lookup(pins[name]), want.shape) if name in pins else got
        assert np.abs(want - got).max() < (1e-4 * np.abs(want).max() if name == "c" else step), name
