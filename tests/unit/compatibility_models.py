"""Models to check for compatibility, and their files."""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

HEADER = '<ir_version: 10, opset_import: ["" : 18, "my" : 1, "com.microsoft" : 1, "com.microsoft.nchwc" : 1]>\n'
PLAIN = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { r = Relu(x) y = Add(r, x) }"


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEADER + text)


def convolutions() -> onnx.ModelProto:
    """Pooling between two convolutions of 32 channels."""
    generator = np.random.default_rng(0)
    graph = model(
        "g (float[1,32,16,16] x) => (float[?,?,?,?] y) { a = Conv <pads = [1,1,1,1]> (x, w1) r = Relu(a)"
        " p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r) y = Conv <pads = [1,1,1,1]> (p, w2) }"
    )
    for name in ("w1", "w2"):
        array = generator.normal(scale=0.06, size=(32, 32, 3, 3)).astype(np.float32)
        graph.graph.initializer.append(numpy_helper.from_array(array, name))
    return graph


def saved(folder: Path, proto: onnx.ModelProto | str, name: str = "model.onnx") -> Path:
    """The file of a model, or of one with the given text."""
    path = folder / name
    onnx.save(model(proto) if isinstance(proto, str) else proto, path)
    return path
