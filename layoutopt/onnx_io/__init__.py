"""Files and messages of ONNX: read, convert, write.

file --read--> onnx_ir.Model    Graph --emit--> onnx_ir.Model --write--> file
"""

from layoutopt.onnx_io.converter.emit import drop_output_shapes, emit
from layoutopt.onnx_io.converter.inline import inline, inline_functions
from layoutopt.onnx_io.fingerprint import fingerprint
from layoutopt.onnx_io.interface import declared_inputs, inputs_of
from layoutopt.onnx_io.one_op import one_op
from layoutopt.onnx_io.reader.as_written import read_as_written
from layoutopt.onnx_io.reader.parse import parse_message
from layoutopt.onnx_io.reader.read import from_message, read
from layoutopt.onnx_io.sidecar import has_training
from layoutopt.onnx_io.writer.final_check import check
from layoutopt.onnx_io.writer.serialize import IN_ONE_FILE, to_bytes, weights
from layoutopt.onnx_io.writer.write import copy, has_external_data, write

__all__ = [
    "IN_ONE_FILE",
    "check",
    "copy",
    "declared_inputs",
    "drop_output_shapes",
    "emit",
    "fingerprint",
    "from_message",
    "has_external_data",
    "has_training",
    "inline",
    "inline_functions",
    "inputs_of",
    "one_op",
    "parse_message",
    "read",
    "read_as_written",
    "to_bytes",
    "weights",
    "write",
]
