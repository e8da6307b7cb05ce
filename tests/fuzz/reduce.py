"""Reduction of a failing example to fewer outputs, nodes and pins that fail in the same way.

A node is removed by turning its outputs into inputs with the computed values.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from .cases import Case
from .graph_builder import Array, Step, free_names, info, single_node_step
from .isolation import Verdict

Oracle = Callable[[Case], Verdict]


def reduced(case: Case, oracle: Oracle, rounds: int = 400, seconds: float = 240.0) -> Case:
    """The smallest example found in the given number of rounds and seconds that fails in the same way."""
    until = time.monotonic() + seconds
    wrong = oracle(case)
    progress = True
    while progress and rounds > 0:
        progress = False
        for smaller in _smaller(case):
            rounds -= 1
            verdict = oracle(smaller)
            if verdict.kind == wrong.kind and verdict.detail[:20] == wrong.detail[:20]:
                case, progress = smaller, True
                break
            if rounds <= 0 or time.monotonic() > until:
                return case
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Examples with one part less, the largest reductions first."""
    if len(case.feeds) > 1:
        yield replace(case, feeds=case.feeds[:1])
    for name in case.pins:
        yield replace(case, pins={key: value for key, value in case.pins.items() if key != name})
    outputs = [each.name for each in case.model.graph.output]
    if len(outputs) > 1:
        for name in outputs:
            yield from _made(case, [name], set())
    values = _values(case)
    if values is None:
        return
    nodes = case.model.graph.node
    for place, node in enumerate(nodes):
        if node.op_type != "Constant" and node.output[0] not in outputs:
            yield from _made(case, list(node.output)[:1], set(), values)
        fed = {name for each in nodes[: place + 1] for name in each.output if each.op_type != "Constant"}
        if not fed & set(outputs):
            yield from _made(case, outputs, fed, values)
    for node in nodes:
        if node.op_type != "Constant" and not set(node.output) & set(outputs):
            yield from _made(case, outputs, set(node.output), values)
    for name in outputs:
        if len(outputs) > 1:
            yield from _made(case, [each for each in outputs if each != name], set())


def _values(case: Case) -> dict[str, Array] | None:
    """The values of all nodes of the main graph; None if the model does not run."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    present = {each.name for each in model.graph.output}
    for node in model.graph.node:
        model.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in node.output if name and name not in present
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        names = [each.name for each in session.get_outputs()]
        return dict(zip(names, session.run(names, case.feeds[0]), strict=True))
    except Exception:
        return None


def _made(case: Case, outputs: list[str], fed: set[str], values: dict[str, Array] | None = None) -> Iterator[Case]:
    """The example with these outputs, and with inputs for the values in `fed`."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph, values = model.graph, values or {}
    if fed - set(values) or set(outputs) & fed:
        return
    declared = {each.name: each for each in graph.output}
    declarations = [declared.get(name) or (info(name, values[name]) if name in values else None) for name in outputs]
    if any(each is None for each in declarations):
        return
    kept = [onnx.ValueInfoProto.FromString(each.SerializeToString()) for each in declarations if each is not None]
    del graph.output[:], graph.value_info[:]
    graph.output.extend(kept)
    needed, nodes = set(outputs), []
    for node in reversed(list(graph.node)):
        if needed & set(node.output) - fed:
            nodes.append(node)
            needed |= {name for name in (*node.input, *free_names(node)) if name}
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(nodes)]
    del graph.node[:]
    graph.node.extend(copies)
    for group in (graph.initializer, graph.input):
        for each in [each for each in group if each.name not in needed]:
            group.remove(each)  # type: ignore[arg-type]
    computed = {name for node in graph.node for name in node.output}
    new = [name for name in fed if name in needed and name not in computed]
    graph.input.extend(info(name, values[name]) for name in new)
    used = {node.op_type for node in graph.node}
    for function in [each for each in model.functions if each.name not in used and each.domain == "local"]:
        model.functions.remove(function)
    if not graph.node or len(graph.node) > len(case.model.graph.node):
        return
    if len(graph.node) == len(case.model.graph.node) and len(graph.output) >= len(case.model.graph.output):
        return
    feeds = [{name: value for name, value in {**case.feeds[0], **values}.items() if name in needed - computed}]
    feeds[0] = {each.name: feeds[0][each.name] for each in graph.input if each.name in feeds[0]}
    names = {*needed, *outputs}
    try:
        steps = steps_of(model, feeds[0])
    except Exception:
        return
    yield replace(case, model=model, feeds=feeds, steps=steps, pins={k: v for k, v in case.pins.items() if k in names})


def steps_of(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Step]:
    """The nodes of a model as steps that run one by one."""
    fixed = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    values: dict[str, Array] = {name: np.asarray(value) for name, value in feed.items()}
    steps = []
    opset = next(each.version for each in model.opset_import if not each.domain)
    for node in model.graph.node:
        constants = {name: value for name, value in fixed.items() if name not in feed}
        step = single_node_step(node, values, constants, opset, model.functions)
        values |= step.run({**values, **constants})
        steps.append(step)
    return steps
