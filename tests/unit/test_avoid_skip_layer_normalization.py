"""Normalised sums: written so that onnxruntime does not fuse them into its slower kernel."""

import onnx
import onnx.parser
import onnx_ir

from layoutopt import inference, onnx_io
from layoutopt.cost_models import load_target
from layoutopt.dialects.onnxruntime.plain_passes import AvoidSkipLayerNormalization
from layoutopt.ir.graph import Graph
from layoutopt.passes.base import PassContext
from layoutopt.runtime.baking import bake
from layoutopt.verification import verify_models

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,5,8] x, float[1,5,8] r, float[8] scale, float[8] bias) => (float[1,5,8] z) {
  a = Add(x, r)
  y = LayerNormalization(a, scale, bias)
  b = Add(y, bias)
  z = LayerNormalization(b, scale, bias)
}"""


def lifted() -> tuple[onnx.ModelProto, Graph]:
    model = onnx.parser.parse_model(MODEL)
    return model, inference.lift(onnx_ir.serde.deserialize_model(model))


def test_a_residual_is_a_sum_and_a_bias_is_not() -> None:
    model, graph = lifted()
    AvoidSkipLayerNormalization().run(graph, PassContext(load_target("cpu-avx2")))
    assert [op.kind for op in graph.ops] == ["Sum", "LayerNormalization", "Add", "LayerNormalization"]
    verdict = verify_models(model.SerializeToString(), onnx_io.to_bytes(onnx_io.emit(graph)))
    assert verdict.status == "passed"


def test_onnxruntime_leaves_them_apart() -> None:
    _, graph = lifted()
    fused = "SkipLayerNormalization"
    assert fused in {node.op_type for node in bake(onnx_io.emit(graph), packs=False).graph}
    AvoidSkipLayerNormalization().run(graph, PassContext(load_target("cpu-avx2")))
    assert fused not in {node.op_type for node in bake(onnx_io.emit(graph), packs=False).graph}
