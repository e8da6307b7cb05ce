"""Models baked by onnxruntime's optimiser, and constants of products that its sessions do not prepack."""

import onnx
import onnx_ir
import pytest
from parsed_models import text_model

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cost_models import load_target
from layoutopt.dialects.onnxruntime.plain_passes import AvoidPrepacking, AvoidSkipLayerNormalization
from layoutopt.errors import ArgumentError, ModelError
from layoutopt.ir.graph import Graph
from layoutopt.onnx_io.baked import normalized
from layoutopt.passes.base import PassContext
from layoutopt.runtime.baking import bake
from layoutopt.verification import verify_models

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
