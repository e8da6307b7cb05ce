"""Large graphs: planned to the proof, in time and memory that grow like the graph."""

import tracemalloc
from time import process_time

import numpy as np
import pytest

from layoutopt.cost_models import load_target
from layoutopt.ir import DType, Graph, Op, TensorType, Value
from layoutopt.ir.types import ArrayData
from layoutopt.planner import Plan, PlanRequest, make_plan

CHANNELS = 64
FLOATS = TensorType(DType.FLOAT32, (1, CHANNELS, 28, 28))


def chain(length: int) -> Graph:
    """Conv, Relu, Add, Conv ..., 1x1 and 3x3 in turn; every Add reads what was computed eight ops before."""
    graph = Graph("chain", {"": 18})
    values = [graph.add_value(Value("x", FLOATS))]
    graph.inputs = values[:1]
    weights = {kernel: np.zeros((CHANNELS, CHANNELS, kernel, kernel), np.float32) for kernel in (1, 3)}
    for index in range(length):
        last, y = values[-1], graph.add_value(Value(f"v{index}", FLOATS))
        if index % 3 == 0:
            kernel = 3 if index % 2 else 1
            data = weights[kernel]
            w = graph.add_value(Value(f"w{index}", TensorType(DType.FLOAT32, data.shape), data=ArrayData(data)))
            op = Op("Conv", (last, w), (y,), attributes={"kernel_shape": (kernel,) * 2, "pads": (kernel // 2,) * 4})
        elif index % 3 == 1:
            op = Op("Relu", (last,), (y,))
        else:
            op = Op("Add", (last, values[max(0, len(values) - 8)]), (y,))
        op.version = 18
        graph.add_op(op)
        values.append(y)
    graph.outputs = values[-1:]
    return graph


def timed(length: int) -> tuple[Plan, float]:
    graph, target = chain(length), load_target("gpu-hopper")
    start = process_time()
    return make_plan(PlanRequest(graph, target)), process_time() - start


def test_a_thousand_ops_are_planned_to_the_proof() -> None:
    plan, _ = timed(1000)
    assert plan.optimal
    assert plan.gap == 0
    assert plan.improves


@pytest.mark.thorough
def test_twenty_thousand_ops() -> None:
    _, few = timed(2000)
    plan, many = timed(20000)
    assert plan.optimal
    assert many < 40
    assert many < 20 * few


@pytest.mark.thorough
def test_memory_grows_like_the_graph() -> None:
    graph, target = chain(4000), load_target("gpu-hopper")
    tracemalloc.start()
    try:
        make_plan(PlanRequest(graph, target))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4000 * 50_000
