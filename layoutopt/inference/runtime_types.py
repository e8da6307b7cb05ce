"""Types of what operators compute that onnx does not know: onnxruntime is asked, which infers its own.

A model that onnxruntime saved has operators of its domains, and says nothing of what lies between them unless the original did.
onnx stops at the first of them, and no layout rule can say anything of tensors of unknown rank. A session for the model without
its weights and without any rewriting tells the types of all values. Where onnxruntime refuses, they stay unknown.
"""

from typing import Any

import onnx
import onnx_ir as ir

from layoutopt.formats import Dim
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.onnx_io.converter.emit import Emission
from layoutopt.onnx_io.converter.vocabulary import FROM_IR, DimNames
from layoutopt.onnx_io.reader.lossless import nodes
from layoutopt.onnx_io.schema import is_undeclared, operators
from layoutopt.onnx_io.writer.weightless import THEIRS, stand_in
from layoutopt.runtime.errors import RUNTIME_ERRORS
from layoutopt.runtime.session import Session
from layoutopt.runtime.type_names import named_type


def give_foreign_types(graph: Graph, names: DimNames) -> None:
    """Set the types of what foreign operators of a main graph compute, where the model does not say them."""
    version = graph.opsets.get("", 0)
    known_ops = {*operators(), *_local(graph)}
    foreign = (op for op in graph.ops if (op.domain, op.op_type) not in known_ops or _is_undeclared(op, version))
    computed = (value for op in foreign for value in op.outputs if value is not None)
    unknown = [value for value in computed if value.rank is None]
    if not unknown:
        return
    emission = Emission(graph)
    proto = stand_in(emission.model)
    for node in nodes(proto):
        if node.domain == THEIRS and is_undeclared("", node.op_type, version):
            node.domain = ""
    _expose(proto, [emission.names[value] for value in unknown])
    try:
        session = Session(proto.SerializeToString(), optimised=False)
    except RUNTIME_ERRORS:
        return
    told = {each.name: each for each in session.get_outputs()}
    known = {dim for value in graph.inputs for dim in value.shape or () if isinstance(dim, str)}
    for value in unknown:
        _tell(value, told[emission.names[value]], known, names)


def _local(graph: Graph) -> set[tuple[str, str]]:
    """The functions of a model, by domain and name."""
    model = graph.origin
    return {key[:2] for key in model.functions} if isinstance(model, ir.Model) else set()


def _is_undeclared(op: Op, version: int) -> bool:
    return is_undeclared(op.domain, op.op_type, version)


def _expose(proto: onnx.ModelProto, wanted: list[str]) -> None:
    """Make outputs of values; onnxruntime infers the types of those that have none."""
    there = {output.name for output in proto.graph.output}
    for name in wanted:
        if name not in there:
            proto.graph.output.add(name=name)


def _tell(value: Value, told: Any, known: set[str], names: DimNames) -> None:
    """Give a value the type that onnxruntime says; its names for dimensions are those of the inputs, or unknown ones.

    It says of an unknown rank what it says of a scalar: nothing.
    """
    if not str(told.type).startswith("tensor(") or not told.shape:
        return
    dtype = FROM_IR.get(ir.DataType(named_type(told.type).tensor_type.elem_type))
    if dtype is None:
        return
    shape: list[Dim] = [dim if isinstance(dim, int) or dim in known else names.fresh() for dim in told.shape]
    value.give_type(TensorType(dtype, tuple(shape)))
