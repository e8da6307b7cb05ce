"""Reading and writing ONNX: the only package that knows onnx, onnx_ir and (to evaluate) onnxruntime.

file --read--> onnx_ir.Model --lift--> Graph --emit--> onnx_ir.Model --write--> file
"""

from layoutopt.onnx_io.beside import has_training
from layoutopt.onnx_io.check import check
from layoutopt.onnx_io.emit import emit, forget_output_shapes
from layoutopt.onnx_io.evaluate import defer, evaluate, is_foldable
from layoutopt.onnx_io.fingerprint import fingerprint
from layoutopt.onnx_io.inline import inline, inline_functions
from layoutopt.onnx_io.interface import declared_inputs, inputs_of
from layoutopt.onnx_io.lift import infer_again, lift
from layoutopt.onnx_io.measure import measure
from layoutopt.onnx_io.nature import Nature, nature
from layoutopt.onnx_io.one_op import one_op
from layoutopt.onnx_io.parse import parse_message
from layoutopt.onnx_io.read import from_message, read
from layoutopt.onnx_io.runtime_choice import loads
from layoutopt.onnx_io.serialize import IN_ONE_FILE, to_bytes, weights
from layoutopt.onnx_io.settle import forget_inner_types, settle
from layoutopt.onnx_io.widen import has_float16, to_bytes_wide
from layoutopt.onnx_io.write import copy, has_external_data, write

__all__ = [
    "IN_ONE_FILE",
    "Nature",
    "check",
    "copy",
    "declared_inputs",
    "defer",
    "emit",
    "evaluate",
    "fingerprint",
    "forget_inner_types",
    "forget_output_shapes",
    "from_message",
    "has_external_data",
    "has_float16",
    "has_training",
    "infer_again",
    "inline",
    "inline_functions",
    "inputs_of",
    "is_foldable",
    "lift",
    "loads",
    "measure",
    "nature",
    "one_op",
    "parse_message",
    "read",
    "settle",
    "to_bytes",
    "to_bytes_wide",
    "weights",
    "write",
]
