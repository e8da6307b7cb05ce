"""Initializers of equal content in a model of onnx_ir are made one."""

import onnx_ir as ir

from layoutopt.ir.content import representatives
from layoutopt.ir.types import Data, TensorType
from layoutopt.onnx_io.converter.vocabulary import FROM_IR


def share_initializers(model: ir.Model) -> None:
    """Let readers read one of equal initializers, of the same graph or of the main one. Inputs and outputs stay."""
    graphs = list(model.graphs())
    constants = {
        value: (TensorType(FROM_IR[tensor.dtype], tuple(tensor.shape.numpy())), tensor)
        for graph in graphs
        for value in graph.initializers.values()
        if (tensor := value.const_value) is not None and tensor.dtype in FROM_IR
    }
    found: dict[Data, Data] = representatives(constants.values())
    first: dict[tuple[ir.Graph, Data], ir.Value] = {}
    for value, (_, tensor) in constants.items():
        graph = value.graph
        if tensor not in found or graph is None or value.is_graph_input() or value.is_graph_output():
            continue
        main = first.get((model.graph, found[tensor]))
        kept = main or first.setdefault((graph, found[tensor]), value)
        if kept is not value:
            value.replace_all_uses_with(kept)
            del graph.initializers[value.name or ""]
