"""Reads files that must be refused, and returns the message."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from parsed_models import parsed

from layoutopt.errors import ModelError
from layoutopt.inference import lift
from layoutopt.ir.graph import Graph
from layoutopt.onnx_io import read
from layoutopt.runtime.session import Session

HEADER = '<ir_version: 10, opset_import: ["" : 18, "custom" : 1]>\n'


def load(path: Path, content: bytes | onnx.ModelProto, *, strict: bool = False) -> Graph:
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return lift(read(path, strict=strict), strict=strict)


def refused(path: Path, content: bytes | onnx.ModelProto) -> str:
    """The message of the error in which strict reading of a file ends; it must be one line."""
    with pytest.raises(ModelError) as caught:
        load(path, content, strict=True)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.where
    assert caught.value.hint
    return message


def parse(body: str, header: str = HEADER) -> onnx.ModelProto:
    return parser.parse_model(header + body)


def small() -> onnx.ModelProto:
    return parse(
        "g (float[2,3] x) => (float[2,3] y) <float[3] w = {1, 2, 3}> { [mul] a = Mul(x, w) [relu] y = Relu(a) }"
    )


def run(content: bytes) -> dict[str, Any]:
    session = Session(content)
    x = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, {"x": x}), strict=True))


def turned(head: str = HEADER, more: str = "", outputs: str = "float[1,8,8,32] y") -> onnx.ModelProto:
    """A convolution between Transposes, which is rewritten."""
    nodes = (
        "a = Transpose <perm = [0,3,1,2]> (x) b = Conv <pads = [1,1,1,1]> (a, w) y = Transpose <perm = [0,2,3,1]> (b)"
    )
    text = f"{head}g (float[1,8,8,16] x) => ({outputs}) <float[32,16,3,3] w> {{ {nodes} {more} }}"
    return parsed(text, w=(32, 16, 3, 3))
