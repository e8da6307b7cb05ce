"""Normalisation of a model that onnxruntime saved: valid for onnx, equal in every run, equal constants stored once."""

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedOpsetsPass

from layoutopt.ir.constants import share_constants
from layoutopt.ir.graph import Graph, UnusedNames
from layoutopt.ir.types import Op
from layoutopt.onnx_io.emission import emit
from layoutopt.onnx_io.schema import opsets_of
from layoutopt.onnx_io.structure import build
from layoutopt.onnx_io.vocabulary import DimNames, values_of


def normalized(baked: ir.Model, model: ir.Model) -> ir.Model:
    """The model that onnxruntime saved, with the metadata and the interface of the model that it loaded.

    Small constants are shared as well, because onnxruntime shares them when it loads a model.

    Args:
        baked: the saved model.
        model: the model that onnxruntime loaded.
    """
    graph = Graph(model.graph.name or "", opsets_of(baked.opset_imports), origin=model)
    graph.metadata = dict(model.metadata_props)
    build(baked, baked.graph, graph, DimNames())
    share_constants(graph, least=0)
    _order_and_rename(graph, model)
    result = emit(graph)
    known = {value.name: value for value in (*model.graph.inputs, *model.graph.outputs)}
    for new in (*result.graph.inputs, *result.graph.outputs):
        if (old := known.get(new.name)) is not None:
            new.shape, new.type, new.doc_string = old.shape, old.type, old.doc_string
    RemoveUnusedOpsetsPass(process_functions=False)(result)
    return result


def _order_and_rename(graph: Graph, model: ir.Model) -> None:
    """Order ops depth first from the outputs, and constants by their first readers.

    Ops and values that onnxruntime added are named by their positions. Its own orders and names depend on memory addresses.
    """
    regions = graph.regions()
    nodes = {node.name or "" for node in model.graph.all_nodes()}
    values = {value.name or "" for value in values_of(model)}
    unused_node, unused = UnusedNames(nodes), UnusedNames(values)
    ops = [(region, op) for region in regions for op in _depth_first(region)]
    for position, (region, op) in enumerate(ops):
        op.order = (position,)
        if op.name and op.name not in nodes:
            op.name = unused_node.find(f"{op.op_type}__{position}")
        for index, value in enumerate(op.outputs):
            if value is not None and value.name not in values and not region.is_output(value):
                region.rename(value, unused.find(f"{op.op_type}__{position}_{index}"))
    read = dict.fromkeys((region, value) for region, op in ops for value in op.inputs if value and value.is_constant)
    number = 0
    for region, value in read:
        is_new = value.name not in values
        region.rename(value, unused.find(f"constant__{number}") if is_new else value.name)
        number += is_new
    for region in regions:
        region.touch()


def _depth_first(graph: Graph) -> list[Op]:
    """The ops of a graph in depth-first order from the outputs, each behind the ops that compute its operands."""
    ends = [graph.producer(value) for value in graph.outputs]
    pending = [op for op in (*ends, *graph.ops) if op is not None][::-1]
    found: dict[Op, None] = {}
    while pending:
        before = [op for op in graph.producers(pending[-1]) if op not in found]
        pending += reversed(before)
        if not before:
            found[pending.pop()] = None
    return list(found)
