"""Models of ops on integers, passes on them, and runs of the results."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx import numpy_helper

from layoutopt import inference, onnx_io
from layoutopt.cost.size_growth import Growth
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array
from layoutopt.passes.base import Pass, PassContext, Pipeline
from layoutopt.runtime.session import inference_session

HEADER = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>\n'


def model_of(text: str, **constants: Array) -> onnx.ModelProto:
    """A model with constants in the place of the inputs of these names."""
    model = onnx.parser.parse_model(HEADER + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def rewritten(model: onnx.ModelProto, step: Pass, growth: Growth | None = None) -> tuple[Graph, bytes]:
    """The graph and the model after a pass."""
    graph = inference.lift(onnx_ir.serde.deserialize_model(model))
    context = PassContext(None, growth=growth or Growth())  # type: ignore[arg-type]
    Pipeline((step,)).run(graph, context)
    return graph, onnx_io.to_bytes(onnx_io.emit(graph))


def run(model: bytes, feed: dict[str, Array], *, is_optimised: bool = False) -> Sequence[Any]:
    return inference_session(model, is_optimised=is_optimised).run(None, feed)


def kinds(graph: Graph) -> list[str]:
    return [op.op_type for op in graph.ops]


def scalar(value: float, dtype: Any = np.float32) -> Array:
    return np.array(value, dtype)
