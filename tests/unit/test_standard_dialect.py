"""The dialect `standard`: Transposes of constants, and prices in runtimes that read standard operators."""

from collections import Counter

import numpy as np
import onnx.parser
import onnx_ir
import pytest
from onnx import numpy_helper

import layoutopt
from layoutopt import inference
from layoutopt.cost_models import find_runtime, load_target
from layoutopt.dialects.passes import FoldTransposes
from layoutopt.passes.base import Mode, PassContext

GATHERS = 8


def model_of(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize(("mode", "left"), [("inference", 0), ("training", 2)])
def test_transposes_of_constants_are_folded_unless_weights_are_trained(mode: Mode, left: int) -> None:
    weights = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    text = """g (float[1] x) => (float[2,4,3] y) {
        a = Transpose <perm = [1, 2, 0]> (w)
        b = Transpose (a)
        y = Add (x, b)
    }"""
    graph = inference.lift(onnx_ir.serde.deserialize_model(model_of(text, w=weights)))
    FoldTransposes().run(graph, PassContext(load_target("gpu-hopper"), mode))
    assert sum(op.kind == "Transpose" for op in graph.ops) == left
    operand = graph.ops[-1].inputs[1]
    assert operand is not None
    if operand.data is not None:
        np.testing.assert_array_equal(operand.data.numpy(), weights.transpose(1, 2, 0).transpose())


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
    assert kinds(result.proto)["Transpose"] == (1 if axis == 0 else 0)


def test_the_report_of_standard_operators_has_the_proven_minimum() -> None:
    text = "g (float[2,8,5] x) => (float[2,5,8] y) { t = Transpose <perm = [0, 2, 1]> (x)\ny = Relu (t) }"
    plan = layoutopt.optimize(model_of(text), "gpu-hopper", runtime="any").report.plan
    assert find_runtime("any").kernels == "standard"
    assert plan is not None and plan.least_moves == 1
