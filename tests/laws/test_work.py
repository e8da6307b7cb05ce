"""The work of planning, passes, lowering and emission grows with the graph: counted, not timed."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from parsed_models import parsed
from tiers import covering

from layoutopt.cost import CostModel, MultiTargetCostModel
from layoutopt.cost_models import load_target
from layoutopt.dialects import DIALECTS
from layoutopt.formats import Format
from layoutopt.inference import lift
from layoutopt.ir import Graph, Op, Use, Value, constants
from layoutopt.ir import graph as ir_graph
from layoutopt.ir.types import Data, Slot
from layoutopt.onnx_io import emit, from_message
from layoutopt.ops import rule_of
from layoutopt.passes import DEFAULT_PIPELINE
from layoutopt.passes.base import PassContext, Pipeline
from layoutopt.planner import Deadline, PlanRequest, make_plan, propagation
from layoutopt.planner.program import Program

IMAGE = "float[1,16,8,8]"
QUANTISED = "QuantizeLinear ({}, scale, zero) {} = DequantizeLinear ({}, scale, zero)"
CONSTANTS: dict[str, Any] = {
    "w": (16, 16, 1, 1),
    "half": np.full((16, 1, 1), 0.5, np.float32),
    "number": np.float32(1.5),
    "scale": np.float32(0.1),
    "zero": np.uint8(0),
    "bytes": np.ones((16, 16, 1, 1), np.uint8),
}


def layers(text: str, count: int) -> str:
    """Nodes, again and again; # is the number of the repetition, and #+ the next one."""
    return " ".join(text.replace("#+", str(number + 1)).replace("#", str(number)) for number in range(count))


def net(body: str, *outputs: str, **own: Any) -> Graph:
    """A graph that reads the image h0; only the constants that it reads are in it."""
    read = {name: given for name, given in CONSTANTS.items() if re.search(rf"\b{name}\b", body)}
    results = ", ".join(f"float[?,?,?,?] {name}" for name in outputs)
    text = f'<ir_version: 10, opset_import: ["" : 18]> net ({IMAGE} h0, bool b) => ({results}) {{ {body} }}'
    return lift(from_message(parsed(text, **read, **own)))


def own_weights(count: int, filters: int = 16) -> dict[str, tuple[int, ...]]:
    return {f"w{number}": (filters, 16, 1, 1) for number in range(count)}


def chain(count: int) -> Graph:
    return net(layers("c# = Conv (h#, w#) h#+ = Relu (c#)", count), f"h{count}", **own_weights(count))


def outputs(count: int) -> Graph:
    """A chain of convolutions, the result of each of which is an output."""
    results = [f"c{number}" for number in range(count)]
    return net(layers("c# = Conv (h#, w) h#+ = Relu (c#)", count), *results)


def fan_out(count: int) -> Graph:
    """One tensor that all ops read, and one op that reads all their results."""
    names = ", ".join(f"t{number}" for number in range(count))
    return net(f"c = Conv (h0, w) {layers('t# = Tanh (c)', count)} s = Sum ({names}) y = Conv (s, w)", "y")


def dequantised(count: int) -> Graph:
    """One dequantised tensor that the convolutions of many QDQ groups read."""
    group = f"c# = Conv (x, f) q# = {QUANTISED.format('c#', 'y#', 'q#')} "
    body = f"q = {QUANTISED.format('h0', 'x', 'q')} f = DequantizeLinear (bytes, scale, zero) {layers(group, count)}"
    return net(body, *(f"y{number}" for number in range(count)))


def bodies(count: int) -> Graph:
    """If ops one after the other, with a convolution in each branch."""
    branches = (f"{name} () => ({IMAGE} {name}) {{ {name} = Conv (h#, w#) }}" for name in ("t#", "e#"))
    line = "h#+ = If (b) <then_branch = {}, else_branch = {}> ".format(*branches)
    return net(layers(line, count), f"h{count}", **own_weights(count))


def joined(op: str) -> Callable[[int], Graph]:
    """One op that reads `count` tensors, each from a convolution."""

    def build(count: int) -> Graph:
        names = ", ".join(f"c{number}" for number in range(count))
        channels = 16 * count if "Concat" in op else 16
        body = f"{layers('c# = Conv (h0, w#)', count)} j = {op} ({names}) y = Conv (j, v)"
        return net(body, "y", **own_weights(count), v=(16, channels, 1, 1))

    return build


def uneven(count: int) -> Graph:
    """A Concat of tensors with different numbers of channels."""
    names = ", ".join(f"c{number}" for number in range(count))
    weights = {f"w{number}": (8 + number, 16, 1, 1) for number in range(count)}
    return net(f"{layers('c# = Conv (h0, w#)', count)} y = Concat <axis = 1> ({names})", "y", **weights)


def split(count: int) -> Graph:
    names = ", ".join(f"p{number}" for number in range(count))
    body = (
        f"c = Conv (h0, v) {names} = Split <axis = 1, num_outputs = {count}> (c) {layers('y# = Conv (p#, w#)', count)}"
    )
    results = [f"y{number}" for number in range(count)]
    return net(body, *results, v=(16 * count, 16, 1, 1), **own_weights(count))


GRAPHS: dict[str, Callable[[int], Graph]] = {
    "one weight": lambda count: net(
        layers("c# = Conv (h#, w) m# = Mul (c#, half) h#+ = Relu (m#)", count), f"h{count}"
    ),
    "outputs": outputs,
    "fan-out": fan_out,
    "Max": joined("Max"),
    # Gates x * sigmoid(1.5 x), as exporters write them; one constant for all.
    "one scalar": lambda count: net(
        f"c = Conv (h0, w) g0 = Relu (c) {layers('m# = Mul (g#, number) s# = Sigmoid (m#) g#+ = Mul (g#, s#)', count)}"
        f" y = Conv (g{count}, w)",
        "y",
    ),
    "dequantised": dequantised,
    "bodies": bodies,
}


class _Outputs(list[Value]):
    """A list of outputs that counts the visited elements."""

    def __init__(self, values: Iterable[Value], done: Counter[str]) -> None:
        super().__init__(values)
        self.done = done

    def __iter__(self) -> Iterator[Value]:
        self.done["outputs visited"] += len(self)
        return super().__iter__()


def work(graph: Graph, target: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The work of the pipeline, lowering and emission.

    Uses listed, operands copied, ops sorted, outputs visited, and constants whose size is asked for.
    """
    done: Counter[str] = Counter()
    uses, change_inputs, set_inputs = Graph.uses, Graph.change_inputs, Graph.set_inputs
    is_topological, stored = ir_graph._is_topological, constants.stored

    def measured(value: Value) -> dict[Data, int]:
        done["constants measured"] += 1
        return stored(value)

    def listed(self: Graph, value: Value) -> list[Use]:
        found = uses(self, value)
        done["uses listed"] += len(found)
        return found

    def changed(self: Graph, op: Op, values: Mapping[int, Value | None]) -> None:
        done["operands copied"] += len(op.inputs)
        change_inputs(self, op, values)

    def replaced(self: Graph, op: Op, inputs: tuple[Value | None, ...]) -> None:
        done["operands copied"] += len(inputs)
        set_inputs(self, op, inputs)

    def ordered(ops: Sequence[Op]) -> bool:
        done["ops sorted"] += len(ops)
        return is_topological(ops)

    graph.outputs = _Outputs(graph.outputs, done)
    model = load_target(target)
    dialect = DIALECTS[model.dialect]
    context = PassContext(model, kernels=dialect.kernels)
    with monkeypatch.context() as patch:
        patch.setattr(Graph, "uses", listed)
        patch.setattr(Graph, "change_inputs", changed)
        patch.setattr(Graph, "set_inputs", replaced)
        patch.setattr(constants, "stored", measured)
        patch.setattr(ir_graph, "_is_topological", ordered)
        DEFAULT_PIPELINE.run(graph, context)
        context.block, lowered = dialect.block(graph), dialect.lower(graph)
        Pipeline(dialect.passes).run(lowered, context)
        emit(lowered)
    return done


@pytest.mark.parametrize(("shape", "target"), covering(GRAPHS, ["gpu-hopper", "ascend-910b", "cpu-avx512"]))
def test_the_work_grows_with_the_graph(shape: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (work(GRAPHS[shape](count), target, monkeypatch) for count in (15, 60))
    assert small["ops sorted"] > 0
    for name, amount in large.items():
        assert amount <= 4.5 * small[name] + 16, name


# --- planning ---


PLANNED = {
    "chain": chain,
    "uneven Concat": uneven,
    "Split": split,
    "fan-out": fan_out,
    **{kind: joined(kind) for kind in ("Sum", "Max", "Concat <axis = 1>")},
}


def planning_work(graph: Graph, target: CostModel, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The work of planning: operands that rules complete, options of the problem, columns of the linear programs."""
    done: Counter[str] = Counter()

    class Propagation(propagation._FormatPropagation):
        def _complete(self, op: Op, known: dict[Slot, Format], limit: float = float("inf")) -> None:
            done["operands completed"] += len(op.inputs) + len(op.outputs)
            super()._complete(op, known, limit)

    class Counted(Program):
        def __init__(self, problem: object, limit: float) -> None:
            super().__init__(problem, limit)
            done["columns"] += len(self.prices)
            done["options"] += sum(map(len, problem.ops))

    with monkeypatch.context() as patch:
        patch.setattr(propagation, "_FormatPropagation", Propagation)
        patch.setattr("layoutopt.planner.solver.Program", Counted)
        make_plan(PlanRequest(graph, target))
    return done


@pytest.mark.parametrize(("shape", "target"), covering(PLANNED, ["gpu-hopper", "ascend-910b"]))
def test_the_work_of_planning_grows_with_the_graph(shape: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_target(target)
    small, large = (planning_work(PLANNED[shape](count), model, monkeypatch) for count in (20, 80))
    assert small["operands completed"] > 0
    for name, amount in large.items():
        assert amount <= 4.5 * small[name], name


def test_a_thousand_ops_are_planned_to_the_proof() -> None:
    plan = make_plan(PlanRequest(chain(500), load_target("ascend-910b")))
    assert plan.optimal and plan.gap == 0 and plan.improves


@pytest.mark.parametrize("kind", ["Sum", "Mean", "Max", "Concat", "Split"])
def test_equal_operands_give_equal_signatures(kind: str) -> None:
    graph = split(5) if kind == "Split" else joined(f"{kind} <axis = 1>" if kind == "Concat" else kind)(5)
    op = next(op for op in graph.ops if op.op_type == kind)
    rule = rule_of(op)
    classes = rule.operand_classes(op)
    assert len(set(classes.values())) < len(classes)
    for spelling in ("NCHW", "NHWC", "NCHW16c", "NCHW4c", "HWNC", "NCHW5c"):
        found: dict[object, object] = {}
        for slot, each in classes.items():
            signature = rule.signature(op, {slot: Format.parse(spelling)})
            assert found.setdefault(each, signature) == signature


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances by one second whenever it is read."""
    monkeypatch.setattr("layoutopt.planner.problem.monotonic", itertools.count(1.0).__next__)


@pytest.mark.parametrize("targets", ["ascend-910b", "ascend-910b,gpu-hopper"])
def test_each_stage_keeps_the_limit(targets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = {}
    models = [load_target(each) for each in targets.split(",")]
    model = MultiTargetCostModel(models) if models[1:] else models[0]
    for seconds in range(0, 500, 25):
        monkeypatch.setattr("layoutopt.planner.problem.monotonic", itertools.count(1.0).__next__)
        plan = make_plan(PlanRequest(chain(10), model, deadline=Deadline(float(seconds), start=0.0)))
        stages[plan.stopped] = plan
        if plan.stopped is None:
            break
    assert next(iter(stages)) == "candidates" and None in stages
    early = stages["candidates"]
    assert not early.improves and early.seconds == pytest.approx(early.baseline)
    assert early.lower_bound == 0.0 and early.gap == 1.0 and not early.optimal
    assert early.baseline == pytest.approx(stages[None].baseline)
    assert stages[None].optimal and stages[None].improves


@pytest.mark.usefixtures("clock")
def test_pins_are_met_whatever_the_limit() -> None:
    graph = chain(10)
    pins = {graph.outputs[0]: Format.parse("NHWC"), graph.value("c2"): Format.parse("NHWC")}
    plan = make_plan(PlanRequest(graph, load_target("gpu-hopper"), pins, deadline=Deadline(1.0, start=0.0)))
    assert plan.stopped == "candidates"
    assert plan.seconds < float("inf")
