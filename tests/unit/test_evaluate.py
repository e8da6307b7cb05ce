"""Constant parts of a graph, computed by the runtime itself."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from layoutopt.errors import ModelError
from layoutopt.inference import lift
from layoutopt.ir.graph import Graph
from layoutopt.runtime.evaluate import evaluate, is_foldable

BODY = """g (float[2,3] x, bool c) => (float[2,3] y) <float[3] w = {1, 2, 3}, string[2] t = {"a", "b"}> {
    k = Constant <value = float[1] {4}> ()
    a = Mul(w, k)
    bf = Cast <to = 16> (a)
    i4 = Cast <to = 22> (a)
    f8 = Cast <to = 17> (a)
    first, rest = Split <num_outputs = 2> (i8)
    i8 = Cast <to = 3> (a)
    strings = Identity(t)
    random = RandomNormal <shape = [2]> ()
    many = SequenceConstruct(a, a)
    cond = If (c) <
        then_branch = p () => (float[3] u) { u = Relu(w) },
        else_branch = q () => (float[3] v) { v = Abs(w) }>
    own = custom.Own(w)
    dependent = Shape(x)
    y = Add(x, a)
}"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    text = '<ir_version: 10, opset_import: ["" : 21, "custom" : 1]>\n' + BODY
    return lift(ir.from_proto(parser.parse_model(text)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("w", np.array([1, 2, 3], np.float32)),
        ("k", np.array([4], np.float32)),
        ("a", np.array([4, 8, 12], np.float32)),
        ("bf", np.array([4, 8, 12], ml_dtypes.bfloat16)),
        ("f8", np.array([4, 8, 12], ml_dtypes.float8_e4m3fn)),
        ("first", np.array([4, 8], np.int8)),
        ("rest", np.array([12], np.int8)),
        ("strings", np.array(["a", "b"], object)),
    ],
)
def test_values(graph: Graph, name: str, expected: np.ndarray) -> None:
    (found,) = evaluate(graph, [graph.value(name)])
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", ["random", "many", "cond", "own", "dependent", "y", "x"])
def test_what_is_not_constant(graph: Graph, name: str) -> None:
    with pytest.raises(ModelError, match="constants alone"):
        evaluate(graph, [graph.value(name)])


def test_what_can_be_folded(graph: Graph) -> None:
    folded = {op.outputs[0].name for op in graph.ops if op.outputs[0] is not None and is_foldable(op)}
    assert folded == {"a", "bf", "i4", "f8", "i8", "first", "strings", "dependent", "y"}


def test_what_the_runtime_can_is_computed_beside_what_it_cannot() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g () => (bfloat16[1] y, float[1] z) <bfloat16[1] w = {1}, float[1] v = {2}>"""
    other = lift(ir.from_proto(parser.parse_model(text + " { y = Add(w, w) z = Mul(v, v) }")))
    missing, found = evaluate(other, other.outputs)
    assert missing is None
    assert found is not None and found.tolist() == [4]
