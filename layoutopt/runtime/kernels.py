"""Has the installed onnxruntime a kernel for a node? It is asked: a session for a model of that one node.

The session is created at optimisation level 'disable all' and saves what onnxruntime has made of the model. The node
itself means that there is a kernel. Other ops mean that there is none, but that it can do without: by the function that
defines the op, or by casts around a kernel for another element type. An error means that it cannot. The outputs' types
are those that onnxruntime infers, which knows its own operators where onnx does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from layoutopt.files import scratch_folder
from layoutopt.runtime.custom_ops import session_options
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory
from layoutopt.runtime.type_names import named_type, tensor_name
from layoutopt.runtime.utf8_path import utf8_path

RUNTIME_VERSION = str(onnxruntime.__version__)
BLOCKED_DOMAIN = "com.microsoft.nchwc"

_IR_VERSION = 10  # of the small models, for any node
_ANY_OPSET = 18  # one that every onnxruntime knows, for the functions of operators
_REASON = 200  # characters

Status: TypeAlias = Literal["kernel", "composed", "missing", "unknown"]


@dataclass(frozen=True, slots=True)
class Support:
    """What onnxruntime can make of a node.

    Attributes:
        status: it has a kernel; it composes the op of others; it cannot run it; or nobody can tell.
        detail: the others, or the reason.
        outputs: the types of the outputs that are there, if it can run it.
    """

    status: Status
    detail: str = ""
    outputs: tuple[str, ...] = ()


def node_support(node: onnx.NodeProto, types: Mapping[str, str], opsets: Mapping[str, int]) -> Support:
    """What onnxruntime can make of a node.

    Args:
        node: the node, without references to attributes of a function.
        types: of its inputs, and of all else that its subgraphs read from outside.
        opsets: the version of each domain.
    """
    with scratch_folder() as folder:
        saved = folder / "saved.onnx"
        try:
            session = _session(node, types, opsets, saved)
        except RUNTIME_ERRORS as error:
            raise_if_out_of_memory(error)
            return Support("missing", _reason(error))
        made = dict.fromkeys(each.op_type for each in onnx.load(saved).graph.node)
    outputs = tuple(each.type for each in session.get_outputs())
    alone = set(made) <= {node.op_type}
    return Support("kernel", "", outputs) if alone else Support("composed", " ".join(made), outputs)


def op_support(op_type: str, domain: str, inputs: Sequence[str], attributes: Mapping[str, Any]) -> Support:
    """What onnxruntime can make of an operator of its own with one output.

    Args:
        op_type: the operator.
        domain: one of onnxruntime's, at its version 1.
        inputs: the element types; nothing for an input that is left out.
        attributes: what it cannot be without.
    """
    names = [f"x{index}" if dtype else "" for index, dtype in enumerate(inputs)]
    types = {name: tensor_name(dtype) for name, dtype in zip(names, inputs, strict=True) if name}
    node = helper.make_node(op_type, names, ["y"], domain=domain, **attributes)
    return node_support(node, types, {domain: 1, "": _ANY_OPSET})


@cache
def blocked_channels() -> int | None:
    """How many channels a block of onnxruntime's blocked kernels has on this machine; None if it has no such kernels.

    A ramp of two columns is reordered. In memory the first column of a block lies before its second, so the second
    element of the first channel comes after as many others as a block has channels.
    """
    ramp = np.arange(128, dtype=np.float32).reshape(1, 64, 1, 2)
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=BLOCKED_DOMAIN)
    try:
        (reordered,) = _session(node, {"x": "tensor(float)"}, {BLOCKED_DOMAIN: 1}).run(None, {"x": ramp})
    except RUNTIME_ERRORS:
        return None
    block = int(np.flatnonzero(reordered.reshape(-1) == ramp[0, 0, 0, 1])[0])
    return block if block > 1 else None


def load_failure(path: Path) -> str:
    """Why onnxruntime cannot load a model at its default options, with one thread; nothing if it can."""
    try:
        with utf8_path(path) as source:
            onnxruntime.InferenceSession(source, _options(), providers=["CPUExecutionProvider"])
    except RUNTIME_ERRORS as error:
        raise_if_out_of_memory(error)
        return _reason(error)
    return ""


def _session(
    node: onnx.NodeProto, types: Mapping[str, str], opsets: Mapping[str, int], saved: Path | None = None
) -> Any:
    """A session for a model of one node, not optimised."""
    model = onnx.ModelProto(ir_version=_IR_VERSION)
    for domain, version in opsets.items():
        model.opset_import.add(domain=domain, version=version)
    model.graph.name = "one node"
    model.graph.node.append(node)
    for name, type_ in types.items():
        model.graph.input.add(name=name).type.CopyFrom(named_type(type_))
    for name in filter(None, node.output):
        model.graph.output.add(name=name)
    options = _options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _options() -> Any:
    options = session_options()
    options.intra_op_num_threads = 1
    return options


def _reason(error: Exception) -> str:
    """What an error of onnxruntime says, in short, without its code in front: [ONNXRuntimeError] : 9 : NAME : text."""
    says = " ".join(str(error).split()) or type(error).__name__
    if says.startswith("[ONNXRuntimeError]"):
        says = says.split(" : ", 3)[-1]
    return says if len(says) <= _REASON else f"{says[: _REASON - 3]}..."
