"""Symbolic extents behind onnxruntime's own operators, whose input is a Reshape of computed shape."""

import onnx
import onnx.parser
import onnx_ir
import pytest

from layoutopt import inference
from layoutopt.formats import Extent, as_shape
from layoutopt.ops import rules
from layoutopt.runtime.session import Session

HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
TOKENS = """s = Shape (x) i = Constant <value_ints = [0]> () n = Gather (s, i) j = Constant <value_ints = [1]> ()
    c = Gather (s, j) rest = Constant <value_ints = [-1]> () t = Concat <axis = 0> (n, c, rest) r = Reshape (x, t)
    a = Transpose <perm = [0, 2, 1]> (r)"""
"""`a` has the shape [N, H*W, 4]."""

QUANTIZED = """u = Constant <value = float {0.1}> () z = Constant <value = uint8 {128}> ()
    q = com.microsoft.QuantizeLinear (a, u, z)"""
VECTOR = "v = Constant <value = float[4] {0.5, 1.0, 1.5, 2.0}> ()"

LIKE_AN_INPUT = {
    "Gelu": "y = com.microsoft.Gelu (a)",
    "QuickGelu": "y = com.microsoft.QuickGelu <alpha = 1.5> (a)",
    "FastGelu": f"{VECTOR} y = com.microsoft.FastGelu (a, v)",
    "FastGelu without a bias": "y = com.microsoft.FastGelu (a)",
    "BiasGelu": f"{VECTOR} y = com.microsoft.BiasGelu (a, v)",
    "SkipLayerNormalization": f"{VECTOR} y = com.microsoft.SkipLayerNormalization (a, a, v, v)",
    "SkipLayerNormalization with its sum": f"{VECTOR} l, , , y = com.microsoft.SkipLayerNormalization (a, a, v, v)",
    "SkipSimplifiedLayerNormalization": f"{VECTOR} y, , , l = com.microsoft.SkipSimplifiedLayerNormalization (a, a, v)",
    "SimplifiedLayerNormalization": f"{VECTOR} y = SimplifiedLayerNormalization (a, v)",
    "Trilu": "y = com.microsoft.Trilu (a)",
    "QuantizeLinear": f"{QUANTIZED} y = Identity (q)",
    "DequantizeLinear": f"{QUANTIZED} y = com.microsoft.DequantizeLinear (q, u, z)",
    "QLinearAdd": f"{QUANTIZED} y = com.microsoft.QLinearAdd (q, u, z, q, u, z, u, z)",
    "QLinearMul": f"{QUANTIZED} y = com.microsoft.QLinearMul (q, u, z, q, u, z, u, z)",
    "QLinearSigmoid": f"{QUANTIZED} y = com.microsoft.QLinearSigmoid (q, u, z, u, z)",
    "QLinearLeakyRelu": f"{QUANTIZED} y = com.microsoft.QLinearLeakyRelu (q, u, z, u, z)",
    "QLinearSoftmax": f"{QUANTIZED} y = com.microsoft.QLinearSoftmax <axis = -1, opset = 13> (q, u, z, u, z)",
    "QLinearWhere": f"{QUANTIZED} k = Greater (a, u) y = com.microsoft.QLinearWhere (k, q, u, z, q, u, z, u, z)",
    "in a branch": """p = Greater (i, j) b = Squeeze (p) e = If (b) <
        then_branch = yes () => (float[N,T,4] f) { f = com.microsoft.Gelu (a) },
        else_branch = no () => (float[N,T,4] g) { g = com.microsoft.QuickGelu (a) }> y = Identity (e)""",
}
FAMILIES = ("elementwise", "normalization", "softmax", "quantization", "triangle")
SIZES = ({"N": 2, "H": 3, "W": 5}, {"N": 1, "H": 4, "W": 1})


def message(body: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"{HEADER} g (float[N,4,H,W] x) => (y) {{ {TOKENS} {body} }}")
    model.graph.output[0].ClearField("type")
    return model


@pytest.mark.parametrize("body", LIKE_AN_INPUT.values(), ids=LIKE_AN_INPUT)
def test_extents_are_those_of_the_input(body: str) -> None:
    model = message(body)
    (y,) = inference.lift(onnx_ir.from_proto(model)).outputs
    assert y.shape == as_shape(("N", "H*W", 4))
    session = Session(model.SerializeToString(), threads=1)
    for sizes in SIZES:
        feed = onnx.numpy_helper.to_array(
            onnx.helper.make_tensor(
                "x", 1, (sizes["N"], 4, sizes["H"], sizes["W"]), [0.5] * (4 * sizes["N"] * sizes["H"] * sizes["W"])
            )
        )
        (found,) = session.run(None, {"x": feed})
        assert found.shape == tuple(Extent.of(dim).at(sizes) for dim in y.shape)


def test_every_operator_whose_output_is_like_an_input_is_tried() -> None:
    known = {
        kind.removeprefix("com.microsoft::")
        for kind, rule in rules().items()
        if rule.family in FAMILIES and kind.startswith("com.")
    }
    assert known <= {name.split()[0] for name in LIKE_AN_INPUT}


@pytest.mark.parametrize(
    ("attributes", "operands", "shape"),
    [
        ("transA = 1", "a, b", ("N", 4, "K")),
        ("transB = 1", "b, c", ("N", "S", 5)),
        ("transA = 1, transB = 1", "a, d", ("N", 4, 6)),
    ],
)
def test_a_product_reads_transposed_operands(attributes: str, operands: str, shape: tuple[int | str, ...]) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float[N,S,4] a, float[N,S,K] b, float[5,K] c, float[6,S] d) => (y)
    {{ y = com.microsoft.FusedMatMul <{attributes}> ({operands}) }}"""
    (y,) = inference.lift(onnx_ir.from_proto(onnx.parser.parse_model(text))).outputs
    assert y.shape == as_shape(shape)
