"""Sharing of initializers with equal elements in a model of onnx_ir."""

import onnx_ir as ir

from layoutopt.ir.constant_sharing import representatives
from layoutopt.ir.types import Data, TensorType
from layoutopt.onnx_io.converter.captures import captures_of
from layoutopt.onnx_io.converter.vocabulary import FROM_IR

_SHARED = 8  # elements
_SHARED_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64)


def share_initializers(model: ir.Model) -> None:
    """Replace equal initializers by one, of the same graph or of the main graph. Inputs and outputs are not replaced."""
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


def share_small_initializers(model: ir.Model) -> None:
    """Replace equal initializers of the main graph of at most eight elements by one, as onnxruntime does.

    onnxruntime's ConstantSharing replaces equal constants of that size when it loads a model. Inputs and outputs are not
    replaced, nor are constants that a subgraph reads, which onnxruntime does not share.
    """
    first: dict[tuple[ir.DataType, tuple[int, ...], bytes], ir.Value] = {}
    captured = {name for node in model.graph for name in captures_of(node)}
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.size > _SHARED or tensor.dtype not in _SHARED_TYPES or name in captured:
            continue
        if value.is_graph_input() or value.is_graph_output():
            continue
        kept = first.setdefault((tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()), value)
        if kept is not value:
            value.replace_all_uses_with(kept)
            del model.graph.initializers[name]
