"""The last check of a model before `optimize` returns it."""

import onnx_ir as ir

from layoutopt.onnx_io.onnx_checker import check_inference, check_structure
from layoutopt.onnx_io.reader.lossless import graphs
from layoutopt.onnx_io.writer.serialize import to_proto, weight_bytes
from layoutopt.onnx_io.writer.weightless import drop_functions_of_other_opsets, move_unknown_ops, weightless_message

_WITH_WEIGHTS = 1 << 22  # bytes; the checker copies the message, and takes 1.7 s for 106 MB


def check(model: ir.Model) -> None:
    """Run onnx's checker and shape inference, with the weights if they are small.

    Raises:
        ModelError: the checker refuses the model; the message is the checker's, on one line.
    """
    proto = to_proto(model) if weight_bytes(model) <= _WITH_WEIGHTS else weightless_message(model)
    move_unknown_ops(proto)
    drop_functions_of_other_opsets(proto)
    for graph in graphs(proto):
        graph.name = graph.name or "graph"  # the checker requires a name
    check_structure(proto)
    check_inference(proto)
