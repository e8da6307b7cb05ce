"""Options for results for the CUDA execution provider, and their operators."""

from collections import Counter

import onnx

WAY = {"target": "gpu-hopper", "runtime": "onnxruntime-cuda"}
PINS = {"x": "NHWC", "y": "NHWC"}  # two convolutions alone are not worth Transposes at their ends


def kinds(model: onnx.ModelProto) -> Counter[str]:
    """The number of nodes of each op type."""
    return Counter(node.op_type for node in model.graph.node)
