"""Files and messages of ONNX: read, convert, write.

file --read--> onnx_ir.Model    Graph --emit--> onnx_ir.Model --write--> file
"""

from layoutopt.onnx_io.emission import drop_output_shapes, emit
from layoutopt.onnx_io.inlining import inline_functions
from layoutopt.onnx_io.interface import declared_inputs
from layoutopt.onnx_io.messages import parse_message
from layoutopt.onnx_io.reader import from_message, read
from layoutopt.onnx_io.serialize import check, fingerprint, to_bytes, weights
from layoutopt.onnx_io.skeletons import filled_skeleton
from layoutopt.onnx_io.writer import copy, has_external_data, write
