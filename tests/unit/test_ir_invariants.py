"""Every invariant catches the pass that breaks it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import layoutopt.dialects  # noqa: F401  (it has the invariants of lowered graphs)
from layoutopt.cost_models import load_target
from layoutopt.errors import InvariantError
from layoutopt.formats import Format
from layoutopt.ir import INVARIANTS, DType, Graph, Op, Padding, Signature, Storage, TensorType, Value
from layoutopt.ir.graph import insert_cast
from layoutopt.ir.types import ArrayData, Function
from layoutopt.ops import canonical_signature
from layoutopt.passes.base import Pass, PassContext, Pipeline

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


def change_operands_behind_the_graphs_back(graph: Graph) -> None:
    graph.ops[1].inputs = graph.ops[1].inputs[:1]


def swap_an_operand_behind_the_graphs_back(graph: Graph) -> None:
    graph.ops[1].inputs = (graph.value("x"), graph.value("w"))


def swap_an_output_behind_the_graphs_back(graph: Graph) -> None:
    graph.ops[0].outputs = (graph.value("w"),)


def tie_a_knot(graph: Graph) -> None:
    graph.set_input(graph.ops[0], 0, graph.value("y"))


def compute_a_constant(graph: Graph) -> None:
    graph.value("a").data = ArrayData(np.zeros((1, 17, 4, 4), np.float32))


def read_what_nobody_computes(graph: Graph) -> None:
    graph.set_input(graph.ops[1], 0, graph.new_value("orphan", FLOATS))


def return_a_stranger(graph: Graph) -> None:
    graph.outputs = [Value("y", FLOATS)]


def read_an_outer_value_behind_the_graphs_back(graph: Graph) -> None:
    op = graph.ops[0]
    op.bodies, op.captured = {"body": Graph(root=graph)}, 1


def give_a_body_to_another_model(graph: Graph) -> None:
    graph.ops[0].bodies = {"body": Graph()}


def capture_without_a_body(graph: Graph) -> None:
    graph.ops[0].captured = 1


def give_a_format_of_another_rank(graph: Graph) -> None:
    graph.value("a").storage = Storage(Format.parse("MN"))


def block_a_symbolic_axis(graph: Graph) -> None:
    graph.value("a").type = TensorType(DType.FLOAT32, (1, "C", 4, 4))
    graph.value("a").storage = Storage(BLOCKED)


def forget_the_storage(graph: Graph) -> None:
    graph.value("a").storage = None


def declare_padding_that_does_not_exist(graph: Graph) -> None:
    graph.value("a").storage = Storage(NHWC, Padding.ANY)


def plan_half_the_graph(graph: Graph) -> None:
    graph.ops[0].signature = canonical_signature(graph.ops[0])
    graph.stage = "cast"


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


def lower_without_the_format(graph: Graph) -> None:
    graph.value("a").storage = Storage(NHWC)
    graph.stage = "lowered"


def keep_a_signature(graph: Graph) -> None:
    graph.ops[0].signature = canonical_signature(graph.ops[0])
    graph.stage = "lowered"


def leave_a_cast(graph: Graph) -> None:
    insert_cast(graph, graph.value("a"), Storage(Format.canonical(4)))
    for op in graph.ops:
        op.signature = None
    graph.opsets["layoutopt"], graph.stage = 1, "lowered"


def call_with_too_many_arguments(graph: Graph) -> None:
    graph.functions.append(Function("layoutopt", "Add", ("a",), ("y",), (), Graph()))
    graph.ops[1].domain, graph.opsets["layoutopt"], graph.stage = "layoutopt", 1, "lowered"


def call_a_domain_that_is_not_imported(graph: Graph) -> None:
    graph.ops[0].domain, graph.stage = "com.microsoft.nchwc", "lowered"


def pack_to_another_size(graph: Graph) -> None:
    graph.value("w").data, graph.stage = ArrayData(np.zeros((1, 24, 4, 4), np.float32)), "lowered"


def transpose_to_the_same_shape(graph: Graph) -> None:
    graph.ops[0].op_type, graph.ops[0].attributes, graph.stage = "Transpose", {"perm": (0, 2, 3, 1)}, "lowered"


def reshape_to_more_elements(graph: Graph) -> None:
    graph.ops[0].op_type, graph.value("a").type, graph.stage = (
        "Reshape",
        TensorType(DType.FLOAT32, (1, 18, 4, 4)),
        "lowered",
    )


CRIMES: dict[Callable[[Graph], None], str] = {
    change_operands_behind_the_graphs_back: "edges are the operands of ops",
    swap_an_operand_behind_the_graphs_back: "edges are the operands of ops",
    swap_an_output_behind_the_graphs_back: "edges are the operands of ops",
    tie_a_knot: "the graph has no cycle",
    compute_a_constant: "every value has one source",
    read_what_nobody_computes: "every value has one source",
    return_a_stranger: "graph inputs and outputs are in the graph",
    read_an_outer_value_behind_the_graphs_back: "bodies are closed",
    give_a_body_to_another_model: "bodies are closed",
    capture_without_a_body: "bodies are closed",
    give_a_format_of_another_rank: "storages fit their tensors",
    block_a_symbolic_axis: "storages fit their tensors",
    forget_the_storage: "storages fit their tensors",
    declare_padding_that_does_not_exist: "tensors without padding have state zero",
    plan_half_the_graph: "operands have the storages of the signature",
    require_another_output: "outputs have the required storages",
    change_the_storage_of_a_body: "bodies have the storages of the signature of their op",
    forget_a_cast: "operands have the storages of the signature",
    feed_garbage_padding: "operands have the storages of the signature",
    lower_without_the_format: "lowered values have no format",
    keep_a_signature: "lowered ops have no signature",
    leave_a_cast: "lowered ops of layoutopt are calls",
    call_with_too_many_arguments: "lowered ops of layoutopt are calls",
    call_a_domain_that_is_not_imported: "lowered ops have a version",
    pack_to_another_size: "lowered constants fill their shapes",
    transpose_to_the_same_shape: "lowered arrays have the shapes that views give them",
    reshape_to_more_elements: "lowered arrays have the shapes that views give them",
}


@dataclass(frozen=True)
class Culprit(Pass):
    crime: Callable[[Graph], None]

    name = "culprit"

    def run(self, graph: Graph, context: PassContext) -> None:
        self.crime(graph)


@pytest.mark.parametrize("crime", CRIMES, ids=lambda crime: crime.__name__)
def test_a_bad_pass_is_caught_by_name(crime: Callable[[Graph], None]) -> None:
    with pytest.raises(InvariantError) as caught:
        Pipeline((Culprit(crime),)).run(small_graph(), PassContext(load_target("cpu-avx2")))
    assert "culprit" in str(caught.value)
    assert CRIMES[crime] in str(caught.value)


def test_every_invariant_has_a_crime() -> None:
    assert set(CRIMES.values()) == set(INVARIANTS)


def test_a_broken_graph_is_refused_before_the_first_pass() -> None:
    graph = small_graph()
    runs: list[Graph] = []
    tie_a_knot(graph)
    with pytest.raises(InvariantError, match="the graph before the first pass"):
        Pipeline((Culprit(runs.append),)).run(graph, PassContext(load_target("cpu-avx2")))
    assert not runs


def test_verification_can_be_switched_off() -> None:
    Pipeline((Culprit(tie_a_knot),), verifies=False).run(small_graph(), PassContext(load_target("cpu-avx2")))
