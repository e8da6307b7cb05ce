"""The cyclic garbage collector rarely runs while a model is optimised, and memory is freed without it."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from layoutopt.driver.garbage_collection import reduced_garbage_collection
from layoutopt.ir import DType, Graph, Op, TensorType, Value


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collections_are_rare_until_the_last_call_ends() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(ValueError, match="inside"), reduced_garbage_collection():
        rare = gc.get_threshold()
        assert rare[0] > 100_000
        with reduced_garbage_collection():
            assert gc.get_threshold() == rare
        assert gc.get_threshold() == rare
        raise ValueError("inside")
    assert gc.get_threshold() == (700, 10, 10)


def test_a_main_graph_is_freed_without_the_collector() -> None:
    graph = Graph("net", {"": 18})
    x, y = (graph.add_value(Value(name, TensorType(DType.FLOAT32, (1, 8)))) for name in ("x", "y"))
    graph.add_op(Op("Relu", (x,), (y,)))
    graph.inputs, graph.outputs = [x], [y]
    assert len(graph.ops) == 1 and graph.is_output(y) and graph.root is graph
    link = weakref.ref(graph)
    gc.disable()
    try:
        del graph
        assert link() is None
    finally:
        gc.enable()
