"""The command line in tests: the result of a command, and models."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

TARGET = "gpu-hopper"
PLANNED = ("--target", TARGET, "--runtime", "compiler")


@dataclass(frozen=True)
class CommandResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


Cli = Callable[..., CommandResult]


def convolutions(seed: int = 0) -> onnx.ModelProto:
    """Two convolutions between Transposes, as Keras exports them."""
    generator = np.random.default_rng(seed)
    weights = {
        "w0": generator.normal(size=(32, 16, 3, 3)).astype(np.float32),
        "w1": generator.normal(size=(16, 32, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], "to_nchw", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["a", "w0"], ["b"], "conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["b"], ["c"], "relu"),
        helper.make_node("Transpose", ["c"], ["d"], "to_nhwc", perm=[0, 2, 3, 1]),
        helper.make_node("Tanh", ["d"], ["e"], "tanh"),
        helper.make_node("Transpose", ["e"], ["f"], "back", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["f", "w1"], ["y"], "conv1"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 24, 24, 16])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 16, 24, 24])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def relu() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_one_line(err: str) -> None:
    assert err.startswith(("error: ", "internal error: "))
    assert err.endswith("\n") and err.count("\n") == 1
    assert "Traceback" not in err
