"""Rewrites of decoders: RMS normalisations, transposes with merged axes, keys that are repeated for groups of queries."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import layoutopt

CONSTANTS = {
    "two": np.float32(2),
    "one": np.float32(1),
    "three": np.float32(3),
    "tiny": np.float32(1e-6),
    "weight": np.linspace(0.5, 1.5, 64, dtype=np.float32),
    "short": np.ones(1, np.float32),
    "last": np.array([-1]),
    "middle": np.array([1]),
    "matrix": np.linspace(-0.1, 0.1, 64 * 64, dtype=np.float32).reshape(64, 64),
    "axis": np.array([2]),
    "repeated": np.array([1, 1, 4, 1, 1]),
    "scale": np.float32(0.125),
}


def optimized(signature: str, body: str, target: str = "cpu") -> list[str]:
    """Op types of the rewritten model, which is verified."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {signature} {{ {body} }}')
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    tensors = (numpy_helper.from_array(array, name) for name, array in CONSTANTS.items() if name in words)
    model.graph.initializer.extend(tensors)
    onnx.checker.check_model(model, full_check=True)
    result = layoutopt.optimize(model, target)
    assert result.report.verification.status == "passed"
    return [node.op_type for node in result.proto.graph.node]


SQUARE = "s = Pow (x, two) m = ReduceMean <keepdims = 1> (s, last) e = Add (m, tiny) r = Sqrt (e)"
NORMS = {
    "dynamo": f"{SQUARE} i = Reciprocal (r) n = Mul (x, i) w = Mul (weight, n)",
    "TorchScript": f"{SQUARE} i = Div (one, r) n = Mul (x, i) w = Mul (n, weight)",
    "TorchScript with a Cast": f"{SQUARE} i = Div (one, r) n = Mul (x, i) c = Cast <to = 1> (n) w = Mul (weight, c)",
    "quotient": "s = Mul (x, x) m = ReduceMean <keepdims = 1> (s, last) e = Add (tiny, m) r = Sqrt (e) n = Div (x, r) "
    "w = Mul (n, weight)",
}
OTHERS = {
    "the mean of cubes": NORMS["dynamo"].replace("two", "three"),
    "another axis": NORMS["dynamo"].replace("last", "middle"),
    "a root that is read twice": NORMS["dynamo"].replace("w = Mul (weight, n)", "v = Mul (weight, n) w = Add (v, r)"),
    "one scale": NORMS["dynamo"].replace("weight", "short"),
}
ROWS = "(float[N,S,64] x) => (float[N,S,64] y)"


@pytest.mark.parametrize("body", NORMS.values(), ids=NORMS)
def test_rms_normalisation_is_one_op_and_its_scale_stays(body: str) -> None:
    ops = optimized(ROWS, f"{body} y = MatMul (w, matrix)")
    assert ops.count("SimplifiedLayerNormalization") == 1 and "Sqrt" not in ops and "Mul" not in ops


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_other_normalisations_stay(body: str) -> None:
    ops = optimized(ROWS, f"{body} y = Relu (w)")
    assert "SimplifiedLayerNormalization" not in ops


REPEATED = "u = Unsqueeze (k, axis) r = Expand (u, repeated) h = Reshape (r, heads)"
HEADS = (
    "batch = Shape <start = 0, end = 1> (k) rest = Constant <value_ints = [8, 40, 64]> () "
    "heads = Concat <axis = 0> (batch, rest)"
)
FLAT = (
    "flat = Constant <value_ints = [-1, 40, 64]> () split = Constant <value_ints = [-1, 8, 64, 40]> () "
    "f = Reshape (h, flat) g = Transpose <perm = [0, 2, 1]> (f) t = Reshape (g, split)"
)
PRODUCTS = {
    "keys": f"{REPEATED} t = Transpose <perm = [0, 1, 3, 2]> (h) y = MatMul (q, t)",
    "scaled keys": f"{REPEATED} t = Transpose <perm = [0, 1, 3, 2]> (h) c = Mul (t, scale) y = MatMul (q, c)",
    "keys of torch": f"{REPEATED} {FLAT} y = MatMul (q, t)",
    "values": f"{REPEATED} p = MatMul (q, q2) y = MatMul (p, h)",
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("target", ["cpu", "gpu-hopper"])
def test_keys_of_grouped_queries_are_not_repeated(name: str, target: str) -> None:
    inputs = "float[N,8,5,64] q, float[N,2,40,64] k" + (", float[N,8,64,40] q2" if name == "values" else "")
    columns = 64 if name == "values" else 40
    ops = optimized(f"({inputs}) => (float[N,8,5,{columns}] y)", f"{HEADS} {PRODUCTS[name]}", target)
    assert "Expand" not in ops


def test_repeated_keys_that_are_read_twice_stay() -> None:
    heads = "heads = Constant <value_ints = [1, 8, 40, 64]> ()"
    body = f"{heads} {REPEATED} y = MatMul (q, h) z = Relu (h)"
    ops = optimized("(float[1,8,5,40] q, float[1,2,40,64] k) => (float[1,8,5,64] y, float[1,8,40,64] z)", body)
    assert "Expand" in ops


def test_a_gather_of_rows_does_not_become_one_of_single_elements() -> None:
    """T5's position bias: rows of 8 heads, whose axes are exchanged afterwards."""
    constants = np.linspace(-1, 1, 32 * 8, dtype=np.float32).reshape(32, 8)
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (int64[64,64] i, float[8,64,64] x) => (float[8,64,64] y)'
        "{ b = Gather (table, i) t = Transpose <perm = [2, 0, 1]> (b) s = Add (x, t) y = Softmax <axis = -1> (s) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(constants, "table"))
    result = layoutopt.optimize(model, "cpu")
    (gather,) = (node for node in result.proto.graph.node if node.op_type == "Gather")
    assert not [each.i for each in gather.attribute if each.name == "axis" and each.i]
