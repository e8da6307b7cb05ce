"""Functions that call each other: inlined where the model stays small, left as calls where it would not."""

import onnx
import pytest
from onnx import TensorProto, helper

from layoutopt import inference, onnx_io
from layoutopt.onnx_io.inlining import Inlined

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]


def doubling(depth: int) -> onnx.ModelProto:
    """A call of f{depth}, which calls f{depth-1} twice, and so on: 2**depth Relus."""
    functions = [helper.make_function("my", "f0", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], OPSETS[:1])]
    for level in range(1, depth + 1):
        calls = [
            helper.make_node(f"f{level - 1}", ["x"], ["a"], domain="my"),
            helper.make_node(f"f{level - 1}", ["a"], ["y"], domain="my"),
        ]
        functions.append(helper.make_function("my", f"f{level}", ["x"], ["y"], calls, OPSETS))
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node(f"f{depth}", ["x"], ["y"], "call", domain="my")], "g", types[:1], types[1:]
    )
    return helper.make_model(graph, functions=functions, opset_imports=OPSETS, ir_version=9)


def inlined(depth: int) -> Inlined:
    return onnx_io.inline_functions(onnx_io.from_message(doubling(depth)), lambda kind: False)


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_small_functions_are_inlined(depth: int) -> None:
    found = inlined(depth)
    assert not found.kept
    assert len(list(found.model.graph)) == 2**depth


@pytest.mark.parametrize("depth", [16, 30])
def test_calls_stay_where_inlining_would_lead_to_too_many_ops(depth: int) -> None:
    found = inlined(depth)
    assert any("inlining would lead to more than" in reason for _, reason in found.kept)
    nodes = sum(len(list(each)) for each in (found.model.graph, *found.model.functions.values()))
    assert nodes < 400 * 2**11


@pytest.mark.parametrize("depth", [30])
def test_a_model_with_such_calls_is_lifted(depth: int) -> None:
    graph = inference.lift(inlined(depth).model)
    assert len(graph.ops) <= 2**11
