"""Normalisation of a model that onnxruntime saved: valid for onnx, equal in every run, equal initializers stored once."""

import onnx_ir as ir

from layoutopt.ir.constants import representatives
from layoutopt.ir.graph import UnusedNames
from layoutopt.ir.types import Data, TensorType
from layoutopt.onnx_io.structure import captures_of
from layoutopt.onnx_io.vocabulary import FROM_IR, values_of


def add_output_constants(baked: ir.Model) -> None:
    """Replace initializers that are outputs of subgraphs by Constant nodes, because onnx refuses such initializers."""
    for graph in baked.graphs():
        for value in graph.outputs:
            name, tensor = value.name or "", value.const_value
            if graph is baked.graph or tensor is None or name not in graph.initializers:
                continue
            result = ir.Value(name=name, type=value.type, shape=value.shape)
            constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[result])
            del graph.initializers[name]
            if len(graph):
                graph.insert_before(graph[0], constant)
            else:
                graph.append(constant)
            value.replace_all_uses_with(result, replace_graph_outputs=True)


def sort_nodes(baked: ir.Model) -> None:
    """Sort nodes depth first from the outputs, and initializers in the order of their first readers.

    onnxruntime's own orders depend on memory addresses.
    """
    for graph in baked.graphs():
        graph.extend(_depth_first(graph))
    positions: dict[str | None, int] = {}
    for node in baked.graph.all_nodes():
        for value in node.inputs:
            if value is not None:
                positions.setdefault(value.name, len(positions))
    for graph in baked.graphs():
        initializers = sorted(graph.initializers.values(), key=lambda each: positions.get(each.name, len(positions)))
        graph.initializers.clear()
        for value in initializers:
            graph.initializers.add(value)


def _depth_first(graph: ir.Graph) -> list[ir.Node]:
    """The nodes of a graph in depth-first order from the outputs, each behind the nodes that it reads."""
    writers = {value.name: node for node in graph for value in node.outputs if value.name}
    found: dict[ir.Node, None] = {}
    ends = [writers[value.name] for value in graph.outputs if value.name in writers]
    pending = [(node, False) for node in (*ends, *graph)][::-1]
    while pending:
        node, is_ready = pending.pop()
        if node in found:
            continue
        if is_ready:
            found[node] = None
            continue
        reads = [*(value.name for value in node.inputs if value is not None), *captures_of(node)]
        pending.append((node, True))
        pending.extend((writers[name], False) for name in reversed(reads) if name in writers)
    return list(found)


def rename_generated(model: ir.Model, baked: ir.Model) -> None:
    """Rename the nodes and values that onnxruntime created by their positions, which are equal in every run."""
    nodes = {node.name or "" for node in model.graph.all_nodes()}
    values = {value.name or "" for value in values_of(model)}
    initializers = [value for graph in baked.graphs() for value in graph.initializers.values()]
    unused_node, unused = UnusedNames(nodes), UnusedNames(values)
    for position, value in enumerate(each for each in initializers if each.name not in values):
        value.name = unused.find(f"constant__{position}")
    for position, node in enumerate(baked.graph.all_nodes()):
        if node.name and node.name not in nodes:
            node.name = unused_node.find(f"{node.op_type}__{position}")
        for index, value in enumerate(node.outputs):
            if value.name and value.name not in values and not value.is_graph_output():
                value.name = unused.find(f"{node.op_type}__{position}_{index}")


_SHARED = 8  # elements
_SHARED_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64)


def share_initializers(model: ir.Model) -> None:
    """Replace equal initializers by one, of the same graph or of the main graph. Inputs and outputs are not replaced.

    Small ones are shared as by onnxruntime's ConstantSharing, which replaces equal constants of at most eight elements when it
    loads a model, but none that a subgraph reads.
    """
    constants = {
        value: (TensorType(FROM_IR[tensor.dtype], tuple(tensor.shape.numpy())), tensor)
        for graph in model.graphs()
        for value in graph.initializers.values()
        if (tensor := value.const_value) is not None and tensor.dtype in FROM_IR
    }
    large: dict[Data, Data] = representatives(constants.values())
    captured = {name for node in model.graph for name in captures_of(node)}
    first: dict[tuple[ir.Graph, object], ir.Value] = {}
    for value, (type, tensor) in constants.items():
        graph = value.graph
        is_small = tensor.size <= _SHARED and tensor.dtype in _SHARED_TYPES and value.name not in captured
        if graph is None or value.is_graph_input() or value.is_graph_output():
            continue
        if tensor not in large and not (is_small and graph is model.graph):
            continue
        key = large[tensor] if tensor in large else (type, tensor.tobytes())
        kept = first.get((model.graph, key)) or first.setdefault((graph, key), value)
        if kept is not value:
            value.replace_all_uses_with(kept)
            del graph.initializers[value.name or ""]
