"""How dialects write ops: functions and their calls, and what the dialect `standard` writes."""

import numpy as np
import onnx
import onnx_ir
import pytest
from parsed_models import parsed, text_model

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cost_models import load_target
from layoutopt.dialects import DIALECTS
from layoutopt.dialects.onnxruntime.plain_passes import AvoidPrepacking, AvoidSkipLayerNormalization
from layoutopt.errors import ArgumentError, ModelError
from layoutopt.formats import Format, pack
from layoutopt.ir.graph import Graph, insert_cast
from layoutopt.ir.types import ArrayData, DType, Op, Padding, Signature, Storage, TensorType
from layoutopt.onnx_io import check, emit, to_bytes
from layoutopt.onnx_io.baked import normalized
from layoutopt.passes.base import PassContext
from layoutopt.runtime.baking import bake
from layoutopt.runtime.session import Session
from layoutopt.testing.rules import lower
from layoutopt.verification import verify_models


def ran(graph: Graph, dialect: str, x: np.ndarray) -> np.ndarray:
    """The output of a planned graph, as the dialect writes it."""
    lowered = emit(lower(graph, dialect))
    check(lowered)
    (got,) = Session(to_bytes(lowered)).run(None, {"x": x})
    return np.asarray(got)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_cast_to_the_same_format_sets_the_padding_to_zero(dialect: str) -> None:
    format = Format.parse("NCHW8c")
    stored, finite = Storage(format), Storage(format, Padding.FINITE)
    graph = Graph("sigmoid", {"": 17})
    type = TensorType(DType.FLOAT32, (1, 5, 2, 2))
    x, y = graph.new_value("x", type, storage=stored), graph.new_value("y", type, storage=finite)
    op = graph.add_op(Op("Sigmoid", (x,), (y,), version=17))
    op.signature = Signature((stored,), (finite,))
    graph.inputs, graph.outputs, graph.stage = [x], [insert_cast(graph, y, stored)], "cast"
    got = ran(graph, dialect, pack(np.zeros((1, 5, 2, 2), np.float32), format))
    assert np.array_equal(got, pack(np.full((1, 5, 2, 2), 0.5, np.float32), format))


@pytest.mark.parametrize("opset", [19, 21])
@pytest.mark.parametrize("dtype", [DType.FLOAT8E4M3FN, DType.FLOAT8E5M2, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2FNUZ])
def test_moving_float8_leaves_every_number_as_it_is(dtype: DType, opset: int) -> None:
    shape, format = (43, 6), Format.parse("MN4n")
    graph = Graph("moved", {"": opset})
    graph.inputs = [graph.new_value("x", TensorType(dtype, shape))]
    blocked = insert_cast(graph, graph.inputs[0], Storage(format))
    graph.outputs = [insert_cast(graph, blocked, Storage(Format.canonical(2)))]
    graph.stage = "cast"
    x = np.resize(np.arange(256, dtype=np.uint8), shape).view(dtype.numpy)
    got = ran(graph, "ops", x)
    assert np.array_equal(got.astype(np.float32), x.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_padding_of_some_axes_is_one_of_all_axes(dialect: str) -> None:
    """A Pad of some axes is written as a Pad of all axes; onnxruntime 1.31 moves the former wrongly across Transposes."""
    shape, padded = (2, 4, 3, 5), (2, 4, 4, 5)
    graph = Graph("padded", {"": 18})
    x = graph.new_value("x", TensorType(DType.FLOAT32, shape), storage=Storage(Format.parse("NHWC")))
    graph.inputs = [x]
    read = insert_cast(graph, x, Storage(Format.canonical(4)))
    pads, axes = (
        graph.new_value(name, TensorType(DType.INT64, (2 // size,)), data=ArrayData(np.asarray(numbers, np.int64)))
        for name, size, numbers in (("pads", 1, [0, 1]), ("axes", 2, [2]))
    )
    y = graph.new_value("y", TensorType(DType.FLOAT32, padded), storage=Storage(Format.canonical(4)))
    graph.add_op(Op("Pad", (read, pads, None, axes), (y,), version=18))
    graph.outputs, graph.stage = [insert_cast(graph, y, x.storage)], "cast"
    image = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    got = ran(graph, dialect, pack(image, Format.parse("NHWC")))
    assert np.array_equal(got, pack(np.pad(image, ((0, 0), (0, 0), (0, 1), (0, 0))), Format.parse("NHWC")))


GATHERS = 8


def model_of(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    return parsed(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}', **constants)


@pytest.mark.parametrize("axis", [0, 2])
def test_a_transpose_stays_in_front_of_gathers_of_rows(axis: int) -> None:
    """Rows are adjacent behind it; without it, every Gather reads single elements."""
    steps = "\n".join(f"g{step} = Gather <axis = {axis}> (t, i{step})" for step in range(GATHERS))
    names = ", ".join(f"g{step}" for step in range(GATHERS))
    perm = [2, 0, 1] if axis == 0 else [1, 2, 0]
    text = f"g (float[3,512,40] x) => (y) {{ t = Transpose <perm = {perm}> (x)\n{steps}\ny = Concat <axis = 0> ({names}) }}"
    indices = {f"i{step}": np.array(step * 5 % 3) for step in range(GATHERS)}
    result = layoutopt.optimize(model_of(text, **indices), "gpu-hopper", runtime="any")
    # Gathers of columns of t are Gathers of rows of x.
    kinds = [node.op_type for node in result.proto.graph.node]
    assert kinds.count("Transpose") == (1 if axis == 0 else 0)


# --- files that onnxruntime's optimiser bakes ------------------------------------------------------------

MODEL = """<ir_version: 8, opset_import: ["" : 17], producer_name: "someone">
named (float[batch,16,8,8] x) => (float[batch,16,8,8] y, float[batch,16,8,8] z)
<float two = {2.0}, float[16,16,3,3] w>
{
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    r = Relu (a)
    i = Identity (r)
    s = Sigmoid (i)
    y = Mul (s, i)
    z = Mul (y, two)
}"""


@pytest.fixture
def model() -> onnx_ir.Model:
    proto = text_model(MODEL)
    proto.metadata_props.add(key="kept", value="yes")
    return onnx_ir.from_proto(proto)


def test_it_is_a_fixed_point(model: onnx_ir.Model) -> None:
    baked = bake(model, packs=True)
    assert len(baked.graph) < len(model.graph)
    assert onnx_io.fingerprint(bake(baked, packs=True)) == onnx_io.fingerprint(baked)


def test_callers_see_no_difference(model: onnx_ir.Model) -> None:
    baked = bake(model, packs=True)
    for side in ("inputs", "outputs"):
        before, after = getattr(model.graph, side), getattr(baked.graph, side)
        assert [(v.name, v.dtype, v.shape) for v in before] == [(v.name, v.dtype, v.shape) for v in after]
    assert (baked.graph.name, baked.producer_name) == ("named", "someone")
    assert baked.metadata_props == {"kept": "yes"}
    assert set(baked.opset_imports) == {node.domain for node in baked.graph} | {""}


PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,64,12,12] x) => (float[1,1,144,64] y)
<int64[4] shape = {1, 1, 144, 64}, float root = {1.4142135}, float one = {1.0}, float half = {0.5}, float[64,CHANNELS,1,1] w>
{
    c = Conv <group = GROUP> (x, w)
    r = Reshape (c, shape)
    d = Div (r, root)
    e = Erf (d)
    a = Add (e, one)
    h = Mul (half, a)
    y = Mul (r, h)
}"""


@pytest.mark.parametrize("group", [1, 4])
def test_nothing_is_packed_without_a_block_size_check(group: int) -> None:
    """Without a block-size check no convolution is packed; onnxruntime packs a plain one when it loads the model."""
    proto = text_model(PLAIN.replace("GROUP", str(group)).replace("CHANNELS", str(64 // group)))
    result = layoutopt.optimize(proto, "cpu", dialect="onnxruntime", pins={"c": "NCHW", "x": "NCHW"})
    packed = [node.name for node in result.proto.graph.node if node.domain == "com.microsoft.nchwc"]
    assert result.report.changed
    assert bool(packed) == any("packed for blocks" in name for name in packed)


def test_the_order_follows_from_outputs_and_operands() -> None:
    """The order of nodes follows from outputs and operands, because onnxruntime's order of branches differs from run to run."""
    ops = ["a = Conv (x, w)", "b = Conv (x, v)", "r = Relu (a)", "s = Sigmoid (b)", "t = Tanh (a)", "y = Add (r, s)"]
    branch = "z = If (c) <then_branch = g () => (p) { p = Neg (t) }, else_branch = h () => (q) { q = Abs (b) }>"
    head = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,3,3] x, bool c) => (float[1,2,3,3] y, float[1,2,3,3] z)'
    )
    saved = []
    for order, weights in (((0, 2, 1, 3, 5, 4), "wv"), ((1, 3, 0, 4, 2, 5), "vw")):
        constants = ", ".join(f"float[2,2,1,1] {name} = {{1, 2, 3, {ord(name)}}}" for name in weights)
        model = onnx_ir.from_proto(
            onnx.parser.parse_model(f"{head} <{constants}> {{ {' '.join(ops[at] for at in order)} {branch} }}")
        )
        graph = normalized(model, model).graph
        saved.append([each.name for node in graph for each in node.outputs] + list(graph.initializers))
    assert saved[0] == saved[1] == ["a", "r", "b", "s", "y", "t", "z", "w", "v"]


def test_a_model_that_onnxruntime_would_not_load_again_is_not_baked() -> None:
    """onnxruntime expands GroupNormalization to data-movement ops, one of which then reads an int8 DequantizeLinear."""
    text = """<ir_version: 8, opset_import: ["" : 21]> g (float[1,H,4,24] x) => (float[1,24,H,4] y)
    <float s = {0.05}, int8 z = {3}, float[24] scale, float[24] bias>
    {
        q = QuantizeLinear (x, s, z)
        t = Transpose <perm = [0, 3, 1, 2]> (q)
        d = DequantizeLinear (t, s, z)
        y = GroupNormalization <num_groups = 6> (d, scale, bias)
    }"""
    proto = text_model(text)
    assert verify_models(proto.SerializeToString(), proto.SerializeToString()).status == "passed"
    with pytest.raises(ModelError, match="onnxruntime cannot load it"):
        bake(onnx_ir.from_proto(proto), packs=True)


RESIDUAL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,5,8] x, float[1,5,8] r, float[8] scale, float[8] bias) => (float[1,5,8] z) {
  a = Add(x, r)
  z = LayerNormalization(a, scale, bias)
}"""


def test_onnxruntime_leaves_a_residual_apart_from_its_normalisation() -> None:
    """What the pass writes is the golden case of avoid-skip-layer-normalization."""
    graph = inference.lift(onnx_ir.from_proto(onnx.parser.parse_model(RESIDUAL)))
    fused = "SkipLayerNormalization"
    assert fused in {node.op_type for node in bake(onnx_io.emit(graph), packs=False).graph}
    AvoidSkipLayerNormalization().run(graph, PassContext(load_target("cpu-avx2")))
    assert fused not in {node.op_type for node in bake(onnx_io.emit(graph), packs=False).graph}


HEADER = '<ir_version: 8, opset_import: ["" : 18]> g '


def after(proto: onnx.ModelProto) -> Graph:
    """The graph after the pass, which computes the same."""
    graph = inference.lift(onnx_ir.serde.deserialize_model(proto))
    AvoidPrepacking().run(graph, PassContext(load_target("cpu-avx2"), sessions="fast"))
    verdict = verify_models(proto.SerializeToString(), onnx_io.to_bytes(onnx_io.emit(graph)))
    assert verdict.status == "passed"
    return graph


def ranks(graph: Graph) -> dict[str, int | None]:
    return {value.name: value.rank for each in graph.regions() for value in each.values if value.data is not None}


@pytest.mark.parametrize(
    "body",
    [
        "s = Flatten <axis = 2> (x) u = Gemm (s, w) v = MatMul (x, w) y = Add (u, v)",
        "a = MatMul (x, w) y = Add (a, w)",
        "y = MatMul (w, w)",
        "a = Identity (w) b = MatMul (x, a) y = MatMul (b, a) z = Neg (w)",
    ],
)
def test_other_readers_keep_the_constant(body: str) -> None:
    proto = text_model(f"{HEADER} (float[1,256,256] x) => (float[1,256,256] y) <float[256,256] w> {{ {body} }}")
    assert ranks(after(proto))["w"] == 2


def test_constants_that_products_share_stay_shared() -> None:
    text = """(float[1,3,256] x, float[1,2,256] z) => (float[1,3,256] y, float[1,2,256] u) <float[256,256] w>
    { a = MatMul (x, w) y = MatMul (a, same) u = MatMul (z, w) }"""
    proto = text_model(HEADER + text)
    same = onnx.TensorProto.FromString(proto.graph.initializer[0].SerializeToString())
    same.name = "same"
    proto.graph.initializer.append(same)
    graph = after(proto)
    assert ranks(graph)["w"] == ranks(graph)["same"] == 3
    assert len({value.data for value in graph.values if value.name in ("w", "same")}) == 1


@pytest.mark.parametrize("sessions", ["slow", 1, None])
def test_other_sessions_are_refused(sessions: object) -> None:
    proto = text_model(f"{HEADER} (float[1,8] x) => (float[1,8] y) {{ y = Relu (x) }}")
    with pytest.raises(ArgumentError, match="should be 'balanced' or 'fast'"):
        layoutopt.optimize(proto, "cpu-avx2", sessions=sessions)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="sessions: needs a native dialect"):
        layoutopt.optimize(proto, "gpu-hopper", sessions="fast")
