"""The work of planning grows with the graph: counted, not timed."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from layoutopt.cost import CostModel, MultiTargetCostModel
from layoutopt.cost_models import load_target
from layoutopt.formats import Format
from layoutopt.ir import DType, Graph, Op, TensorType, Value
from layoutopt.ir.types import ArrayData
from layoutopt.ops import rule_of
from layoutopt.planner import Deadline, Plan, PlanRequest, least_moves, make_plan, propagation
from layoutopt.planner.program import Program

FLOATS = TensorType(DType.FLOAT32, (1, 16, 8, 8))


class Net:
    """A graph that is built op by op."""

    def __init__(self) -> None:
        self.graph = Graph("net", {"": 18})
        self.x = self.graph.add_value(Value("x", FLOATS))
        self.graph.inputs = [self.x]

    def op(self, kind: str, *inputs: Value, type: TensorType = FLOATS, **attributes: int) -> Value:
        y = self.graph.new_value(kind.lower(), type)
        self.graph.add_op(Op(kind, inputs, (y,), version=18, name=y.name, attributes=dict(attributes)))
        return y

    def conv(self, x: Value, channels: int = 16) -> Value:
        data = np.zeros((channels, x.shape[1], 1, 1), np.float32)
        w = self.graph.new_value("w", TensorType(DType.FLOAT32, data.shape), data=ArrayData(data))
        return self.op("Conv", x, w, type=TensorType(DType.FLOAT32, (1, channels, 8, 8)))

    def done(self, *outputs: Value) -> Graph:
        self.graph.outputs = list(outputs)
        return self.graph


def chain(count: int) -> Graph:
    net = Net()
    y = net.x
    for _ in range(count):
        y = net.op("Relu", net.conv(y))
    return net.done(y)


def joined(kind: str) -> Callable[[int], Graph]:
    """One op that reads `count` tensors, each from a convolution."""

    def build(count: int) -> Graph:
        net = Net()
        parts = [net.conv(net.x) for _ in range(count)]
        if kind == "Concat":
            whole = net.op(kind, *parts, type=TensorType(DType.FLOAT32, (1, 16 * count, 8, 8)), axis=1)
        else:
            whole = net.op(kind, *parts)
        return net.done(net.conv(whole))

    return build


def uneven(count: int) -> Graph:
    """A Concat of tensors with different numbers of channels."""
    net = Net()
    parts = [net.conv(net.x, 8 + index) for index in range(count)]
    whole = sum(8 + index for index in range(count))
    return net.done(net.op("Concat", *parts, type=TensorType(DType.FLOAT32, (1, whole, 8, 8)), axis=1))


def split(count: int) -> Graph:
    net = Net()
    y = net.conv(net.x, 16 * count)
    outputs = tuple(net.graph.new_value("piece", FLOATS) for _ in range(count))
    net.graph.add_op(Op("Split", (y,), outputs, version=18, attributes={"axis": 1, "num_outputs": count}))
    return net.done(*(net.conv(each) for each in outputs))


def fan_out(count: int) -> Graph:
    net = Net()
    y = net.conv(net.x)
    return net.done(net.op("Max", *(net.op("Relu", y) for _ in range(count))))


GRAPHS = {
    "chain": chain,
    "Sum": joined("Sum"),
    "Max": joined("Max"),
    "Concat": joined("Concat"),
    "uneven Concat": uneven,
    "Split": split,
    "fan-out": fan_out,
}


def work(graph: Graph, target: CostModel, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The work of planning: operands that rules complete, options of the problem, columns of the linear programs."""
    done: Counter[str] = Counter()

    def completed(unit: propagation.Unit, known: dict[object, Format]) -> object:
        done["operands completed"] += len(unit.inputs) + len(unit.outputs)
        return complete(unit, known)

    class Counted(Program):
        def __init__(self, problem: object, limit: float) -> None:
            super().__init__(problem, limit)
            done["columns"] += len(self.prices)
            done["options"] += sum(map(len, problem.ops))

    complete = propagation.completed
    with monkeypatch.context() as patch:
        patch.setattr(propagation, "completed", completed)
        patch.setattr("layoutopt.planner.solver.Program", Counted)
        make_plan(PlanRequest(graph, target))
    return done


@pytest.mark.parametrize("target", ["gpu-hopper", "ascend-910b"])
@pytest.mark.parametrize("shape", GRAPHS)
def test_the_work_grows_with_the_graph(shape: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_target(target)
    small, large = (work(GRAPHS[shape](count), model, monkeypatch) for count in (20, 80))
    assert small["operands completed"] > 0
    for name, amount in large.items():
        assert amount <= 4.5 * small[name], name


@pytest.mark.parametrize("kind", ["Sum", "Mean", "Max", "Concat", "Split"])
def test_equal_operands_give_equal_signatures(kind: str) -> None:
    graph = split(5) if kind == "Split" else joined(kind)(5)
    op = next(op for op in graph.ops if op.op_type == kind)
    rule = rule_of(op)
    assert rule is not None
    classes = rule.operand_classes(op)
    assert len(set(classes.values())) < len(classes)
    for spelling in ("NCHW", "NHWC", "NCHW16c", "NCHW4c", "HWNC", "NCHW5c"):
        found: dict[object, object] = {}
        for slot, each in classes.items():
            signature = rule.signature(op, {slot: Format.parse(spelling)})
            assert found.setdefault(each, signature) == signature


class _Clock:
    """A clock that advances by one second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def stopped_after(
    seconds: float, monkeypatch: pytest.MonkeyPatch, targets: str = "ascend-910b", **settings: object
) -> Plan:
    monkeypatch.setattr("layoutopt.planner.problem.monotonic", _Clock())
    limit = Deadline(seconds, start=0.0)
    models = [load_target(each) for each in targets.split(",")]
    return make_plan(
        PlanRequest(chain(10), MultiTargetCostModel(models) if models[1:] else models[0], deadline=limit, **settings)
    )


@pytest.mark.parametrize("targets", ["ascend-910b", "ascend-910b,gpu-hopper"])
def test_each_stage_keeps_the_limit(targets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = {}
    for seconds in range(0, 500, 25):
        plan = stopped_after(float(seconds), monkeypatch, targets)
        stages[plan.stopped] = plan
        if plan.stopped is None:
            break
    assert next(iter(stages)) == "candidates" and "formulation" in stages and None in stages
    for stage in ("candidates", "formulation"):
        early = stages[stage]
        assert not early.improves and early.seconds == pytest.approx(early.baseline)
        assert early.lower_bound == 0.0 and early.gap == 1.0 and not early.optimal
        assert early.baseline == pytest.approx(stages[None].baseline)
    assert stages[None].optimal and stages[None].improves


def test_pins_are_met_whatever_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain(10)
    pins = {graph.outputs[0]: Format.parse("NHWC"), graph.value("conv_2"): Format.parse("NHWC")}
    monkeypatch.setattr("layoutopt.planner.problem.monotonic", _Clock())
    plan = make_plan(PlanRequest(graph, load_target("gpu-hopper"), pins, deadline=Deadline(1.0, start=0.0)))
    assert plan.stopped == "candidates"
    assert plan.seconds < float("inf")


def test_least_moves_has_the_same_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layoutopt.planner.problem.monotonic", _Clock())
    assert least_moves(PlanRequest(chain(10), load_target("ascend-910b"), deadline=Deadline(1.0, start=0.0))) == 0
