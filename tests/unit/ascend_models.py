"""Models for the dialect `ascend`, and the functions and formats that it writes."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from layoutopt.dialects.ascend import ASCEND


def run(model: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node, with strings decoded."""
    found = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    plain: dict[str, Any] = {}
    for key, value in found.items():
        texts = (
            [each.decode() if isinstance(each, bytes) else each for each in value] if isinstance(value, list) else value
        )
        plain[key] = texts.decode() if isinstance(texts, bytes) else texts
    return plain


def calls(model: onnx.ModelProto, op_type: str = "") -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.domain == ASCEND and node.op_type.startswith(op_type)]


def routes(model: onnx.ModelProto) -> list[tuple[str, str]]:
    """The source and target formats of the TransData nodes of a model."""
    return [
        (attributes_of(node)["src_format"], attributes_of(node)["dst_format"]) for node in calls(model, "TransData")
    ]


def model_of(
    nodes: list[onnx.NodeProto], shape: list[int], weights: dict[str, np.ndarray], dtype: type, opset: int = 17
) -> onnx.ModelProto:
    type_ = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    last = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", type_, shape)],
        [helper.make_tensor_value_info(last, type_, None)],
        [numpy_helper.from_array(array, key) for key, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def convolutions(
    filters: list[tuple[tuple[int, ...], int]], shape: list[int], dtype: type = np.float32, opset: int = 17
) -> onnx.ModelProto:
    """Convolutions behind each other, given by the shapes of their filters and their groups."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {}
    nodes = []
    for number, (filter_, group) in enumerate(filters):
        weights[f"w{number}"] = (rng.standard_normal(filter_) / np.sqrt(np.prod(filter_[1:]))).astype(dtype)
        weights[f"b{number}"] = rng.standard_normal(filter_[0]).astype(dtype)
        source = f"y{number - 1}" if number else "x"
        pads = [extent // 2 for extent in filter_[2:]] * 2
        operands = [source, f"w{number}", f"b{number}"]
        nodes.append(helper.make_node("Conv", operands, [f"y{number}"], name=f"conv{number}", group=group, pads=pads))
    return model_of(nodes, shape, weights, dtype, opset)
