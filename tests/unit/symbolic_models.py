"""Models with symbolic dimensions, and a comparison of inferred shapes and elements with runs."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import onnxruntime

from layoutopt import inference
from layoutopt.formats import Extent
from layoutopt.ir.graph import Graph

HEADER = '<ir_version: 8, opset_import: ["" : 18]>'


def lifted(text: str, header: str = HEADER) -> tuple[onnx.ModelProto, Graph]:
    model = onnx.parser.parse_model(f"{header} {text}")
    for output in model.graph.output:
        output.ClearField("type")
    return model, inference.lift(onnx_ir.from_proto(model))


NUMBERS = (
    "s = Shape (x) i = Constant <value_int: int = 2> () h = Gather (s, i) "
    "j = Constant <value_int: int = 3> () w = Gather (s, j) "
)
HALF = "two = Constant <value_int: int = 2> () "
IMAGE = "first = Constant <value_ints: ints = [2]> () last = Constant <value_ints: ints = [4]> () hw = Slice (s, first, last) "


def ints(name: str, *numbers: int) -> str:
    return f"{name} = Constant <value_ints: ints = [{', '.join(map(str, numbers))}]> () "


def filter_of(*shape: int) -> str:
    return ints("wshape", *shape) + "f = ConstantOfShape <value = float[1] {0.5}> (wshape) "


def wrong_facts(model: onnx.ModelProto, graph: Graph, sizes: Mapping[str, int]) -> list[str]:
    """The inferred facts that are wrong at some sizes; empty if the model does not run at these sizes."""
    everything = onnx.ModelProto()
    everything.CopyFrom(model)
    del everything.graph.output[:]
    named = (name for node in model.graph.node for name in node.output if name)
    everything.graph.output.extend(onnx.ValueInfoProto(name=name) for name in named)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(everything.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {
        value.name: np.ones([Extent.of(dim).at(sizes) or 1 for dim in value.shape or ()], np.float32)
        for value in graph.inputs
    }
    try:
        results = session.run(None, feed)
    except Exception:  # onnxruntime's exceptions have no common base
        return []
    found = zip((output.name for output in session.get_outputs()), results, strict=True)
    wrong = []
    for name, array in found:
        value = graph.value(name)
        if value.shape is not None and value.data is None:
            dims = [Extent.of(dim).at(sizes) for dim in value.shape]
            if len(dims) != array.ndim or any(
                dim not in (None, size) for dim, size in zip(dims, array.shape, strict=True)
            ):
                wrong.append(f"{name} is {array.shape}, not {value.shape}")
        for dim, number in zip(value.elements or (), array.reshape(-1).tolist(), strict=False):
            if dim is not None and Extent.of(dim).at(sizes) not in (None, number):
                wrong.append(f"{name} has {number}, not {dim}")
    return wrong
