"""`--time-limit` covers all of planning, and the report and the summary name the stage that it ended."""

import onnx
import pytest
from onnx import TensorProto, helper

from layoutopt import optimize


def sum_of(count: int) -> onnx.ModelProto:
    """One Sum of many convolutions of one input."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [16, 16, 1, 1], [0.01] * 256)
    nodes = [helper.make_node("Conv", ["x", "w"], [f"c{index}"]) for index in range(count)]
    nodes.append(helper.make_node("Sum", [f"c{index}" for index in range(count)], ["y"]))
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 8, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "sum", types[:1], types[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_limit_that_is_over_at_once_leaves_the_formats() -> None:
    result = optimize(sum_of(60), "ascend-910b", time_limit=1e-9, verify=False)
    plan = result.report.plan
    assert plan is not None and plan.stopped == "candidates"
    assert plan.gap == 1.0 and plan.lower_bound == 0.0 and not plan.optimal
    assert plan.seconds_after == pytest.approx(plan.seconds_before)
    assert not result.report.changed and "time limit" in result.report.reason
    assert any(note.source == "assign-formats" and "time limit" in note.reason for note in result.report.notes)


def test_without_a_limit_the_same_model_gets_faster() -> None:
    plan = optimize(sum_of(60), "ascend-910b", verify=False).report.plan
    assert plan is not None and plan.stopped is None and plan.optimal
    assert plan.seconds_after < plan.seconds_before
