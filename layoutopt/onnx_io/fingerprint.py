"""The fingerprint of a model for caches and reports: a hash of its ops and interface without its large weights."""

import hashlib
from typing import Any

import onnx
import onnx_ir as ir

from layoutopt.onnx_io.reader.lossless import graphs
from layoutopt.onnx_io.writer.weightless import weightless_message

_CONTENT_UP_TO = 4096  # bytes; smaller constants, such as shapes, axes and scales, count with their elements


def fingerprint(model: ir.Model) -> str:
    """The SHA-256 of nodes, attributes, names, input and output types and small initializers, as hex digits.

    Large initializers count with their name, element type and shape only. Documentation and metadata do not
    count, nor do types of intermediate values, as they follow from the rest.
    """
    proto = weightless_message(model, small=_CONTENT_UP_TO)
    for graph in graphs(proto):
        _strip_graph(graph)
    for function in proto.functions:
        _strip(function, "value_info")
        for node in function.node:
            _strip(node)
    return hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()


def _strip_graph(graph: onnx.GraphProto) -> None:
    _strip(graph, "value_info", "quantization_annotation", "name")
    for part in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        _strip(part)
    for tensor in graph.initializer:
        if tensor.data_type != onnx.TensorProto.STRING and not tensor.HasField("raw_data"):
            packed = ir.serde.TensorProtoTensor(tensor).tobytes()
            name, dims, dtype = tensor.name, list(tensor.dims), tensor.data_type
            tensor.Clear()
            tensor.MergeFrom(onnx.TensorProto(name=name, dims=dims, data_type=dtype, raw_data=packed))


def _strip(message: Any, *fields: str) -> None:
    for field in ("doc_string", "metadata_props", *fields):
        message.ClearField(field)
