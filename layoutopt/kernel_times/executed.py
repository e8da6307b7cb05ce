"""The kernels that onnxruntime executes for a model, after its own optimiser: from its optimised form and a trace.

The optimised form has the nodes and the constants; the trace has the shapes of a run and the time of every node.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from layoutopt.files import scratch_folder
from layoutopt.kernel_times.kernel_model import KernelModel, Operand
from layoutopt.runtime.session import EXTERNAL_WEIGHTS, inference_session, is_kernel_event
from layoutopt.verification.runnable import Runnable

_RUNS = 5  # with a trace, after one without


@dataclass(frozen=True, slots=True)
class ExecutedKernel:
    """One node of the optimised form.

    Attributes:
        node: its name in the optimised form.
        op: its op type, with the domain unless it is ONNX's own.
        shapes: shapes of its inputs, as text.
        traced: the median of its times in traced runs, in seconds.
        model: the kernel alone; None if it has bodies, or operands that are no tensors.
        result: the name of its first result.
        results: its results, without those that are no tensors.
    """

    node: str
    op: str
    shapes: str
    traced: float
    model: KernelModel | None
    result: str
    results: tuple[Operand, ...]


def executed_kernels(model: Runnable, feed: Mapping[str, Any], threads: int = 1) -> list[ExecutedKernel]:
    """The kernels of one run, in the order of the optimised form; nodes in bodies belong to the node that has the body.

    Args:
        model: the model.
        feed: its inputs.
        threads: threads of onnxruntime.

    Raises:
        RuntimeError: and other exceptions of onnxruntime, which does not load or run the model.
    """
    with scratch_folder() as folder:
        saved = folder / "optimised.onnx"
        model.save_optimised(saved, EXTERNAL_WEIGHTS, threads)
        message = onnx.load(str(saved), load_external_data=False)
        for number, node in enumerate(message.graph.node):
            node.name = f"kernel{number}"
        saved.write_bytes(message.SerializeToString())
        session = inference_session(str(saved), is_optimised=False, threads=threads, trace=folder / "trace")
        for _ in range(1 + _RUNS):
            session.run(None, dict(feed))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        return _kernels(message, events, folder)


def _kernels(message: onnx.ModelProto, events: Sequence[Mapping[str, Any]], folder: Path) -> list[ExecutedKernel]:
    times: dict[str, list[float]] = defaultdict(list)
    arguments: dict[str, Mapping[str, Any]] = {}
    for event in filter(is_kernel_event, events):
        name = event["name"].removesuffix("_kernel_time")
        times[name].append(event["dur"] * 1e-6)
        arguments[name] = event["args"]
    constants = {each.name: each for each in message.graph.initializer}
    found = []
    for node in message.graph.node:
        if node.name not in times:  # removed by onnxruntime when it loads the optimised form
            continue
        operands = _operands(node, arguments[node.name], constants, folder)
        shapes = ", ".join(each.text for each in operands if each is not None) if operands is not None else ""
        op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        model = KernelModel.of(node, operands, message.opset_import) if operands is not None else None
        traced = float(np.median(times[node.name][1:]))
        results = tuple(Operand(*each) for each in _traced(arguments[node.name], "output_type_shape"))
        found.append(ExecutedKernel(node.name, op, shapes, traced, model, next(iter(node.output), ""), results))
    return found


def _operands(
    node: onnx.NodeProto, arguments: Mapping[str, Any], constants: Mapping[str, onnx.TensorProto], folder: Path
) -> list[Operand | None] | None:
    """The inputs of a node; None if one is not a tensor, or the node has bodies.

    A trace lists the tensors that exist during a run; constants that a kernel has packed are missing.
    """
    if any(each.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for each in node.attribute):
        return None
    traced = _traced(arguments, "input_type_shape")
    found: list[Operand | None] = []
    for name in node.input:
        if not name:
            found.append(None)
        elif name in constants:
            constant = Operand.of_constant(constants[name], folder)
            found.append(constant)
            if traced and (constant.dtype, constant.shape) == traced[0]:
                del traced[0]
        elif traced:
            found.append(Operand(*traced.pop(0)))
        else:
            return None
    return found if not traced else None


def _traced(arguments: Mapping[str, Any], key: str) -> list[tuple[str, tuple[int, ...]]]:
    """Element types and shapes of the tensors in a list of a trace event."""
    return [(dtype, tuple(shape)) for each in arguments.get(key, []) for dtype, shape in each.items()]
