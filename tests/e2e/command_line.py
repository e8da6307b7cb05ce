"""The command line in tests: the result of a command, and models."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
from parsed_models import parsed

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
    text = """<ir_version: 10, opset_import: ["" : 18]> net (float[1,24,24,16] x) => (float[1,16,24,24] y) {
        [to_nchw] a = Transpose <perm = [0, 3, 1, 2]> (x) [conv0] b = Conv <pads = [1, 1, 1, 1]> (a, w0) [relu] c = Relu (b)
        [to_nhwc] d = Transpose <perm = [0, 2, 3, 1]> (c) [tanh] e = Tanh (d)
        [back] f = Transpose <perm = [0, 3, 1, 2]> (e) [conv1] y = Conv (f, w1) }"""
    return parsed(text, seed, w0=(32, 16, 3, 3), w1=(16, 32, 1, 1))


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
