"""The work of planning, passes, lowering and emission grows with the graph: counted, not timed."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import networkx as nx
import numpy as np
import pytest
from onnx import numpy_helper, parser

from layoutopt.cost import CostModel, MultiTargetCostModel
from layoutopt.cost_models import load_target
from layoutopt.dialects import DIALECTS, Lower
from layoutopt.formats import Format
from layoutopt.inference import lift
from layoutopt.ir import DType, Graph, Op, TensorType, Use, Value, constants
from layoutopt.ir.types import ArrayData, Data
from layoutopt.onnx_io import emit, from_message
from layoutopt.ops import rule_of
from layoutopt.passes import DEFAULT_PIPELINE
from layoutopt.passes.base import PassContext, Pipeline
from layoutopt.planner import Deadline, Plan, PlanRequest, least_moves, make_plan, propagation
from layoutopt.planner.program import Program
from layoutopt.runtime.evaluate import is_foldable

FLOATS = TensorType(DType.FLOAT32, (1, 16, 8, 8))
BYTES = TensorType(DType.UINT8, FLOATS.shape)


class Net:
    """A graph that is built op by op."""

    def __init__(self) -> None:
        self.graph = Graph("net", {"": 18})
        self.x = self.graph.add_value(Value("x", FLOATS))
        self.graph.inputs = [self.x]
        self.weight = self.constant(np.ones((16, 16, 1, 1), np.float32))

    def constant(self, array: np.ndarray) -> Value:
        return self.graph.new_value("c", TensorType(DType.of(array), array.shape), data=ArrayData(array))

    def op(self, kind: str, *inputs: Value, type: TensorType = FLOATS, **attributes: int) -> Value:
        y = self.graph.new_value(kind.lower(), type)
        self.graph.add_op(Op(kind, inputs, (y,), version=18, name=y.name, attributes=dict(attributes)))
        return y

    def conv(self, x: Value, channels: int = 0) -> Value:
        """A convolution by the weight that all share, or by one of its own to a number of channels."""
        if not channels:
            return self.op("Conv", x, self.weight)
        own = self.constant(np.zeros((channels, x.shape[1], 1, 1), np.float32))
        return self.op("Conv", x, own, type=TensorType(DType.FLOAT32, (1, channels, 8, 8)))

    def done(self, *outputs: Value) -> Graph:
        self.graph.outputs = list(outputs)
        return self.graph


def one_weight(count: int) -> Graph:
    """A chain of convolutions that read one weight, with affines between them."""
    net = Net()
    y, half = net.x, net.constant(np.full((16, 1, 1), 0.5, np.float32))
    for _ in range(count):
        y = net.op("Relu", net.op("Mul", net.conv(y), half))
    return net.done(y)


def outputs(count: int) -> Graph:
    """A chain of convolutions, the result of each of which is an output."""
    net = Net()
    found = [net.conv(net.x)]
    while len(found) < count:
        found.append(net.conv(net.op("Relu", found[-1])))
    return net.done(*found)


def fan_out(count: int) -> Graph:
    """One tensor that all ops read, and one op that reads all their results."""
    net = Net()
    y = net.conv(net.x)
    return net.done(net.conv(net.op("Sum", *(net.op("Tanh", y) for _ in range(count)))))


def one_scalar(count: int) -> Graph:
    """Gates x * sigmoid(1.5 x), as exporters write them; one constant for all."""
    net = Net()
    y, number = net.conv(net.x), net.constant(np.array(1.5, np.float32))
    for _ in range(count):
        y = net.op("Mul", y, net.op("Sigmoid", net.op("Mul", y, number)))
    return net.done(net.conv(y))


def dequantised(count: int) -> Graph:
    """One dequantised tensor that the convolutions of many QDQ groups read."""
    net = Net()
    scale, zero = net.constant(np.array(0.1, np.float32)), net.constant(np.array(0, np.uint8))
    weight = net.constant(np.ones((16, 16, 1, 1), np.uint8))

    def quantise(value: Value) -> Value:
        return net.op("QuantizeLinear", value, scale, zero, type=BYTES)

    def dequantise(value: Value) -> Value:
        return net.op("DequantizeLinear", value, scale, zero, type=TensorType(DType.FLOAT32, value.shape))

    x, w = dequantise(quantise(net.x)), dequantise(weight)
    return net.done(*(dequantise(quantise(net.op("Conv", x, w))) for _ in range(count)))


def bodies(count: int) -> Graph:
    """If ops one after the other, with a convolution in each branch."""
    image = "float[1,16,8,8]"
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 18]> g ({image} x0, bool b) => ({image} x{count}) {{}}'
    )
    for at in range(count):
        then, other = (
            f"{name} () => ({image} {name}) {{ {name} = Conv (x{at}, w{at}) }}" for name in (f"t{at}", f"e{at}")
        )
        line = f"x{at + 1} = If <then_branch = {then}, else_branch = {other}> (b)"
        model.graph.node.append(parser.parse_node(line))
        weight = np.full((16, 16, 1, 1), at, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{at}"))
    return lift(from_message(model))


def chain(count: int) -> Graph:
    net = Net()
    y = net.x
    for _ in range(count):
        y = net.op("Relu", net.conv(y, 16))
    return net.done(y)


def joined(kind: str) -> Callable[[int], Graph]:
    """One op that reads `count` tensors, each from a convolution."""

    def build(count: int) -> Graph:
        net = Net()
        parts = [net.conv(net.x, 16) for _ in range(count)]
        if kind == "Concat":
            whole = net.op(kind, *parts, type=TensorType(DType.FLOAT32, (1, 16 * count, 8, 8)), axis=1)
        else:
            whole = net.op(kind, *parts)
        return net.done(net.conv(whole, 16))

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
    return net.done(*(net.conv(each, 16) for each in outputs))


GRAPHS = {
    "one weight": one_weight,
    "outputs": outputs,
    "fan-out": fan_out,
    "Max": joined("Max"),
    "one scalar": one_scalar,
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

    Uses listed, operands copied, nodes sorted, outputs visited, and constants whose size is asked for.
    """
    done: Counter[str] = Counter()
    uses, change_inputs, set_inputs = Graph.uses, Graph.change_inputs, Graph.set_inputs
    topological_sort, stored = nx.lexicographical_topological_sort, constants.stored

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

    def ordered(net: Any, key: Any) -> Any:
        done["nodes sorted"] += len(net)
        return topological_sort(net, key)

    graph.outputs = _Outputs(graph.outputs, done)
    model = load_target(target)
    dialect = DIALECTS[model.dialect]
    context = PassContext(model, is_foldable=is_foldable, kernels=dialect.kernels)
    with monkeypatch.context() as patch:
        patch.setattr(Graph, "uses", listed)
        patch.setattr(Graph, "change_inputs", changed)
        patch.setattr(Graph, "set_inputs", replaced)
        patch.setattr(constants, "stored", measured)
        patch.setattr(nx, "lexicographical_topological_sort", ordered)
        Pipeline((*DEFAULT_PIPELINE.passes, Lower(dialect), *dialect.passes)).run(graph, context)
        assert context.lowered is not None
        emit(context.lowered)
    return done


@pytest.mark.parametrize("target", ["gpu-hopper", "ascend-910b", "cpu-avx512"])
@pytest.mark.parametrize("shape", GRAPHS)
def test_the_work_grows_with_the_graph(shape: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build: Callable[[int], Graph] = GRAPHS[shape]
    small, large = (work(build(count), target, monkeypatch) for count in (30, 120))
    assert small["nodes sorted"] > 0
    for name, amount in large.items():
        assert amount <= 4.5 * small[name] + 16, name


# --- planning ---


PLANNED = {
    "chain": chain,
    "uneven Concat": uneven,
    "Split": split,
    "fan-out": fan_out,
    **{kind: joined(kind) for kind in ("Sum", "Max", "Concat")},
}


def planning_work(graph: Graph, target: CostModel, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
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
@pytest.mark.parametrize("shape", PLANNED)
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
