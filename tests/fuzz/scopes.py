"""Steps that add nested graphs: branches, loops and functions that capture values."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .choices import between, chance, pick
from .graph_builder import LOCAL, GraphBuilder, Rejected, imports, info
from .layers import Maker

MAX_DEPTH = 2


def branch(g: GraphBuilder, grow: Maker) -> None:
    """An If with a constant, given or computed condition and branches of equal shapes."""
    _refuse_deep(g)
    graphs, wanted = [], None
    for name in ("then_branch", "else_branch"):
        inner = g.subgraph()
        grow(inner)
        results = [
            each for node in inner.nodes for each in node.output if each in inner.values and each not in inner.constants
        ]
        if wanted is None:
            if not results:
                raise Rejected
            result = pick(g.choices, results[::-1])
            wanted = inner.values[result]
        else:
            alike = [
                each
                for each in results
                if inner.values[each].shape == wanted.shape and inner.values[each].dtype == wanted.dtype
            ]
            result = pick(g.choices, alike) if alike else inner.add("Identity", [_like(inner, wanted)])
        graphs.append((name, _graph(inner, [], [result])))
    way = between(g.choices, 0, 2)
    if way == 0:
        condition = g.input((), np.bool_)
    elif way == 1:
        condition = g.constant(np.asarray(chance(g.choices, 50)))
    else:
        total = g.add("ReduceMax", [g.pick()], keepdims=0)
        condition = g.add("Greater", [total, g.constant(np.asarray(0.1, g.values[total].dtype))])
    node = helper.make_node("If", [condition], [g.fresh("v")], name=g.fresh("If"))
    node.attribute.extend(helper.make_attribute(name, graph) for name, graph in graphs)
    g.append(node)


def loop(g: GraphBuilder, grow: Maker) -> None:
    """A Loop with a loop-carried value and a scan output."""
    _refuse_deep(g)
    start = g.pick()
    inner = g.subgraph()
    turn, go, carried = (g.fresh(stem) for stem in ("turn", "go", "state"))
    inner.values |= {turn: np.asarray(0, np.int64), go: np.asarray(True), carried: g.values[start]}
    grow(inner)
    alike = [
        name
        for name in inner.readable(shape=g.values[start].shape)
        if inner.values[name].dtype == g.values[start].dtype and any(name in node.output for node in inner.nodes)
    ]
    half = inner.constant(np.asarray(0.5, g.values[start].dtype))
    following = inner.add("Mul", [pick(g.choices, [*alike[::-1], carried]), half])
    collected = [
        name for node in inner.nodes for name in node.output if name in inner.values and name not in inner.constants
    ]
    scanned = [pick(g.choices, collected)] if collected and chance(g.choices, 50) else []
    still = inner.add("Identity", [go])
    inputs = [info(turn, inner.values[turn]), info(go, inner.values[go]), info(carried, inner.values[carried])]
    if scanned == [following]:
        scanned = [inner.add("Identity", [following])]
    body = _graph(inner, inputs, [still, following, *scanned])
    count = g.constant(between(g.choices, 0 if not scanned else 1, 3))
    condition = "" if chance(g.choices, 50) else g.constant(np.asarray(True))
    node = helper.make_node(
        "Loop", [count, condition, start], [g.fresh("v") for _ in (start, *scanned)], name=g.fresh("Loop"), body=body
    )
    g.append(node)


def function(g: GraphBuilder, grow: Maker) -> None:
    """A function of the model, called once or more."""
    if g.is_function or g.depth or any(each.domain == LOCAL for each in g.functions):
        raise Rejected
    actual = g.pick()
    body = g.function_body()
    formal = body.fresh("p")
    body.values[formal] = g.values[actual]
    grow(body)
    results = [
        name for node in body.nodes for name in node.output if name in body.values and name not in body.constants
    ]
    if not results:
        raise Rejected
    result = pick(g.choices, results[::-1])
    name = g.fresh("block").replace("/", "_").replace(" ", "_")
    opsets = imports(g.opset, body.nodes, [])
    g.functions.append(helper.make_function(LOCAL, name, [formal], [result], body.nodes, opsets))
    for _ in range(between(g.choices, 1, 2)):
        fitting = [
            each for each in g.readable(shape=g.values[actual].shape) if g.values[each].dtype == g.values[actual].dtype
        ]
        g.add(name, [pick(g.choices, fitting)], LOCAL)


def _refuse_deep(g: GraphBuilder) -> None:
    if g.depth >= MAX_DEPTH or g.opset < 11:
        raise Rejected


def _like(g: GraphBuilder, value: np.ndarray) -> str:
    """A value of the same type."""
    fitting = [
        each for each in g.readable(kind=value.dtype.kind, shape=value.shape) if g.values[each].dtype == value.dtype
    ]
    return pick(g.choices, fitting) if fitting else g.constant(g.array(value.shape, value.dtype))


def _graph(g: GraphBuilder, inputs: list[onnx.ValueInfoProto], outputs: list[str]) -> onnx.GraphProto:
    """The built graph as an attribute."""
    computed = {name for node in g.nodes for name in node.output}
    tensors = [numpy_helper.from_array(value, name) for name, value in g.constants.items() if name not in computed]
    shapes = [[None] * g.values[name].ndim if chance(g.choices, 30) else g.values[name].shape for name in outputs]
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(g.values[name].dtype), shape)
        for name, shape in zip(outputs, shapes, strict=True)
    ]
    return helper.make_graph(g.nodes, g.fresh("graph"), inputs, declared, initializer=tensors)
