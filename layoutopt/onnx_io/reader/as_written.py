"""Reads a model such that writing it again gives the bytes of its file, if layoutopt wrote that file."""

from pathlib import Path

import onnx
import onnx_ir as ir

from layoutopt.onnx_io.reader.lossless import graphs
from layoutopt.onnx_io.reader.read import read
from layoutopt.onnx_io.writer.serialize import weights


def read_as_written(path: Path) -> ir.Model:
    """A model without the types of initializers that its file does not declare.

    onnx_ir gives initializers the types of their tensors when it reads a file, and writes these as `value_info`.

    Args:
        path: the file.

    Raises:
        ModelError: the model cannot be read.
    """
    model = read(path)
    message = onnx.load(path, load_external_data=False)
    declared = {each.name for graph in graphs(message) for each in graph.value_info}
    for value, _ in weights(model):
        if value.name not in declared:
            value.type = value.shape = None
    return model
