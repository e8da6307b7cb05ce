"""Files and messages of ONNX: read, convert, write.

file --read--> onnx_ir.Model --lift--> Graph --emit--> onnx_ir.Model --write--> file
"""

from layoutopt.onnx_io.beside import has_training
from layoutopt.onnx_io.check import check
from layoutopt.onnx_io.emit import emit, forget_output_shapes
from layoutopt.onnx_io.fingerprint import fingerprint
from layoutopt.onnx_io.inline import inline, inline_functions
from layoutopt.onnx_io.interface import declared_inputs, inputs_of
from layoutopt.onnx_io.lift import infer_again, lift
from layoutopt.onnx_io.measure import measure
from layoutopt.onnx_io.nature import Nature, nature
from layoutopt.onnx_io.one_op import one_op
from layoutopt.onnx_io.parse import parse_message
from layoutopt.onnx_io.read import from_message, read
from layoutopt.onnx_io.serialize import IN_ONE_FILE, to_bytes, weights
from layoutopt.onnx_io.widen import has_float16, to_bytes_wide
from layoutopt.onnx_io.write import copy, has_external_data, write

__all__ = [
    "IN_ONE_FILE",
    "Nature",
    "check",
    "copy",
    "declared_inputs",
    "emit",
    "fingerprint",
    "forget_output_shapes",
    "from_message",
    "has_external_data",
    "has_float16",
    "has_training",
    "infer_again",
    "inline",
    "inline_functions",
    "inputs_of",
    "lift",
    "measure",
    "nature",
    "one_op",
    "parse_message",
    "read",
    "to_bytes",
    "to_bytes_wide",
    "weights",
    "write",
]
