"""Operations on graphs, and the text form."""

import numpy as np
import pytest

from layoutopt.formats import Format
from layoutopt.ir import (
    DType,
    Graph,
    Op,
    Opaque,
    OpaqueType,
    Padding,
    ReferenceAttribute,
    Storage,
    TensorType,
    Use,
    Value,
    violations,
)
from layoutopt.ir.graph import insert_cast, is_cast, moves, to_text
from layoutopt.ir.types import ArrayData, Attribute

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


def test_producers_and_outputs(graph: Graph) -> None:
    a, y = graph.value("a"), graph.value("y")
    assert graph.producer(a) is graph.ops[0]
    assert graph.output_index(a) == 0
    assert graph.producer(graph.value("x")) is None
    assert graph.is_output(y) and not graph.is_output(a)
    assert len(graph) == 2 and a in graph and Value("a", FLOATS) not in graph
    with pytest.raises(KeyError):
        graph.output_index(graph.value("x"))


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


def test_replacing_uses_leaves_outputs(graph: Graph) -> None:
    x, new = graph.value("x"), graph.new_value("z", FLOATS)
    graph.outputs.append(x)
    graph.replace_uses(x, new)
    assert [op.inputs for op in graph.ops] == [(new, new), (graph.value("a"), new)]
    assert graph.outputs == [graph.value("y"), x]


def test_bodies_are_closed(graph: Graph) -> None:
    branch = graph.ops[1]
    body = branch.bodies["then_branch"]
    assert (branch.captured, branch.uncaptured_input_count) == (1, 1)
    assert body.root is graph and body.opsets is graph.opsets and graph.regions() == [graph, body]
    (other,) = graph.capture(branch, graph.value("a"))
    assert [value.name for value in body.inputs] == ["x", "a"] and branch.inputs[1:] == (
        graph.value("x"),
        graph.value("a"),
    )
    body.set_input(body.ops[0], 0, other)
    graph.remove_capture(branch, 1)
    assert body.inputs == [other] and branch.inputs == (graph.value("a"), graph.value("a"))
    assert list(violations(graph)) == []


def test_what_is_in_use_cannot_be_removed(graph: Graph) -> None:
    with pytest.raises(ValueError, match="'a' is still in use"):
        graph.remove_op(graph.ops[0])
    with pytest.raises(ValueError, match="'y' is still in use"):
        graph.remove_op(graph.ops[1])
    with pytest.raises(ValueError, match="'x' is still in use"):
        graph.remove_value(graph.value("x"))


def test_removing_an_op_takes_its_outputs_along(graph: Graph) -> None:
    graph.outputs = [graph.value("a")]
    graph.remove_op(graph.ops[1])
    assert graph.find("y") is None
    assert [op.name for op in graph.ops] == ["mul"]
    assert list(violations(graph)) == []


def test_what_nothing_reads_goes_with_what_only_that_has_read() -> None:
    """x -> Shape -> Slice -> Cast, where another op reads the shape; then without that reader."""
    graph = Graph("net", {"": 18})
    x, s, t, f, other = (graph.add_value(Value(name, FLOATS)) for name in ("x", "s", "t", "f", "other"))
    pairs = ((x, s), (s, t), (t, f), (s, other))
    shape, _, cast, reader = (graph.add_op(Op("Any", (source,), (result,))) for source, result in pairs)
    graph.inputs, graph.outputs = [x], [other]
    graph.remove_if_dead(shape)
    assert len(graph) == 4
    graph.remove_if_dead(cast)
    assert graph.ops == [shape, reader] and [value.name for value in graph.values] == ["x", "s", "other"]
    graph.outputs = [x]
    graph.remove_if_dead(reader)
    assert graph.ops == [] and graph.values == [x]


def test_names_are_unique(graph: Graph) -> None:
    with pytest.raises(ValueError, match="duplicate"):
        graph.add_value(Value("x", FLOATS))
    with pytest.raises(ValueError, match="duplicate"):
        graph.rename(graph.value("a"), "x")
    graph.new_value("x", FLOATS)
    assert graph.fresh_name("x") == "x_3"
    assert graph.fresh_name("new") == "new"


def test_a_cycle_is_named(graph: Graph) -> None:
    assert graph.find_cycle() == []
    graph.set_input(graph.ops[0], 0, graph.value("y"))
    assert set(graph.find_cycle()) == {"mul", "a", "if", "y"}


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


def test_the_only_producer_and_the_only_reader(graph: Graph) -> None:
    x, a, y, (mul, branch) = graph.value("x"), graph.value("a"), graph.value("y"), graph.ops
    assert graph.only_producer(a) is mul and graph.only_reader(a) is branch
    for value in (x, y, None):  # three uses, an output of the graph, no value
        assert graph.only_producer(value) is None and graph.only_reader(value) is None


def test_a_new_constant_has_the_type_of_its_array(graph: Graph) -> None:
    constant = graph.new_constant(np.arange(6, dtype=np.int32).reshape(2, 3), "a")
    assert (constant.name, constant.type) == ("a_2", TensorType(DType.INT32, (2, 3)))
    assert constant.data is not None and constant.data.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_new_result_has_the_opset_and_the_name_of_its_op(graph: Graph) -> None:
    mul, a = graph.ops[0], graph.value("a")
    result = graph.new_result("Softmax", (a,), FLOATS, "a", mul, attributes={"axis": 1})
    op = graph.ops[1]
    assert graph.producer(result) is op and (result.name, result.type) == ("a_2", FLOATS)
    assert (op.kind, op.inputs, op.version, op.name, op.attributes) == ("Softmax", (a,), 18, "a_2", {"axis": 1})
    other = graph.producer(graph.new_result("my.domain::Mirror", (), FLOATS, "m", first=True, name="mirror"))
    assert other is graph.ops[0] and (other.kind, other.version, other.name) == ("my.domain::Mirror", 1, "mirror")


def test_a_cast_stands_right_behind_its_producer(graph: Graph) -> None:
    copy = insert_cast(graph, graph.value("a"), Storage(NHWC))
    assert is_cast(graph.ops[1]) and copy.name == "a__NHWC" and copy.tensor == "a"
    again = insert_cast(graph, graph.value("a"), Storage(NHWC))
    assert again.name == "a__NHWC_2"


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


def test_text(graph: Graph) -> None:
    w = graph.add_value(Value("w", FLOATS, storage=Storage(NHWC), data=ArrayData(np.zeros((1, 8, 4, 4), np.float32))))
    padding = Storage(Format.parse("NCHW16c"), Padding.ANY)
    b = graph.add_value(Value("b", FLOATS, storage=padding))
    sequence = graph.add_value(Value("s", OpaqueType("seq(float)")))
    attributes: dict[str, Attribute] = {
        "to": 1,
        "axes": (0, 1),
        "mode": "up",
        "alpha": 0.5,
        "r": Opaque("ref", ReferenceAttribute("q")),
    }
    graph.add_op(Op("Odd", (w, None), (b, None, sequence), domain="other", attributes=attributes, order=(2,)))
    assert to_text(graph) == (
        "graph net(x: float32[1,8,4,4]) -> (y)\n"
        "  const w: float32[1,8,4,4] NHWC\n"
        "  a: float32[1,8,4,4] = Mul(x, x)\n"
        "  y: float32[1,8,4,4] = If(a | x)\n"
        "    then_branch yes(x: float32[1,8,4,4]) -> (n)\n"
        "      n: float32[1,8,4,4] = Neg(x)\n"
        "  b: float32[1,8,4,4] NCHW16c(any padding), _, s: seq(float) = "
        "other::Odd(w, _) {alpha=0.5, axes=[0, 1], mode='up', r=@q, to=1}\n"
    )


def test_unknown_ranks_and_symbols_in_text() -> None:
    graph = Graph("g")
    graph.inputs = [
        graph.add_value(Value("x", TensorType(DType.FLOAT16, ("N", 3)))),
        graph.add_value(Value("u", TensorType(DType.INT64, None))),
    ]
    assert to_text(graph) == "graph g(x: float16[N,3], u: int64[?]) -> ()\n"


def test_many_outputs_are_found_after_each_kind_of_change() -> None:
    graph = Graph("many", {"": 18})
    type = TensorType(DType.FLOAT32, (1,))
    values = [graph.add_value(Value(f"v{index}", type)) for index in range(50)]
    graph.outputs = values[:40]
    assert [graph.is_output(value) for value in values] == [True] * 40 + [False] * 10
    graph.set_output(3, values[45])
    assert graph.is_output(values[45]) and not graph.is_output(values[3])
    graph.outputs.append(values[46])
    assert graph.is_output(values[46])
    graph.outputs = values[20:]
    assert graph.is_output(values[47]) and not graph.is_output(values[0])


def test_a_value_that_one_op_reads_twice_is_not_private() -> None:
    graph = Graph("twice", {"": 18})
    type = TensorType(DType.FLOAT32, (1,))
    x, y, z = (graph.add_value(Value(name, type)) for name in "xyz")
    graph.inputs, graph.outputs = [x], [z]
    graph.add_op(Op("Mul", (x, x), (y,), version=18))
    graph.add_op(Op("Relu", (y,), (z,), version=18))
    assert [graph.has_one_use(value) for value in (x, y, z)] == [False, True, False]


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


def test_a_value_that_nothing_reads_keeps_its_place() -> None:
    """x -> Neg -> a -> Mul -> y, none of them read: a takes the place of y and stays."""
    graph = Graph("net", {"": 18})
    x, a, y = (graph.add_value(Value(name, FLOATS)) for name in ("x", "a", "y"))
    neg, _ = (graph.add_op(Op("Any", (source,), (result,))) for source, result in ((x, a), (a, y)))
    graph.inputs = [x]
    graph.replace_value(y, a)
    assert graph.ops == [neg] and graph.value("y") is a
    assert list(violations(graph)) == []


def test_a_constant_takes_the_place_of_a_computed_value(graph: Graph) -> None:
    a, branch = graph.value("a"), graph.ops[1]
    graph.replace_value(a, graph.new_value("c", FLOATS))
    assert graph.ops == [branch] and branch.inputs[0] is graph.value("a") and graph.producer(graph.value("a")) is None


def test_an_op_is_bypassed(graph: Graph) -> None:
    mul, branch = graph.ops
    graph.bypass(mul, 1)
    assert graph.ops == [branch] and branch.inputs[0] is mul.inputs[1] and graph.find("a") is None
    with pytest.raises(ValueError, match="'y' is still in use"):
        graph.bypass(branch)
