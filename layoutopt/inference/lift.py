"""Lift: from a model of onnx_ir to the graph that the passes work on.

The structure (names, producers, cycles) is built and checked first, then onnx's checker runs on it. Then types are inferred.
"""

from pathlib import Path

import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.inference.declarations import infer_before_declarations, infer_leniently, infer_with_declarations
from layoutopt.inference.runtime_types import add_runtime_types
from layoutopt.ir.graph import Graph
from layoutopt.onnx_io.converter.emit import Emission
from layoutopt.onnx_io.converter.structure import HINT, build
from layoutopt.onnx_io.converter.vocabulary import DimNames
from layoutopt.onnx_io.onnx_checker import check_structure
from layoutopt.onnx_io.reader.attribute_checks import check_attributes
from layoutopt.onnx_io.reader.read import from_message, read
from layoutopt.onnx_io.reader.repair import Repair, repairs_of
from layoutopt.onnx_io.schema import check_ops, opsets_of
from layoutopt.onnx_io.writer.serialize import to_bytes, to_proto
from layoutopt.onnx_io.writer.weightless import weightless_message
from layoutopt.runtime.duplicate_definitions import loads


def lift(model: ir.Model, *, strict: bool = False) -> Graph:
    """Build the graph of a model and check that the model is valid.

    Args:
        model: the model, which is not changed.
        strict: whether to refuse a model that had to be repaired. If not, the graph lists the repairs, here and at reading;
            ONNX Runtime has to load the original, or else they are refused as well.

    Raises:
        ModelError: two values of one name, an input that nothing computes, a cycle, an operator that does not
            exist, shapes or element types that contradict each other.
    """
    names = DimNames()
    graph = Graph(model.graph.name or "", opsets_of(model.opset_imports), origin=model)
    graph.metadata = dict(model.metadata_props)
    build(model, model.graph, graph, names)
    check_ops(model)
    add_runtime_types(graph, names)
    check_structure(weightless_message(Emission(graph).model))
    recorded = repairs_of(model)
    repairs = list(recorded.found) if recorded is not None else []
    if strict:
        infer_with_declarations(graph, names)
        check_attributes(graph)
    else:
        repairs += _infer(graph, names)
    if repairs and (strict or not _runtime_loads(model)):
        raise _strict_refusal(model, repairs[0])
    graph.repairs = [(each.where, each.reason) for each in repairs]
    return graph


def _infer(graph: Graph, names: DimNames) -> list[Repair]:
    """Infer the types of a graph; returns the repairs of declared shapes."""
    try:
        repairs = infer_before_declarations(graph, names)
        check_attributes(graph)
    except ModelError as error:
        return [infer_leniently(graph, names, error)]
    else:
        return repairs


def _runtime_loads(model: ir.Model) -> bool:
    """Whether ONNX Runtime loads a model as it was before any repair."""
    recorded = repairs_of(model)
    return loads(to_bytes(model)) if recorded is None else recorded.is_confirmed()


def _strict_refusal(model: ir.Model, repair: Repair) -> ModelError:
    """The error of reading the source of a repaired model without repairs."""
    recorded = repairs_of(model)
    source = recorded.source if recorded is not None else to_proto(model)
    try:
        lift(read(source, strict=True) if isinstance(source, Path) else from_message(source, strict=True), strict=True)
    except ModelError as error:
        return error
    return ModelError(repair.fault, where=repair.where, hint=HINT)
