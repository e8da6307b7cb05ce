"""Operations on graphs, and the text form."""

import pytest

from layoutopt.formats import Format
from layoutopt.ir import (
    DType,
    Graph,
    Op,
    Padding,
    Storage,
    TensorType,
    Use,
    Value,
    violations,
)
from layoutopt.ir.graph import insert_cast, moves, to_text

FLOATS = TensorType(DType.FLOAT32, (1, 8, 4, 4))
NHWC = Format.parse("NHWC")


@pytest.fixture
def graph() -> Graph:
    """x -> Mul(x, x) -> a -> If(a) {a branch that negates x} -> y"""
    graph = Graph("net", {"": 18})
    x, a, y = (graph.add_value(Value(name, FLOATS)) for name in ("x", "a", "y"))
    graph.add_op(Op("Mul", (x, x), (a,), name="mul", order=(0,)))
    branch = Op("If", (a,), (y,), name="if", order=(1,), bodies={"then_branch": Graph("yes", root=graph)})
    graph.add_op(branch)
    (inner,) = graph.capture(branch, x)
    body = branch.bodies["then_branch"]
    body.outputs = [body.new_value("n", FLOATS)]
    body.add_op(Op("Neg", (inner,), (body.outputs[0],), name="neg"))
    graph.inputs, graph.outputs = [x], [y]
    return graph


def test_every_use_is_listed_in_order(graph: Graph) -> None:
    x, (mul, branch) = graph.value("x"), graph.ops
    assert graph.uses(x) == [Use(mul, 0), Use(mul, 1), Use(branch, 1)]


def test_every_change_counts_and_no_reading_does(graph: Graph) -> None:
    x, a, (mul, branch) = graph.value("x"), graph.value("a"), graph.ops
    version = graph.version
    assert graph.uses(x) and graph.values and to_text(graph) and not list(violations(graph))
    graph.set_input(mul, 1, x)
    assert graph.version == version
    changes = [
        lambda: graph.set_input(mul, 1, None),
        lambda: graph.set_inputs(mul, (x, x)),
        lambda: graph.rename(a, "b"),
        lambda: graph.capture(branch, a),
        lambda: graph.remove_capture(branch, 2),
        lambda: graph.set_output(0, a),
        lambda: graph.new_value("c", FLOATS),
        lambda: graph.remove_value(graph.value("c")),
        graph.touch,
    ]
    for change in changes:
        version = graph.version
        change()
        assert graph.version > version


def test_what_is_in_use_cannot_be_removed(graph: Graph) -> None:
    with pytest.raises(ValueError, match="'a' is still in use"):
        graph.remove_op(graph.ops[0])
    with pytest.raises(ValueError, match="'y' is still in use"):
        graph.remove_op(graph.ops[1])
    with pytest.raises(ValueError, match="'x' is still in use"):
        graph.remove_value(graph.value("x"))


def test_ops_come_in_file_order_where_they_may() -> None:
    graph = Graph()
    values = [graph.add_value(Value(f"v{index}", FLOATS)) for index in range(6)]
    graph.inputs = values[:1]
    for index in (5, 3, 4, 2, 1):
        graph.add_op(Op("Relu", (values[0],), (values[index],), name=str(index), order=(index,)))
    assert [op.name for op in graph.ops] == ["1", "2", "3", "4", "5"]
    near = Op("Relu", (values[0],), (graph.new_value("n", FLOATS),), name="near")
    first = Op("Relu", (values[0],), (graph.new_value("f", FLOATS),), name="first")
    graph.add_op(near, near=graph.ops[1])
    graph.add_op(first, first=True)
    assert [op.name for op in graph.ops] == ["first", "1", "2", "near", "3", "4", "5"]


def test_a_cast_keeps_padding_only_if_it_moves_nothing() -> None:
    graph = Graph()
    storage = Storage(Format.parse("NCHW8c"), Padding.FINITE)
    value = graph.add_value(Value("x", TensorType(DType.FLOAT32, (1, 17, 4, 4)), storage=storage))
    same_bytes = Format.parse("CNHW8c", "NCHW")
    assert not moves(value, Storage(same_bytes, Padding.ANY))
    assert moves(value, Storage(same_bytes, Padding.ZERO))
    assert insert_cast(graph, value, Storage(same_bytes, Padding.ANY)).storage == Storage(same_bytes, Padding.FINITE)
    assert insert_cast(graph, value, Storage(same_bytes)).storage == Storage(same_bytes)
    assert insert_cast(graph, value, Storage(NHWC, Padding.ANY)).storage == Storage(NHWC)


def test_a_value_takes_the_place_and_the_name_of_another() -> None:
    """x -> Shape -> Cast -> Neg, where the cast becomes an op on x: the name stays, and the unread Shape goes."""
    graph = Graph("net", {"": 18})
    x, s, t, y = (graph.add_value(Value(name, FLOATS)) for name in ("x", "s", "t", "y"))
    _, _, neg = (graph.add_op(Op("Any", (source,), (result,))) for source, result in ((x, s), (s, t), (t, y)))
    graph.inputs, graph.outputs = [x], [y, t]
    new = graph.new_value("new", FLOATS)
    direct = graph.add_copy(neg, (new,), (x,), name="direct", attributes={"to": 1})
    graph.replace_value(t, new)
    assert graph.value("t") is new and graph.find("new") is None and graph.outputs == [y, new]
    assert graph.ops == [direct, neg] and neg.inputs == (new,) and direct.attributes == {"to": 1}
    assert list(violations(graph)) == []
