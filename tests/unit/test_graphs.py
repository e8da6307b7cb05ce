"""Graphs and passes: operations, invariants, each with the pass that breaks it, and pipelines."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir
import pytest

import layoutopt
from layoutopt import inference
from layoutopt.cost_models import load_target
from layoutopt.dialects import DIALECTS
from layoutopt.errors import InvariantError, PinError
from layoutopt.formats import Format
from layoutopt.ir import INVARIANTS, DType, Graph, Op, Padding, Signature, Storage, TensorType, Value, violations
from layoutopt.ir.graph import Stage, insert_cast, moves
from layoutopt.ir.types import ArrayData, Function
from layoutopt.ops import canonical_signature
from layoutopt.passes import DEFAULT_PIPELINE
from layoutopt.passes.base import Note, Pass, PassContext, Pipeline


def test_what_is_in_use_cannot_be_removed() -> None:
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


FLOATS = TensorType(DType.FLOAT32, (1, 17, 4, 4))
NHWC, BLOCKED = Format.parse("NHWC"), Format.parse("NCHW8c")


def small_graph() -> Graph:
    """x -> Relu -> a -> Add(a, w) -> y"""
    graph = Graph("net", {"": 18})
    x, a, y = (graph.add_value(Value(name, FLOATS)) for name in ("x", "a", "y"))
    w = graph.add_value(Value("w", FLOATS, data=ArrayData(np.zeros((1, 17, 4, 4), np.float32))))
    graph.add_op(Op("Relu", (x,), (a,), name="relu", version=18))
    graph.add_op(Op("Add", (a, w), (y,), name="add", version=18))
    graph.inputs, graph.outputs = [x], [y]
    return graph


def setting(name: str = "", stage: Stage = "plain", **fields: object) -> Callable[[Graph], None]:
    """A crime that sets attributes of a value, or without its name of the first op."""

    def crime(graph: Graph) -> None:
        graph.stage = stage
        for field, value in fields.items():
            setattr(graph.value(name) if name else graph.ops[0], field, value)

    return crime


def swap_an_operand_behind_the_graphs_back(graph: Graph) -> None:
    graph.ops[1].inputs = (graph.value("x"), graph.value("w"))


def swap_an_output_behind_the_graphs_back(graph: Graph) -> None:
    graph.ops[0].outputs = (graph.value("w"),)


def tie_a_knot(graph: Graph) -> None:
    graph.set_input(graph.ops[0], 0, graph.value("y"))


def read_what_nobody_computes(graph: Graph) -> None:
    graph.set_input(graph.ops[1], 0, graph.new_value("orphan", FLOATS))


def return_a_stranger(graph: Graph) -> None:
    graph.outputs = [Value("y", FLOATS)]


def read_an_outer_value_behind_the_graphs_back(graph: Graph) -> None:
    op = graph.ops[0]
    op.bodies, op.captured = {"body": Graph(root=graph)}, 1


def plan_one_op(stage: Stage) -> Callable[[Graph], None]:
    def crime(graph: Graph) -> None:
        graph.ops[0].signature = canonical_signature(graph.ops[0])
        graph.stage = stage

    return crime


def require_another_output(graph: Graph) -> None:
    graph.stage = "cast"
    for op in graph.ops:
        op.signature = canonical_signature(op)
    graph.output_storages[0] = Storage(NHWC)


def change_the_storage_of_a_body(graph: Graph) -> None:
    graph.stage = "cast"
    c = graph.new_value("c", TensorType(DType.BOOL, ()), data=ArrayData(np.asarray(True)))
    bodies = {name: Graph(name, root=graph) for name in ("then_branch", "else_branch")}
    branch = graph.add_op(Op("If", (c,), (graph.new_value("z", FLOATS),), version=18, bodies=bodies))
    for body, value in zip(bodies.values(), graph.capture(branch, graph.value("x")), strict=True):
        body.outputs, body.stage = [value], "cast"
    for op in graph.ops:
        op.signature = canonical_signature(op)
    for body in bodies.values():
        body.inputs[0].storage = body.output_storages[0] = Storage(NHWC)


def forget_a_cast(graph: Graph) -> None:
    for op in graph.ops:
        op.signature = canonical_signature(op)
    plain = canonical_signature(graph.ops[1])
    graph.ops[1].signature = Signature((Storage(NHWC), *plain.inputs[1:]), plain.outputs)
    graph.stage = "cast"


def feed_garbage_padding(graph: Graph) -> None:
    relu, add = graph.ops
    relu.signature = Signature((Storage(Format.canonical(4)),), (Storage(BLOCKED, Padding.ANY),))
    add.signature = Signature((Storage(BLOCKED), Storage(Format.canonical(4))), (Storage(Format.canonical(4)),))
    graph.value("a").storage = Storage(BLOCKED, Padding.ANY)
    graph.stage = "cast"


def leave_a_cast(graph: Graph) -> None:
    insert_cast(graph, graph.value("a"), Storage(Format.canonical(4)))
    for op in graph.ops:
        op.signature = None
    graph.opsets["layoutopt"], graph.stage = 1, "lowered"


def call_with_too_many_arguments(graph: Graph) -> None:
    graph.functions.append(Function("layoutopt", "Add", (), Graph()))
    graph.ops[1].domain, graph.opsets["layoutopt"], graph.stage = "layoutopt", 1, "lowered"


def reshape_to_more_elements(graph: Graph) -> None:
    graph.ops[0].op_type, graph.stage = "Reshape", "lowered"
    graph.value("a").type = TensorType(DType.FLOAT32, (1, 18, 4, 4))


ZEROS = ArrayData(np.zeros((1, 17, 4, 4), np.float32))
CRIMES: list[tuple[Callable[[Graph], None], str]] = [
    (swap_an_operand_behind_the_graphs_back, "edges are the operands of ops"),
    (swap_an_output_behind_the_graphs_back, "edges are the operands of ops"),
    (tie_a_knot, "the graph has no cycle"),
    (setting("a", data=ZEROS), "every value has one source"),
    (read_what_nobody_computes, "every value has one source"),
    (return_a_stranger, "graph inputs and outputs are in the graph"),
    (read_an_outer_value_behind_the_graphs_back, "bodies are closed"),
    (setting(bodies={"body": Graph()}), "bodies are closed"),
    (setting(captured=1), "bodies are closed"),
    (setting("a", storage=Storage(Format.parse("MN"))), "storages fit their tensors"),
    (
        setting("a", type=TensorType(DType.FLOAT32, (1, "C", 4, 4)), storage=Storage(BLOCKED)),
        "storages fit their tensors",
    ),
    (setting("a", storage=None), "storages fit their tensors"),
    (setting("a", storage=Storage(NHWC, Padding.ANY)), "tensors without padding have state zero"),
    (plan_one_op("cast"), "operands have the storages of the signature"),
    (require_another_output, "outputs have the required storages"),
    (change_the_storage_of_a_body, "boundaries of bodies are canonical"),
    (forget_a_cast, "operands have the storages of the signature"),
    (feed_garbage_padding, "operands have the storages of the signature"),
    (setting("a", "lowered", storage=Storage(NHWC)), "lowered values have no format"),
    (plan_one_op("lowered"), "lowered ops have no signature"),
    (leave_a_cast, "lowered ops of layoutopt are calls"),
    (call_with_too_many_arguments, "lowered ops of layoutopt are calls"),
    (setting("", "lowered", domain="com.microsoft.nchwc"), "lowered ops have a version"),
    (
        setting("w", "lowered", data=ArrayData(np.zeros((1, 24, 4, 4), np.float32))),
        "lowered constants fill their shapes",
    ),
    (
        setting("", "lowered", op_type="Transpose", attributes={"perm": (0, 2, 3, 1)}),
        "lowered arrays have the shapes that views give them",
    ),
    (reshape_to_more_elements, "lowered arrays have the shapes that views give them"),
]


@dataclass(frozen=True)
class Culprit(Pass):
    crime: Callable[[Graph], None]

    name = "culprit"

    def run(self, graph: Graph, context: PassContext) -> None:
        self.crime(graph)


@pytest.mark.parametrize(("crime", "invariant"), CRIMES)
def test_a_bad_pass_is_caught_by_name(crime: Callable[[Graph], None], invariant: str) -> None:
    with pytest.raises(InvariantError) as caught:
        Pipeline((Culprit(crime),)).run(small_graph(), PassContext(load_target("cpu-avx2")))
    assert "culprit" in str(caught.value)
    assert invariant in str(caught.value)


def test_every_invariant_has_a_crime() -> None:
    assert {invariant for _, invariant in CRIMES} == set(INVARIANTS)


def test_a_broken_graph_is_refused_before_the_first_pass() -> None:
    graph = small_graph()
    runs: list[Graph] = []
    tie_a_knot(graph)
    with pytest.raises(InvariantError, match="the graph before the first pass"):
        Pipeline((Culprit(runs.append),)).run(graph, PassContext(load_target("cpu-avx2")))
    assert not runs


RELUS = """<ir_version: 9, opset_import: ["" : 18]>
net (float[1,8,4,4] x) => (float[1,8,4,4] y) { a = Relu(x) b = Relu(a) c = Neg(b) y = Relu(c) }"""


@dataclass(frozen=True)
class DropRepeats(Pass):
    """before: Relu -> Relu    after: Relu"""

    name = "drop-repeats"

    def run(self, graph: Graph, context: PassContext) -> None:
        for op in filter(self.applies, graph.ops):
            x, y = op.inputs[0], op.outputs[0]
            first = graph.producer(x)
            if first is None or not self.applies(first):
                context.note(self, op.name or y.name, "its producer is another op")
            elif not graph.is_output(y):
                graph.replace_uses(y, x)
                graph.remove_if_dead(op)

    def applies(self, op: Op) -> bool:
        return op.kind == "Relu"


@pytest.fixture
def relus() -> Graph:
    return inference.lift(onnx_ir.serde.deserialize_model(onnx.parser.parse_model(RELUS)))


@pytest.fixture
def context() -> PassContext:
    return PassContext(load_target("cpu-avx2"))


def test_a_pass_runs_and_is_known_to_have_changed_something(relus: Graph, context: PassContext) -> None:
    results = Pipeline((DropRepeats(), DropRepeats())).run(relus, context)
    assert [(each.name, each.changed) for each in results] == [("drop-repeats", True), ("drop-repeats", False)]
    assert [op.op_type for op in relus.ops] == ["Relu", "Neg", "Relu"]
    assert all(each.seconds >= 0 for each in results)


def test_notes_say_what_did_not_apply(relus: Graph, context: PassContext) -> None:
    Pipeline((DropRepeats(),)).run(relus, context)
    assert context.notes == [
        Note("drop-repeats", "a", "its producer is another op"),
        Note("drop-repeats", "y", "its producer is another op"),
    ]


@pytest.mark.parametrize("name", DIALECTS)
def test_lowering_and_the_passes_of_a_dialect_are_reported_and_watched(name: str) -> None:
    seen: list[tuple[str, str, Graph]] = []
    result = layoutopt.optimize(
        onnx.parser.parse_model(RELUS),
        "gpu-hopper",
        dialect=name,
        pins={"x": "NHWC"},
        watch=lambda moment, step, graph: seen.append((moment, step.name, graph)),
    )
    behind = [step.name for step in DIALECTS[name].passes]
    assert [each.name for each in result.report.passes] == [*(each.name for each in DEFAULT_PIPELINE.passes), *behind]
    assert next(graph for *moment, graph in seen if moment == ["before", behind[0]]) is seen[-1][2]
    assert result.graph is seen[0][2] is not seen[-1][2]
    assert (result.graph.stage, seen[-1][2].stage) == ("cast", "lowered")


def test_an_exception_names_the_pass(relus: Graph, context: PassContext) -> None:
    @dataclass(frozen=True)
    class Broken(Pass):
        name = "broken"

        def run(self, graph: Graph, context: PassContext) -> None:
            raise KeyError("nothing")

    with pytest.raises(KeyError) as caught:
        Pipeline((Broken(),)).run(relus, context)
    assert caught.value.__notes__ == ["in pass broken, graph 'net'"]


@pytest.mark.parametrize(("name", "expected"), [("b", "part of another op"), ("q", "no such tensor")])
def test_a_tensor_that_is_gone_cannot_be_pinned(name: str, expected: str) -> None:
    pipeline = Pipeline((DropRepeats(), *DEFAULT_PIPELINE.passes))
    with pytest.raises(PinError, match=f"{name}: .*{expected}"):
        layoutopt.optimize(onnx.parser.parse_model(RELUS), "gpu-hopper", pins={name: "NHWC"}, pipeline=pipeline)


def test_a_pin_is_kept_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slower result is returned all the same; the original without the pinned format is not."""
    model, pins = onnx.parser.parse_model(RELUS), {"x": "NHWC"}
    monkeypatch.setattr("layoutopt.driver.stages.measure", lambda *_: "it is slower")
    assert layoutopt.optimize(model, "gpu-hopper", pins=pins).report.changed
    monkeypatch.setattr("layoutopt.driver.stages.lower", lambda *_: "nothing can check it")
    with pytest.raises(PinError, match=r"x: cannot be pinned: .*; nothing can check it"):
        layoutopt.optimize(model, "gpu-hopper", pins=pins)
