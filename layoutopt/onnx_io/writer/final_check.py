"""The last check of a model before `optimize` returns it."""

import onnx_ir as ir

from layoutopt.onnx_io.onnx_checker import check_structure, infer
from layoutopt.onnx_io.reader.lossless import graphs
from layoutopt.onnx_io.writer.serialize import to_proto, weights
from layoutopt.onnx_io.writer.weightless import drop_functions_of_other_opsets, move_undeclared, stand_in

_WITH_WEIGHTS = 1 << 28  # bytes; the checker takes a copy of the message


def check(model: ir.Model) -> None:
    """Run onnx's checker with shape inference, on the weights too where that is cheap.

    Raises:
        ModelError: the checker refuses the model; the message is the checker's, on one line.
    """
    small = sum(tensor.nbytes for _, tensor in weights(model)) <= _WITH_WEIGHTS
    proto = to_proto(model) if small else stand_in(model)
    move_undeclared(proto)
    drop_functions_of_other_opsets(proto)
    for graph in graphs(proto):
        graph.name = graph.name or "graph"  # only the checker minds
    check_structure(proto)
    infer(proto)
