"""The output types of operators that have no ONNX schema, as inferred by ONNX Runtime.

A model that onnxruntime saved has operators of onnxruntime's domains, and often no declared types of inner values. onnx's
inference stops at the first such operator, and layout rules require known ranks. An onnxruntime session of the model without
weights and without optimisations has the types of all values. If onnxruntime refuses the model, these types remain unknown.
"""

from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir

from layoutopt.formats import Extent
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.onnx_io.converter.emit import Emission
from layoutopt.onnx_io.converter.vocabulary import FROM_IR, DimNames
from layoutopt.onnx_io.reader.lossless import nodes
from layoutopt.onnx_io.schema import is_onnxruntime_op, operators
from layoutopt.onnx_io.writer.weightless import UNCHECKED_DOMAIN, weightless_message
from layoutopt.runtime.errors import RUNTIME_ERRORS
from layoutopt.runtime.session import Session
from layoutopt.runtime.type_names import type_proto


def add_runtime_types(graph: Graph, names: DimNames) -> None:
    """Set the unknown types of the results of operators without an ONNX schema in a main graph."""
    version = graph.opsets.get("", 0)
    known_ops = {*operators(), *_local(graph)}
    undefined = (op for op in graph.ops if (op.domain, op.op_type) not in known_ops or _is_onnxruntime_op(op, version))
    computed = (value for op in undefined for value in op.outputs if value is not None)
    unknown = [value for value in computed if value.rank is None]
    if not unknown:
        return
    emission = Emission(graph)
    proto = weightless_message(emission.model)
    for node in nodes(proto):
        if node.domain == UNCHECKED_DOMAIN and is_onnxruntime_op("", node.op_type, version):
            node.domain = ""
    _expose(proto, [emission.names[value] for value in unknown])
    try:
        session = Session(proto.SerializeToString(), is_optimised=False)
    except RUNTIME_ERRORS:
        return
    outputs = {each.name: each for each in session.get_outputs()}
    known = {str(dim): dim for value in graph.inputs for dim in value.shape or () if isinstance(dim, Extent)}
    for value in unknown:
        _set_type(value, outputs[emission.names[value]], known, names)


def _local(graph: Graph) -> set[tuple[str, str]]:
    """The functions of a model, by domain and name."""
    model = graph.origin
    return {key[:2] for key in model.functions} if isinstance(model, ir.Model) else set()


def _is_onnxruntime_op(op: Op, version: int) -> bool:
    return is_onnxruntime_op(op.domain, op.op_type, version)


def _expose(proto: onnx.ModelProto, names: list[str]) -> None:
    """Add values as outputs without types, so that the session reports their types."""
    there = {output.name for output in proto.graph.output}
    for name in names:
        if name not in there:
            proto.graph.output.add(name=name)


def _set_type(value: Value, output: Any, known: Mapping[str, Extent], names: DimNames) -> None:
    """Set the type of a value to that of an output of the session. Names of dimensions that no input has become unknown.

    onnxruntime does not distinguish an unknown rank from a scalar, so the type of a scalar is ignored.
    """
    if not str(output.type).startswith("tensor(") or not output.shape:
        return
    dtype = FROM_IR.get(ir.DataType(type_proto(output.type).tensor_type.elem_type))
    if dtype is None:
        return
    dims = (dim if isinstance(dim, int) else known.get(dim) or names.fresh() for dim in output.shape)
    value.give_type(TensorType(dtype, dims))
