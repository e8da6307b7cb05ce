"""onnx's type inference for one node, with symbolic extents as names of dimensions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.checker
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference
import onnx_ir as ir

from layoutopt.errors import FormatError
from layoutopt.formats import UNKNOWN, Dim, Extent, parse_extent, quoted
from layoutopt.ir.types import Array, DType, OpaqueType, TensorType
from layoutopt.onnx_io.converter.vocabulary import FROM_IR, TO_IR, attribute_to_ir
from layoutopt.onnx_io.schema import find_schema
from layoutopt.onnx_io.sidecar import has_map
from layoutopt.ops.shape_functions import Node

SHAPE_ERRORS = (onnx.shape_inference.InferenceError, ValueError, IndexError, RuntimeError)
"""The exceptions of onnx if the shapes of operands contradict each other."""

TYPE_ERROR = onnx.checker.ValidationError
"""The exception of onnx if an operand has a type that the operator does not take."""

_MAX_CONSTANT_BYTES = 1024  # of a constant whose elements onnx reads: shapes, axes, pads and sizes are smaller
_LABELS = {DType.FLOAT32: "float", DType.FLOAT64: "double"}  # of element types in schemas
_KINDS = "iufb"  # numpy's kinds of the element types of such a constant


@dataclass(frozen=True, slots=True)
class PartialType:
    """A partially known type of a tensor: None for an unknown element type, rank or extent."""

    dtype: DType | None
    shape: tuple[Dim | None, ...] | None


InferredType: TypeAlias = PartialType | OpaqueType | None
"""The type of a result as far as inference of its op determines it; `merge` completes it to a `ValueType`. None if unknown."""


def as_inferred(type: TensorType | OpaqueType) -> InferredType:
    """A type in the form of an inferred one."""
    if isinstance(type, TensorType):
        return PartialType(type.dtype, type.shape)
    return None if type.text == UNKNOWN else type


def has_inference(node: Node) -> bool:
    """Whether onnx has an inference function for the operator."""
    schema = find_schema(node.op_type, node.domain, node.version)
    return schema is not None and bool(schema.has_type_and_shape_inference_function)


def schema_dtypes(node: Node) -> list[InferredType]:
    """The element types of the outputs by the operator's schema: the only permitted one, or that of an input."""
    schema = find_schema(node.op_type, node.domain, node.version)
    found: list[InferredType] = [None] * len(node.outputs)
    inputs = {} if schema is None else {each.type_str: index for index, each in reversed([*enumerate(schema.inputs)])}
    for index, formal in enumerate(schema.outputs[: len(found)] if schema is not None else ()):
        dtypes = [dtype for dtype in DType if f"tensor({_LABELS.get(dtype, dtype)})" in formal.types]
        operand = node.operand(inputs[formal.type_str]) if formal.type_str in inputs else None
        if len(formal.types) == len(dtypes) == 1:
            found[index] = PartialType(dtypes[0], None)
        elif operand is not None and operand.dtype is not None:
            found[index] = PartialType(operand.dtype, None)
    return found


def infer_node(node: Node) -> list[InferredType]:
    """The types of the outputs, as onnx infers them.

    Raises:
        SHAPE_ERRORS: the shapes of the operands contradict each other.
        TYPE_ERROR: an operand has a type that the operator does not take.
    """
    schema = find_schema(node.op_type, node.domain, node.version)
    if schema is None:
        return [None] * len(node.outputs)
    inputs = [f"i{index}" if operand is not None else "" for index, operand in enumerate(node.operands)]
    outputs = [f"o{index}" if is_there else "" for index, is_there in enumerate(node.outputs)]
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, input=inputs, output=outputs)
    for name, value in node.attributes.items():
        if name in schema.attributes:  # an equivalent node has attributes of another operator, too
            ir.serde.serialize_attribute_into(proto.attribute.add(), attribute_to_ir(name, value, schema))
    given = {name: operand for name, operand in zip(inputs, node.operands, strict=True) if operand is not None}
    data = {name: _tensor(each.constant) for name, each in given.items() if each.constant is not None}
    types = {name: type_proto(each.type) for name, each in given.items()}
    found = infer_with_schema(schema, proto, types, data, _imports(node.domain, node.version))
    return [found.get(name) for name in outputs]


def infer_with_schema(
    schema: Any,
    proto: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto],
    imports: Sequence[onnx.OperatorSetIdProto],
) -> dict[str, InferredType]:
    """The types of the outputs of a node by name.

    Raises:
        SHAPE_ERRORS, TYPE_ERROR: as for `infer_node`.
    """
    found = onnx.shape_inference.infer_node_outputs(schema, proto, dict(types), dict(data), None, list(imports))
    return {name: _read(type) for name, type in found.items()}


def small_array(array: Array) -> Array | None:
    """The elements of a constant, if they are numbers and small enough for onnx's inference to read."""
    return array if array.dtype.kind in _KINDS and array.nbytes <= _MAX_CONSTANT_BYTES else None


@lru_cache(maxsize=256)
def _imports(domain: str, version: int) -> tuple[onnx.OperatorSetIdProto, ...]:
    return (onnx.helper.make_opsetid(domain, version),)


def _tensor(array: Array) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape))


def type_proto(type: TensorType | OpaqueType) -> onnx.TypeProto:
    """The message of a type, shared with other callers; empty if the type is unknown."""
    return _tensor_type(type) if isinstance(type, TensorType) else _opaque_type(type)


@lru_cache(maxsize=1 << 12)
def _tensor_type(type: TensorType) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = int(TO_IR[type.dtype])
    if type.shape is not None:
        proto.tensor_type.shape.SetInParent()
        for dim in type.shape:
            if isinstance(dim, int):
                proto.tensor_type.shape.dim.add().dim_value = dim
            else:
                proto.tensor_type.shape.dim.add().dim_param = str(dim)
    return proto


def _opaque_type(type: OpaqueType) -> onnx.TypeProto:
    if isinstance(type.origin, onnx.TypeProto):
        return type.origin
    proto = onnx.TypeProto()
    if isinstance(type.origin, tuple):
        kind, shape = type.origin
        if kind is not None:
            ir.serde.serialize_type_into(proto, kind)
        if kind is not None and shape is not None:
            ir.serde.serialize_shape_into(proto, shape)
    return proto


def _read(proto: onnx.TypeProto) -> InferredType:
    """The inferred type of a message of onnx."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        elem_type = proto.tensor_type.elem_type
        shape = proto.tensor_type.shape.dim if proto.tensor_type.HasField("shape") else None
        dtype = FROM_IR.get(ir.DataType(elem_type)) if elem_type else None
        return PartialType(dtype, None if shape is None else tuple(map(_dim, shape)))
    if kind is None:
        return None
    if has_map(proto):
        return OpaqueType("map", proto)
    type = ir.serde.deserialize_type_proto_for_type(proto)
    return OpaqueType(" ".join(str(type).split()), (type, ir.serde.deserialize_type_proto_for_shape(proto)))


def _dim(dim: Any) -> Dim | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return _extent(dim.dim_param) if dim.dim_param else None


@lru_cache(maxsize=1 << 12)
def _extent(text: str) -> Dim:
    """The extent that a text denotes; names in the types of sequences are not in quotes."""
    try:
        return parse_extent(text).dim
    except FormatError:
        return Extent.of_atom(quoted(text))


__all__ = [
    "SHAPE_ERRORS",
    "TYPE_ERROR",
    "InferredType",
    "PartialType",
    "as_inferred",
    "has_inference",
    "infer_node",
    "infer_with_schema",
    "schema_dtypes",
    "small_array",
    "type_proto",
]
