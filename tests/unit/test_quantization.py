"""Quantised models: QDQ groups are planned as one op and never split, and passes on integers return the same integers."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from parsed_models import parsed, text_model
from tiers import covering

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cost_models.registry import host_target
from layoutopt.dialects.onnxruntime import integer
from layoutopt.dialects.onnxruntime.integer import DetachQuantizers, UnsignActivations
from layoutopt.dialects.onnxruntime.integer_chains import PoolChannelsLast, RequantizeChannels, Tabulate, WidenRows
from layoutopt.dialects.onnxruntime.integer_fits import fit_convolution, fit_product
from layoutopt.dialects.passes import SimplifyReshapes
from layoutopt.explanation import quantization
from layoutopt.formats import lookup, pack, unpack
from layoutopt.ir.graph import Graph, is_cast
from layoutopt.ir.types import DType
from layoutopt.ops import is_dequantizer, is_quantizer
from layoutopt.passes import RemoveDead
from layoutopt.passes.base import Pass, PassContext, Pipeline
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN, blocked_channels
from layoutopt.runtime.session import inference_session
from layoutopt.verification import Runnable

QDQ = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64,56,56] x) => (float[1,64,56,56] y)
<float scale = {0.05}, uint8 zero = {128}, float weight_scale = {0.01}, int8 weight_zero = {0}, int8[64,64,3,3] v>
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


def residual(inside: int, outside: int, zero: int, *, depthwise: bool) -> onnx.ModelProto:
    """QDQ groups of two convolutions with scales per channel, a residual and a pool."""
    side = 3 if depthwise else 1
    group = f"group = {outside}, pads = [1, 1, 1, 1]" if depthwise else "group = 1"
    text = RESIDUAL.replace("[1,C,", f"[1,{inside},").replace("[1,D,", f"[1,{outside},").replace("ZERO", str(zero))
    generator = np.random.default_rng(0)
    constants = {
        "v8": generator.integers(-128, 128, (outside, inside, 3, 3)).astype(np.int8),
        "vs": (0.0005 + 0.001 * generator.random(outside)).astype(np.float32),
        "b32": generator.integers(-1000, 1000, outside).astype(np.int32),
        "bs": (0.0005 + 0.001 * generator.random(outside)).astype(np.float32),
        "u8": generator.integers(-128, 128, (outside, 1 if depthwise else outside, side, side)).astype(np.int8),
        "us": (0.001 + 0.002 * generator.random(outside)).astype(np.float32),
    }
    return parsed(text.replace("GROUP", group), **constants)


def formats(result: layoutopt.Result, kind: str) -> list[list[str | None]]:
    return [[*op.inputs[:2], *op.outputs] for op in result.report.ops if op.kind == kind]


def split_groups(graph: Graph) -> list[str]:
    """The casts next to a Q/DQ op on its floating-point side."""
    found = []
    for op in filter(is_cast, graph.ops):
        (source,), (copy,) = op.inputs, op.outputs
        if is_dequantizer(graph.producer(source)) and not graph.is_output(copy):
            found.append(op.name)
        found += [op.name for use in graph.uses(copy) if is_quantizer(use.op) and use.index == 0]
    return found


@pytest.mark.parametrize("model", [text_model(QDQ.replace("128", "0")), residual(64, 64, 0, depthwise=False)])
def test_a_runtime_that_does_better_with_units_keeps_them(model: onnx.ModelProto) -> None:
    if host_target() not in ("cpu-avx2", "cpu-avx512"):
        pytest.skip("stock onnxruntime has no blocked kernels here")
    report = layoutopt.optimize(model, "cpu", measure=False).report
    later = {each.name for each in report.passes if each.changed} - {"assign-formats", "insert-casts"}
    assert report.changed == bool(later) and later <= {"pool-channels-last"}
    groups = {note.where for note in report.notes if note.reason == "it is part of a QDQ group, which stays as it is"}
    assert {"Conv", "Relu"} <= groups


@pytest.mark.parametrize(
    ("target", "wanted"),
    [("gpu-turing", "NCHW32c"), ("gpu-ampere", "NHWC"), ("gpu-hopper", "NHWC"), ("ascend-910b", "NCHW32c")],
)
def test_a_unit_lies_as_kernels_for_its_integers_want_it(target: str, wanted: str) -> None:
    result = layoutopt.optimize(text_model(QDQ), target, runtime="compiler")
    assert result.report.changed and result.report.verification.status == "passed"
    ((x, _, y),) = formats(result, "Conv")
    assert x == y == wanted
    assert not split_groups(result.graph)
    assert all(str(cast.tensor) in ("q", "p") for cast in result.report.casts if cast.moves_data)
    (weight,) = (tensor for tensor in result.proto.graph.initializer if np.prod(tensor.dims) == 64 * 64 * 9)
    assert weight.data_type == onnx.TensorProto.INT8


QDQ_TARGETS = ("gpu-turing", "gpu-hopper", "ascend-310", "ascend-910b", "cpu-avx2")
SIZES = ((64, 64), (17, 33), (16, 40))


@pytest.mark.parametrize(
    ("target", "sizes", "zero", "depthwise", "dialect"),
    covering(QDQ_TARGETS, SIZES, (0, 128), (False, True, True), ("functions", "functions", "ops", "ops")),
)
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
    text = QDQ.replace("w = Deq", "v = QuantizeLinear (u, weight_scale, weight_zero)\n    w = Deq")
    model = text_model(text.replace("int8[64,64,3,3] v", "float[64,64,3,3] u"))
    result = layoutopt.optimize(model, "gpu-hopper", runtime="compiler")
    large = [tensor for tensor in result.proto.graph.initializer if np.prod(tensor.dims) > 1000]
    assert [tensor.data_type for tensor in large] == [onnx.TensorProto.INT8]
    assert [op.op_type for op in result.graph.ops].count("DequantizeLinear") == 3


AT_OUTPUTS = """<ir_version: 10, opset_import: ["" : OPSET]>
g (float[1,40,8,9] x) => (float[1,40,8,9] c, float[1,40,8,9] d, float[1,40,4,4] y)
<float s = {0.05}, int8 z = {3}, float t = {0.01}, int8 o = {0}, int8[40,40,3,3] v>
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


def ran(model: onnx.ModelProto | bytes, feed: dict[str, Any], is_optimised: bool = True) -> Sequence[Any]:
    content = model if isinstance(model, bytes) else model.SerializeToString()
    return inference_session(content, is_optimised=is_optimised).run(None, feed)


@pytest.mark.parametrize(
    ("opset", "pins", "target", "dialect"),
    covering(
        [21, 20, 25],
        [{"x": "NHWC"}, {"d": "NHWC", "y": "CHWN"}],
        ["ascend-310", "gpu-turing", "gpu-hopper"],
        ["functions", "ops", "ascend"],
    ),
)
def test_int8_at_outputs_is_loaded_as_it_is_by_default(
    opset: int, pins: dict[str, str], target: str, dialect: str
) -> None:
    """At opset 21, onnxruntime 1.31 does not load DequantizeLinear -> Transpose."""
    model = text_model(AT_OUTPUTS.replace("OPSET", str(opset)))
    feed = {"x": np.random.default_rng(1).normal(size=(1, 40, 8, 9)).astype(np.float32)}
    result = layoutopt.optimize(model, target, dialect=dialect, pins=pins, verify=False)
    assert result.report.changed
    logical = dict(zip(("c", "d", "y"), ran(model, feed, is_optimised=False), strict=True))
    feed = {name: pack(value, lookup(pins[name])) if name in pins else value for name, value in feed.items()}
    step = 0.05 * 1.01  # of the quantised values: a sum in another order may be rounded to the next one
    for (name, want), got in zip(logical.items(), ran(result.proto, feed), strict=True):
        got = unpack(got, lookup(pins[name]), want.shape) if name in pins else got
        assert np.abs(want - got).max() < (1e-4 * np.abs(want).max() if name == "c" else step), name


def test_a_scale_per_axis_before_opset_13_keeps_canonical_formats() -> None:
    """In other formats the DequantizeLinear would get an attribute `axis`, which its opset does not have."""
    text = """<ir_version: 5, opset_import: ["" : 10]> g (uint8[1,3,4,5] q) => (float[1,3,4,5] y)
<float[3] s = {0.1, 0.2, 0.3}, uint8[3] z = {1, 2, 3}> { d = DequantizeLinear (q, s, z) y = Relu (d) }"""
    result = layoutopt.optimize(text_model(text), "gpu-hopper", dialect="ops", pins={"y": "NHWC"}, verify=False)
    onnx.checker.check_model(result.proto, full_check=True)
    assert [op.op_type for op in result.graph.ops] == ["DequantizeLinear", "Relu", "CastData"]


HEADER = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>\n'


def rewritten(model: onnx.ModelProto, *steps: Pass) -> tuple[Graph, bytes]:
    """The graph and the model after passes."""
    graph = inference.lift(onnx_ir.serde.deserialize_model(model))
    Pipeline(steps).run(graph, PassContext(None))  # type: ignore[arg-type]
    return graph, onnx_io.to_bytes(onnx_io.emit(graph))


DTYPES = ("uint8", "int8")
RANDOM = np.random.default_rng(0)


def feed_of(model: onnx.ModelProto) -> dict[str, Any]:
    """Every integer in every channel (the last axis), or of every operand per channel."""
    constants = {each.name for each in model.graph.initializer}
    feed = {}
    for each in model.graph.input:
        shape = [dim.dim_value or 2 for dim in each.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)
        if each.name not in constants:
            step = shape[-1] if np.prod(shape) >= 256 * shape[-1] else 1
            feed[each.name] = (np.arange(np.prod(shape)) // step).astype(dtype).reshape(shape)
    return feed


def check(model: onnx.ModelProto, *steps: Pass) -> list[str]:
    """The op types after a pass, whose result computes the same integers."""
    graph, result = rewritten(model, *steps)
    feed = feed_of(model)
    for optimised in (False, True):
        expected = ran(model, feed, is_optimised=optimised)
        for one, other in zip(expected, ran(result, feed, is_optimised=optimised), strict=True):
            np.testing.assert_array_equal(one, other)
    return [op.op_type for op in graph.ops]


def rows_model(samples: int) -> onnx.ModelProto:
    return text_model(
        f"""{HEADER} agraph (uint8[{samples},56,56,16] q, uint8[{samples},1,1,16] s) => (uint8[{samples},56,56,16] p)
        <float xs = {{0.02}}, float ys = {{0.3}}, uint8 xz = {{11}}, uint8 yz = {{100}}, uint8[1,1,16] c> {{
            a = com.microsoft.QLinearMul (q, xs, xz, c, ys, xz, ys, yz)
            b = com.microsoft.QLinearAdd (c, ys, xz, a, ys, yz, xs, xz)
            p = com.microsoft.QLinearMul (b, xs, xz, s, ys, xz, ys, yz)
        }}"""
    )


@pytest.mark.parametrize("samples", [1, 2])
def test_rows_are_merged_with_one_reshape_at_either_end(samples: int) -> None:
    found = check(rows_model(samples), WidenRows(), SimplifyReshapes())
    assert [kind for kind in found if kind.startswith("QLinear")] == ["QLinearMul", "QLinearAdd", "QLinearMul"]
    graph, _ = rewritten(rows_model(samples), WidenRows(), SimplifyReshapes())
    between = [op.inputs[0] for op in graph.ops if op.op_type == "QLinearMul"]
    assert all(value is not None and value.shape == (samples, 56, 56 * 16) for value in between)


@pytest.mark.parametrize(
    ("pools", "kinds"),
    [
        ("a = MaxPool <kernel_shape = [3, 2], storage_order = 1> (t)", ["NhwcMaxPool"]),
        ("b = MaxPool <kernel_shape = [2, 2]> (t) a = MaxPool <kernel_shape = [3, 3]> (b)", ["NhwcMaxPool"] * 2),
        ("a, i = MaxPool <kernel_shape = [3, 3]> (t)", ["Transpose", "MaxPool", "Transpose"]),
    ],
)
def test_integers_are_pooled_with_channels_last(pools: str, kinds: list[str]) -> None:
    """Transposes between two pools, and between a pool and its neighbours, are cancelled."""
    text = f"""agraph (uint8[2,9,9,56] q) => (p) {{
        t = Transpose <perm = [0, 3, 1, 2]> (q) {pools} r = Transpose <perm = [0, 2, 3, 1]> (a) p = Cast <to = 6> (r) }}"""
    assert check(text_model(HEADER + text), PoolChannelsLast(), RemoveDead()) == [*kinds, "Cast"]
    text = text.replace("=> (p)", "=> (p, r)")  # an output keeps its Transpose
    assert check(text_model(HEADER + text), PoolChannelsLast(), RemoveDead()).count("Transpose") == 2


@pytest.mark.parametrize(
    ("image", "is_last"),
    [("int8[2,5,40]", False), ("int8[2,160,40]", True), ("int8[N,C,W]", True), ("float[2,160,40]", False)],
)
def test_large_pools_between_other_ops_are_transposed(image: str, is_last: bool) -> None:
    pools = f"agraph ({image} q) => (p) {{ p = MaxPool <kernel_shape = [2], strides = [2]> (q) }}"
    found = check(text_model(HEADER + pools), PoolChannelsLast())
    assert found == (["Transpose", "NhwcMaxPool", "Transpose"] if is_last else ["MaxPool"])


def test_the_planned_format_of_a_pool_of_integers_has_its_kernel() -> None:
    text = "agraph (uint8[1,32,40,40] q) => (uint8[1,32,39,39] p) { p = MaxPool <kernel_shape = [2, 2]> (q) }"
    result = layoutopt.optimize(text_model(HEADER + text), "cpu", measure=False)
    assert [node.op_type for node in result.proto.graph.node] == ["Transpose", "NhwcMaxPool", "Transpose"]


AVERAGE = "AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (d)"


@pytest.mark.parametrize(("op", "scale"), [(AVERAGE, "0.05"), ("Softmax <axis = 1> (d)", "0.002")])
@pytest.mark.parametrize("batch", ["1", "N"])
def test_an_op_between_quantizers_is_computed_in_floating_point(batch: str, op: str, scale: str) -> None:
    model = text_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[{batch},24,28,28] x) => (y)
        <float s = {{0.05}}, uint8 z = {{120}}, float t = {{{scale}}}> {{
            q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  a = {op}
            p = QuantizeLinear (a, t, z)  y = DequantizeLinear (p, t, z) }}"""
    )
    result = layoutopt.optimize(model, "cpu", measure=False)
    assert {node.op_type for node in result.proto.graph.node} >= {op.split(" ")[0], "Flatten"}
    feed = {"x": 3 * RANDOM.normal(size=(1, 24, 28, 28)).astype(np.float32)}
    ((expected,), (found,)) = ran(model, feed, is_optimised=False), ran(result.proto.SerializeToString(), feed)
    steps = np.abs(expected - found) / float(scale)
    assert steps.max() < 1.01 and (steps > 0.5).mean() < 1e-2  # a mean may be in the middle of two integers


@pytest.mark.parametrize(
    "ops", ["b = Sub (a, c)", "b = Sub (c, a)", "m = Sub (a, c)\n n = Mul (m, d)\n b = Add (n, c)"]
)
def test_rows_of_floating_point_operands_are_merged(ops: str) -> None:
    model = text_model(
        f"""{HEADER} agraph (uint8[1,56,56,16] q) => (uint8[1,56,56,16] p)
        <float xs = {{0.0231}}, uint8 xz = {{11}}, float[1,16] c, float[16] d> {{
            a = DequantizeLinear (q, xs, xz)
            {ops}
            p = QuantizeLinear (b, xs, xz)
        }}"""
    )
    assert check(model, WidenRows(), SimplifyReshapes()).count("Reshape") == 2


@pytest.mark.parametrize(
    ("channels", "ops", "domain", "is_merged"),
    [
        (16, "b = Sub (a, c)", "", True),
        (16, "b = Mul (a, c)", "", True),
        (96, "m = Mul (a, d)\n b = Add (m, c)", "", True),
        (16, "b = Div (c, a)", "", False),
        (16, "b = Sub (a, c)", "com.microsoft.", False),
    ],
)
def test_affine_ops_per_channel_are_one_convolution(channels: int, ops: str, domain: str, is_merged: bool) -> None:
    """The integers are equal for every integer and channel, also in a channel that is constant."""
    text = f"""agraph (uint8[1,16,16,{channels}] q) => (uint8[1,16,16,{channels}] p)
    <float xs = {{0.0831}}, uint8 xz = {{119}}, float ys = {{0.0829}}> {{
        a = {domain}DequantizeLinear (q, xs, xz)
        {ops}
        p = {domain}QuantizeLinear (b, ys, xz)
    }}"""
    random = np.random.default_rng(channels)
    row, factors = random.normal(size=(2, channels)).astype(np.float32)
    header = HEADER if domain else HEADER.replace(', "com.microsoft" : 1', "")
    model = parsed(header + text, c=row * (np.arange(channels) > 0), d=factors)
    found = check(model, RequantizeChannels())
    merged = ["Reshape", "QLinearConv", "Reshape"]
    assert found == merged if is_merged and channels < 96 else ("QLinearConv" in found) is is_merged


def test_fitted_parameters_have_room_and_positive_scales() -> None:
    steps = np.arange(256)[:, None] - 119.0
    numbers = steps * (1e-20, 0, -1e-4)
    fitted = fit_convolution(119, 119, numbers, np.rint(numbers) + 119)
    assert fitted is not None
    assert (fitted[2] > 0).all()
    x, one = np.float32(0.0376) * (np.arange(256, dtype=np.float32) - 198), np.float32(1)
    numbers = (np.clip(x / 6 + one / 2, 0, 1) * x / np.float32(0.0414))[:, None]
    assert fit_product(198, 4, numbers, np.clip(np.rint(numbers) + 4, 0, 255)) is None  # the offset has room of 6e-4


@pytest.mark.parametrize(("alpha", "scale"), [(1 / 6, 0.2), (1 / 6, 0.5), (0.2, 2), (1 / 6, 0.005), (-0.2, 0.2)])
def test_hard_swish_is_a_product_of_integers(alpha: float, scale: float) -> None:
    """It is one where a rising factor of 8 bits returns the same integers, and stays elsewhere."""
    text = f"""agraph (uint8[4,64,64] q) => (uint8[4,64,64] p)
    <float xs = {{{scale}}}, uint8 xz = {{121}}, float ys = {{{scale / 2}}}, uint8 yz = {{3}}> {{
        a = DequantizeLinear (q, xs, xz)
        h = HardSigmoid <alpha = {alpha}, beta = 0.5> (a)
        b = Mul (h, a)
        p = QuantizeLinear (b, ys, yz)
    }}"""
    is_product = check(text_model(HEADER + text), Tabulate()) == ["QLinearAdd", "QLinearMul"]
    assert is_product is (alpha > 0 and scale > 0.1)


def test_rows_of_models_without_expand() -> None:
    inputs, outputs = "float[1,56,56,16] x, float[1,16] c", "float[1,56,56,16] y"
    text = f'<ir_version: 8, opset_import: ["" : 7]> g ({inputs}) => ({outputs}) {{ y = Sub (x, c) }}'
    assert "Tile" in check(text_model(text), WidenRows())


def test_affine_ops_that_change_the_scale_only_are_removed() -> None:
    """6 x is quantised with 6 times the scale; the next op reads the integers of x."""
    model = text_model(
        HEADER
        + """agraph (uint8[4,4,16,16] q) => (float[4,4,16,16] y)
        <float xs = {0.36}, float ys = {0.06}, uint8 xz = {120}, float six = {6}> {
            a = DequantizeLinear (q, xs, xz)
            b = Div (a, six)
            p = QuantizeLinear (b, ys, xz)
            y = DequantizeLinear (p, ys, xz)
        }"""
    )
    assert check(model, Tabulate()) == ["DequantizeLinear"]


GELU = """
    a = DequantizeLinear (q, xs, xz)
    b = Div (a, root)
    c = Erf (b)
    e = QuantizeLinear (c, es, ez)
    f = com.microsoft.QLinearAdd (e, es, ez, one, es, ez, fs, fz)
    g = com.microsoft.QLinearMul (q, xs, xz, f, fs, fz, gs, xz)
    p = com.microsoft.QLinearMul (g, gs, xz, one, es, ez, ps, xz)
"""
SILU = """
    a = com.microsoft.QLinearSigmoid (q, xs, xz, es, ez)
    p = com.microsoft.QLinearMul (q, xs, xz, a, es, ez, ps, xz)
"""
PER_CHANNEL = GELU.replace("(g, gs, xz, one", "(g, gs, xz, row").replace("Erf", "Neg")
TWO_TENSORS = GELU.replace("(q, xs, xz, f", "(r, xs, xz, f").replace("Erf", "Neg")
ANOTHER_READER = GELU + "s = com.microsoft.QLinearAdd (e, es, ez, r, xs, xz, ps, xz)"


@pytest.mark.parametrize(
    ("ops", "dtype", "outputs", "samples", "look_ups"),
    [
        *((GELU, dtype, "", "2", 1) for dtype in DTYPES),
        (ANOTHER_READER, "uint8", ", uint8[2,32,32,16] s", "2", 1),
        (GELU, "uint8", ", uint8[2,32,32,16] f", "2", 1),
        (SILU, "uint8", "", "2", 0),
        (GELU, "uint8", "", "N", 0),
        (PER_CHANNEL, "uint8", "", "2", 0),
        (TWO_TENSORS, "uint8", "", "2", 0),
    ],
    ids=["uint8", "int8", "another reader", "an output", "cheap", "symbolic", "per channel", "two tensors"],
)
def test_an_expensive_chain_is_one_look_up(ops: str, dtype: str, outputs: str, samples: str, look_ups: int) -> None:
    """A value that something else reads is looked up, and the ops behind it stay."""
    zero, shape = 0 if dtype == "int8" else 128, f"{samples},32,32,16"
    constants = f"""float xs = {{0.031}}, float root = {{1.4142135}}, float es = {{0.00784}}, float fs = {{0.00784}},
    float gs = {{0.041}}, float ps = {{0.021}}, {dtype} xz = {{{zero - 9}}}, {dtype} ez = {{{zero}}},
    {dtype} fz = {{{zero - 128}}}, {dtype}[1,1,1] one = {{{zero + 127}}}, {dtype}[16] row"""
    text = f"agraph ({dtype}[{shape}] q, {dtype}[{shape}] r) => ({dtype}[{shape}] p{outputs}) <{constants}> {{ {ops} }}"
    found = check(text_model(HEADER + text), Tabulate())
    assert found.count("GatherElements") == look_ups
    assert ("Erf" in found) is ("Erf" in ops and not look_ups)


def test_a_quantised_model_is_rewritten_after_baking_and_a_float_model_is_not() -> None:
    model = text_model(
        HEADER
        + """agraph (float[1,8,28,28] x) => (float[1,28,28,8] y)
        <float xs = {0.03}, uint8 xz = {120}, int8[8,8,1,1] w, float ws = {0.01}, int8 wz = {0}, float[8] m> {
            q = QuantizeLinear (x, xs, xz)
            d = DequantizeLinear (q, xs, xz)
            v = DequantizeLinear (w, ws, wz)
            c = Conv <kernel_shape = [1, 1]> (d, v)
            t = Transpose <perm = [0, 2, 3, 1]> (c)
            tq = QuantizeLinear (t, xs, xz)
            td = DequantizeLinear (tq, xs, xz)
            u = Sub (td, m)
            uq = QuantizeLinear (u, xs, xz)
            y = DequantizeLinear (uq, xs, xz)
        }"""
    )
    result = layoutopt.optimize(model, "cpu")
    assert result.report.changed
    assert {each.name for each in result.report.passes if each.changed} >= {"requantize-channels"}
    feed = {"x": RANDOM.normal(size=(1, 8, 28, 28)).astype(np.float32)}
    expected = ran(model, feed)
    np.testing.assert_array_equal(ran(result.proto, feed), expected)
    assert not layoutopt.optimize(result.proto, "cpu").report.changed
    plain = text_model(HEADER + "agraph (float[1,8] x) => (float[1,8] y) <float[8] m> { y = Sub (x, m) }")
    assert not any(each.name == "requantize-channels" for each in layoutopt.optimize(plain, "cpu").report.passes)


SIGNED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,16,8,8] z OUTPUTS)
<float s = {0.05}, int8 n = {-128}, int8 m = {5}, float t = {0.01}, int8 zero = {0}>
{
    q = QuantizeLinear (x, s, n)
    d = DequantizeLinear (q, s, n)
    w = DequantizeLinear (v, t WEIGHT_ZERO)
    c = Conv (d, w)
    p = QuantizeLinear (c, s, m)
    e = DequantizeLinear (p, s, m)
    f = Sigmoid (e)
    g = QuantizeLinear (f, t, m)
    h = DequantizeLinear (g, t, m)
    k = DequantizeLinear (r, t, m)
    a = Mul (e, h)
    b = QuantizeLinear (a, s, m)
    i = DequantizeLinear (b, s, m)
    j = Add (i, k)
    o = QuantizeLinear (j, s, m)
    y = DequantizeLinear (o, s, m)
    l = Conv (d, w)
    u = QuantizeLinear (l, s, m)
    z = DequantizeLinear (u, s, m)
}"""


@pytest.mark.parametrize(
    ("largest", "outputs", "weight_zero", "unsigned"),
    [(127, "", ", zero", 8), (64, "", ", zero", 7), (127, "", "", 8), (127, ", int8[1,16,8,8] q", ", zero", 6)],
    ids=["weights that would saturate", "narrow weights", "no zero point", "an output"],
)
def test_activations_of_int8_run_as_uint8(largest: int, outputs: str, weight_zero: str, unsigned: int) -> None:
    """The kernels for uint8 compute the integers of the definition, which those for uint8 and int8 miss by saturation."""
    if blocked_channels() is None:
        pytest.skip("onnxruntime has kernels of int8 activations here")
    weights = np.full((16, 16, 1, 1), largest, np.int8)
    random = np.random.default_rng(0)
    weights[8:] = random.integers(-largest, largest, (8, 16, 1, 1))
    row = random.integers(-128, 127, (1, 16, 1, 1)).astype(np.int8)
    model = parsed(SIGNED.replace("OUTPUTS", outputs).replace("WEIGHT_ZERO", weight_zero), v=weights, r=row)
    graph, result = rewritten(model, UnsignActivations())
    assert sum(x.dtype is DType.UINT8 and x.rank == 4 for x in graph.values) == unsigned
    feed = {"x": np.full((1, 16, 8, 8), 12.7, np.float32)}
    definition = ran(model, feed, is_optimised=False)
    for optimised in (False, True) if not outputs else (False,):
        for one, other in zip(definition, ran(result, feed, is_optimised=optimised), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=optimised * 0.051)  # ties may be rounded to either side
    verification = layoutopt.optimize(model, "cpu").report.verification
    assert verification.status == "passed"


def test_a_zero_point_that_is_dequantised_keeps_its_sign_elsewhere() -> None:
    model = parsed(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,8,8] x) => (float[1,16,8,8] y)
        <float s = {0.05}, int8 n = {-3}, int8 zero = {0}> {
            q = QuantizeLinear (x, s, n)  d = DequantizeLinear (q, s, n)  w = DequantizeLinear (v, s, zero)
            c = Conv (d, w)  p = QuantizeLinear (c, s, n)  e = DequantizeLinear (p, s, n)
            k = DequantizeLinear (zero, s, zero)  a = Add (e, k)  b = QuantizeLinear (a, s, n)
            y = DequantizeLinear (b, s, n) }""",
        v=np.random.default_rng(1).integers(-128, 128, (16, 16, 1, 1)).astype(np.int8),
    )
    assert layoutopt.optimize(model, "cpu", measure=False).report.changed
    alone = "g (float[4] x, int8[4] r) => (float[4] y, float z) <float s = {0.05}, int8 n = {-3}>"
    text = f"{alone} {{ y = DequantizeLinear (r, s, n)  z = DequantizeLinear (n, s, n) }}"
    assert not layoutopt.optimize(text_model(HEADER + text), "cpu", measure=False).report.changed


def test_wide_weights_behind_a_view_op_do_not_saturate() -> None:
    """onnxruntime moves the DequantizeLinear past the Transpose, so the product reads integers."""
    model = parsed(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[16,64] x) => (float[16,48] y)
        <float s = {0.5}, int8 n = {-128}, float t = {0.01}, int8 zero = {0}> {
            q = QuantizeLinear (x, s, n)  d = DequantizeLinear (q, s, n)
            a = DequantizeLinear (v, t, zero)  w = Transpose <perm = [1, 0]> (a)  c = MatMul (d, w)
            b = DequantizeLinear (u, t, zero)  e = MatMul (d, b)  y = Add (c, e) }""",
        v=np.full((48, 64), 127, np.int8),
        u=np.full((64, 48), 127, np.int8),
    )
    feed = {"x": np.full((16, 64), 127.5, np.float32)}
    _, result = rewritten(model, UnsignActivations())
    np.testing.assert_allclose(ran(result, feed)[0], ran(model, feed, is_optimised=False)[0], rtol=1e-5)


CONVOLUTION = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,C,28,28] x) => (float[1,C,28,28] y)
<float s = {0.05}, int8 n = {0}, float low = {0}, float high = {6}>
{
    q = QuantizeLinear <axis = 1> (x, SCALE, ZERO)
    d = DequantizeLinear <axis = 1> (q, SCALE, ZERO)
    w = DequantizeLinear <axis = 0> (v, scales, zeros)
    c = Conv <auto_pad = "SAME_UPPER"> (d, w)
    r = ACTIVATION
    p = QuantizeLinear (r, s, n)
    y = DequantizeLinear (p, s, n)
}"""


def convolution(channels: int, side: int, activation: str, scale: str = "s", zero: str = "n") -> onnx.ModelProto:
    """A convolution with scales of the weights that differ by a factor of 1000."""
    weights = np.full((channels, channels, side, side), 127, np.int8)
    weights[::2] = np.random.default_rng(0).integers(-128, 128, weights[::2].shape)
    text = CONVOLUTION.replace("C]", f"{channels}]").replace("C,", f"{channels},").replace("ACTIVATION", activation)
    constants = {"v": weights, "scales": np.geomspace(2e-5, 2e-2, channels).astype(np.float32)}
    text = text.replace("SCALE", scale).replace("ZERO", zero)
    return parsed(text, zeros=np.arange(channels).astype(np.int8) // 32, **constants)


@pytest.mark.parametrize(
    ("channels", "side", "activation", "is_blocked"),
    [
        (64, 3, "Relu (c)", True),
        (20, 3, "Relu (c)", False),
        (16, 1, "Clip (c, low, high)", False),
        (16, 1, "Identity (c) unread = DequantizeLinear (q, s, n)", False),
    ],
)
@pytest.mark.parametrize("is_faulty", [False, True])
def test_convolutions_without_an_integer_kernel_stay_exact(
    channels: int, side: int, activation: str, is_blocked: bool, is_faulty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A QuantizeLinear with the zero point 0 does not saturate where a Relu does, so onnxruntime runs it on its own.

    Kernels of integers would saturate sums of products, and one scale of all weights would make small channels zero. If a pass
    makes onnxruntime do that when it loads the model, verification leaves the pass out.
    """
    if blocked_channels() is None:
        pytest.skip("stock onnxruntime has no blocked kernels here")
    if is_faulty:
        monkeypatch.setattr(DetachQuantizers, "run", lambda *_: None)
        monkeypatch.setattr(integer, "_is_wide", lambda _: False)
    model = convolution(channels, side, activation)
    if is_faulty and "unread" in activation:
        with pytest.raises(layoutopt.VerificationError, match="segment by segment p differs"):
            layoutopt.optimize(model, "cpu", measure=False)
        return
    result = layoutopt.optimize(model, "cpu", measure=False)
    assert result.report.verification.status == "passed"
    is_found = BLOCKED_DOMAIN in {each.domain for each in result.proto.graph.node}
    assert is_faulty or is_found == is_blocked
    feed = {"x": 3 * RANDOM.normal(size=(1, channels, 28, 28)).astype(np.float32)}
    ((expected,), (found,)) = ran(model, feed, is_optimised=False), ran(result.proto.SerializeToString(), feed)
    steps = np.abs(expected - found) / 0.05
    assert steps.max() < 1.01 and (steps > 0.5).mean() < 2e-3


def test_integers_with_scales_per_axis_keep_their_sign() -> None:
    graph, _ = rewritten(convolution(16, 1, "Relu (c)", "scales", "zeros"), UnsignActivations())
    assert {x.name for x in graph.values if x.dtype is DType.INT8} >= {"q", "v"}


def test_explain_compares_a_quantised_model_with_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def notes(model: onnx.ModelProto, **options: Any) -> list[str]:
        found = layoutopt.explain(model, target="cpu", **options).notes
        return [each.reason for each in found if "float32" in each.reason]

    def measured_rows(models: Sequence[Runnable], *_: object, **__: object) -> Any:
        assert {"Conv", "MaxPool"} <= {node.op_type for node in models[1].message().graph.node}
        return [SimpleNamespace(seconds_before=0.002, seconds_after=0.001, low=1.9, high=2.1)], []

    if blocked_channels() is None:
        pytest.skip("stock onnxruntime has no blocked kernels here")
    model = residual(16, 16, 128, depthwise=True)
    assert notes(model) == ["the model is quantised: --calibrate measures whether it is faster in float32"]
    monkeypatch.delenv("LAYOUTOPT_NO_MEASURE", raising=False)
    monkeypatch.setattr(quantization, "measured_rows", measured_rows)
    times = "2.00 ms in integers, 1.00 ms in float32"
    assert notes(model, calibrate=True) == [f"onnxruntime runs the model slower than without quantisation: {times}"]
    assert not notes(text_model(HEADER + "g (float[1,8] x) => (float[1,8] y) { y = Relu (x) }"))


OUTPUT_BEFORE_QUANTIZER = """<ir_version: 8, opset_import: ["" : 13]>
g (float[1,16,6,3] x, float[1,32,32,32] z) => (float[1,8,2,6,3] v, float[1,2,8,6,3] y, OUTPUT, float[1,32,32,32] w)
<int64[5] s5 = {1,8,2,6,3}, int64[3] s3 = {1,16,18}, float s = {0.03}, uint8 n = {128}, float[32,32,3,3] k, float[32] b>
{
    c = Conv <pads = [1,1,1,1]> (z, k) d = BatchNormalization (c, b, b, b, b) w = Relu (d)
    a = Relu (x) v = Reshape (a, s5) t = Transpose <perm = [0,2,1,3,4]> (v)
    q = QuantizeLinear (t, s, n) y = DequantizeLinear (q, s, n) READER
}"""


def test_an_output_before_a_quantizer_is_not_rounded() -> None:
    """onnxruntime rounds an output that only a Transpose before a QuantizeLinear reads."""

    def result(output: str, reader: str) -> onnx.ModelProto:
        text = OUTPUT_BEFORE_QUANTIZER.replace("OUTPUT", output).replace("READER", reader)
        return layoutopt.optimize(text_model(text), "cpu", measure=False).proto

    feed = {name: np.ones(shape, np.float32) * 0.1 for name, shape in [("x", (1, 16, 6, 3)), ("z", (1, 32, 32, 32))]}
    session = inference_session(result("float[1,16,18] u", "u = Reshape (v, s3)").SerializeToString())
    assert (session.run(["v"], feed)[0] == np.float32(0.1)).all()
    with pytest.raises(layoutopt.VerificationError, match="v differs"):
        result("float[1,16,6,3] u", "u = Sigmoid (x) e = Sin (v)")
