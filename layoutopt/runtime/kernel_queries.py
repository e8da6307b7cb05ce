"""Kernel queries: whether the installed onnxruntime has a kernel for a node, found by loading a model of that one node.

The session is created without optimisations and saves its model. If the saved model has the node itself, there is a kernel.
If it has other ops, there is none, but onnxruntime composes the op: by the function that defines it, or by casts around a
kernel for another element type. An error means that onnxruntime cannot run the node.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from layoutopt.files import scratch_folder
from layoutopt.record import Record
from layoutopt.runtime.errors import RUNTIME_ERRORS
from layoutopt.runtime.session import inference_session, load_error
from layoutopt.runtime.type_names import type_proto

RUNTIME_VERSION = str(onnxruntime.__version__)
BLOCKED_DOMAIN = "com.microsoft.nchwc"

_IR_VERSION = 10  # of the models of one node

Status: TypeAlias = Literal["kernel", "composed", "missing", "unknown"]


class Support(Record):
    """The support of onnxruntime for a node.

    Attributes:
        status: "kernel"; "composed" of other ops; "missing" if onnxruntime cannot run the node; or "unknown".
        detail: the other ops, or the reason.
    """

    status: Status
    detail: str = ""


def node_support(
    node: onnx.NodeProto,
    types: Mapping[str, str],
    opsets: Mapping[str, int],
    functions: Iterable[onnx.FunctionProto] = (),
) -> Support:
    """The support of onnxruntime for a node.

    Args:
        node: the node, without references to attributes of a function.
        types: the types of its inputs.
        opsets: the version of each domain.
        functions: the functions that it may call.
    """
    with scratch_folder() as folder:
        saved = folder / "saved.onnx"
        try:
            _session(node, types, opsets, saved, functions)
        except RUNTIME_ERRORS as error:
            return Support("missing", load_error(error))
        made = dict.fromkeys(each.op_type for each in onnx.load(saved).graph.node)
    return Support("kernel") if set(made) <= {node.op_type} else Support("composed", " ".join(made))


@cache
def blocked_channels() -> int | None:
    """The channels per block of onnxruntime's blocked kernels on this machine; None if it has no such kernels.

    The test input has two columns and increasing values. In a blocked format all channels of the first column of a block
    precede its second column, so the offset of the second column of the first channel is the number of channels per block.
    """
    ramp = np.arange(128, dtype=np.float32).reshape(1, 64, 1, 2)
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=BLOCKED_DOMAIN)
    try:
        (reordered,) = _session(node, {"x": "tensor(float)"}, {BLOCKED_DOMAIN: 1}).run(None, {"x": ramp})
    except RUNTIME_ERRORS:
        return None
    block = int(np.flatnonzero(reordered.reshape(-1) == ramp[0, 0, 0, 1])[0])
    return block if block > 1 else None


def _session(
    node: onnx.NodeProto,
    types: Mapping[str, str],
    opsets: Mapping[str, int],
    saved: Path | None = None,
    functions: Iterable[onnx.FunctionProto] = (),
) -> onnxruntime.InferenceSession:
    """A session of a model of one node, without optimisations."""
    inputs = [onnx.ValueInfoProto(name=name, type=type_proto(type_)) for name, type_ in types.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one node", inputs, outputs)
    imports = [helper.make_opsetid(*each) for each in opsets.items()]
    model = helper.make_model(graph, ir_version=_IR_VERSION, opset_imports=imports, functions=functions)
    return inference_session(model.SerializeToString(), is_optimised=False, saved=saved)
