"""The types of the results of one op: by shape functions, by onnx for the one node, and merged with the declared types."""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx
import onnx.checker
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference
import onnx_ir as ir
from msgspec.structs import replace

from layoutopt.errors import FormatError, ModelError
from layoutopt.formats import UNKNOWN, Dim, Extent, Shape, is_unknown, parse_extent, quoted
from layoutopt.ir.types import Array, DType, OpaqueType, TensorType
from layoutopt.onnx_io.messages import has_map
from layoutopt.onnx_io.schema import find_schema, is_tolerated
from layoutopt.onnx_io.vocabulary import FROM_IR, DimNames, attribute_to_ir
from layoutopt.ops.shape_functions import (
    Dims,
    Elements,
    Node,
    Operand,
    elements_of,
    results_of,
    shapes_of,
)
from layoutopt.record import Record

SHAPE_ERRORS = (onnx.shape_inference.InferenceError, ValueError, IndexError, RuntimeError)
"""The exceptions of onnx if the shapes of operands contradict each other."""

TYPE_ERROR = onnx.checker.ValidationError
"""The exception of onnx if an operand has a type that the operator does not take."""

_MAX_CONSTANT_BYTES = 1024  # of a constant whose elements onnx reads: shapes, axes, pads and sizes are smaller
_LABELS = {DType.FLOAT32: "float", DType.FLOAT64: "double"}  # of element types in schemas and messages
_WITH_INFERENCE = {"GreaterOrEqual": "Greater", "LessOrEqual": "Less"}
"""Operators without an inference function, and those of the same types that have one."""
_KINDS = "iufb"  # numpy's kinds of the element types of such a constant


class PartialType(Record):
    """A partially known type of a tensor: None for an unknown element type, rank or extent."""

    dtype: DType | None
    shape: tuple[Dim | None, ...] | None


InferredType: TypeAlias = PartialType | OpaqueType | None
"""The type of a result as far as inference of its op determines it, None if unknown; `merged_type` completes it."""


def as_inferred(type: TensorType | OpaqueType) -> InferredType:
    """A type in the form of an inferred one."""
    if isinstance(type, TensorType):
        return PartialType(type.dtype, type.shape)
    return None if type.text == UNKNOWN else type


def has_inference(node: Node) -> bool:
    """Whether onnx has an inference function for the operator."""
    schema = find_schema(node.op_type, node.domain, node.version)
    return schema is not None and bool(schema.has_type_and_shape_inference_function)


def infer_node(node: Node) -> list[InferredType]:
    """The types of the outputs, as onnx infers them.

    Raises:
        SHAPE_ERRORS: the shapes of the operands contradict each other.
        TYPE_ERROR: an operand has a type that the operator does not take.
    """
    schema = find_schema(node.op_type, node.domain, node.version)
    if schema is None:
        return [None] * len(node.outputs)
    shape, perm = node.shape(0), node.attributes.get("perm")
    if node.kind == "Transpose" and shape is not None and perm is not None and sorted(perm) != [*range(len(shape))]:
        raise ValueError(f"perm is {list(perm)}, but there are {len(shape)} axes")  # onnx does not check it
    inputs = [f"i{index}" if operand is not None else "" for index, operand in enumerate(node.operands)]
    outputs = [f"o{index}" if is_there else "" for index, is_there in enumerate(node.outputs)]
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, input=inputs, output=outputs)
    for name, value in node.attributes.items():
        if name in schema.attributes:
            ir.serde.serialize_attribute_into(proto.attribute.add(), attribute_to_ir(name, value, schema))
    given = {name: operand for name, operand in zip(inputs, node.operands, strict=True) if operand is not None}
    data = tuple((name, _tensor(each.constant)) for name, each in given.items() if each.constant is not None)
    types = tuple((name, type_proto(each.type).SerializeToString()) for name, each in given.items())
    found = _outputs_of_node(node.op_type, node.domain, node.version, proto.SerializeToString(), types, data)
    return [found.get(name) for name in outputs]


@lru_cache(maxsize=1 << 14)
def _outputs_of_node(
    op_type: str,
    domain: str,
    version: int,
    message: bytes,
    types: tuple[tuple[str, bytes], ...],
    data: tuple[tuple[str, bytes], ...],
) -> Mapping[str, InferredType]:
    """The types of the outputs of a node by name; messages are bytes, so that a node on the same operands is inferred once."""
    found = onnx.shape_inference.infer_node_outputs(
        find_schema(op_type, domain, version),
        onnx.NodeProto.FromString(message),
        {name: onnx.TypeProto.FromString(each) for name, each in types},
        {name: onnx.TensorProto.FromString(each) for name, each in data},
        None,
        [onnx.helper.make_opsetid(domain, version)],
    )
    return {name: _read(type) for name, type in found.items()}


def small_array(array: Array) -> Array | None:
    """The elements of a constant, if they are numbers and small enough for onnx's inference to read."""
    return array if array.dtype.kind in _KINDS and array.nbytes <= _MAX_CONSTANT_BYTES else None


def _tensor(array: Array) -> bytes:
    message: bytes = onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape)).SerializeToString()
    return message


def type_proto(type: TensorType | OpaqueType) -> onnx.TypeProto:
    """The message of a type, shared with other callers; empty if the type is unknown."""
    return _tensor_type(type) if isinstance(type, TensorType) else _opaque_type(type)


@lru_cache(maxsize=1 << 12)
def _tensor_type(type: TensorType) -> onnx.TypeProto:
    dims = None if type.shape is None else [dim if isinstance(dim, int) else str(dim) for dim in type.shape]
    return onnx.helper.make_tensor_type_proto(type.dtype.number, dims)


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
        return PartialType(dtype, None if shape is None else tuple(map(_read_dim, shape)))
    if kind is None:
        return None
    if has_map(proto):
        return OpaqueType("map", proto)
    type = ir.serde.deserialize_type_proto_for_type(proto)
    return OpaqueType(" ".join(str(type).split()), (type, ir.serde.deserialize_type_proto_for_shape(proto)))


def _read_dim(dim: Any) -> Dim | None:
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


ValueType: TypeAlias = TensorType | OpaqueType
"""The type of a value, where every unknown extent has a name; an `InferredType` may lack the element type or extents."""

UNTYPED = OpaqueType(UNKNOWN)
"""The type of a value whose type is unknown."""

HINT = "export the model again"

_TOO_LARGE = 1 << 63  # an extent that no file can contain, and no kernel computes


def without_names(type: ValueType, names: DimNames) -> ValueType:
    """A declared type with fresh names for the named dimensions of its shape."""
    if not isinstance(type, TensorType) or type.shape is None:
        return type
    return TensorType(type.dtype, tuple(_merged_dim(None, dim, names, frozenset()) for dim in type.shape))


def without_shape(type: ValueType) -> ValueType:
    """The type of a tensor of unknown rank; other types are returned unchanged."""
    return TensorType(type.dtype, None) if isinstance(type, TensorType) else type


def merged_type(found: InferredType, declared: ValueType, names: DimNames, known: Set[str], where: str) -> ValueType:
    """The type of a value: the inferred one, with the numbers of the declared shape where inference finds no extent.

    Args:
        found: the inferred type.
        declared: the declared type, whose shape is ignored if it contradicts the inferred one. Its names of dimensions are
            ignored, too: exporters use names of inputs for outputs.
        names: generates names of unknown dimensions.
        known: the names of the inputs' dimensions.
        where: the op that computes the value, for messages.

    Raises:
        ModelError: the element types contradict each other.
    """
    if found is None:
        return declared
    if isinstance(found, OpaqueType) or (isinstance(declared, OpaqueType) and declared != UNTYPED):
        if isinstance(found, OpaqueType) and isinstance(declared, OpaqueType):
            return found
        what = found if isinstance(found, OpaqueType) else "a tensor"
        raise ModelError(f"is declared as {declared}, but is {what}", where=where, hint=HINT)
    given = declared if isinstance(declared, TensorType) else None
    dtype = found.dtype or (given.dtype if given is not None else None)
    if dtype is None:
        return declared
    if given is not None and given.dtype is not dtype:
        types = f"{_LABELS.get(dtype, dtype)} vs {_LABELS.get(given.dtype, given.dtype)}"
        raise ModelError(f"inferred elem type differs from existing elem type: {types}", where=where, hint=HINT)
    shape = given.shape if given is not None else None
    if found.shape is None:
        return without_names(TensorType(dtype, shape), names)
    hints = None if contradicts(shape, found.shape, known) else shape
    pairs = zip(found.shape, hints or (None,) * len(found.shape), strict=True)
    return TensorType(dtype, tuple(_merged_dim(new, dim, names, known) for new, dim in pairs))


def _merged_dim(found: Dim | None, declared: Dim | None, names: DimNames, known: Set[str]) -> Dim:
    for dim in (found, declared if is_open(found, known) else None):
        if isinstance(dim, int) and 0 <= dim < _TOO_LARGE:
            return dim
    if isinstance(found, Extent):
        return found
    return declared if isinstance(declared, Extent) and is_unknown(declared) else names.fresh()


def is_open(dim: Dim | None, known: Set[str]) -> bool:
    """Whether inference has found no extent for a dimension, or computes it from such dimensions.

    The extents of inputs, with the names `known`, are found.
    """
    return dim is None or (isinstance(dim, Extent) and any(map(is_unknown, dim.names - known)))


def contradicts(declared: Shape | None, found: Sequence[Dim | None] | None, known: Set[str]) -> bool:
    """Whether a declared shape has a number where inference finds another number or an expression of dimensions.

    Args:
        declared: the declared shape.
        found: the inferred shape.
        known: the names of the inputs' dimensions, which may have any size.
    """
    if declared is None or found is None:
        return False
    if len(declared) != len(found):
        return True
    pairs = zip(declared, found, strict=True)
    return any(isinstance(a, int) and a != b and not is_open(b, known) for a, b in pairs)


T = TypeVar("T")


def infer_results(node: Node) -> tuple[list[InferredType], Exception | None]:
    """The types of the outputs of a node, and the exception of onnx if the shapes of its operands contradict each other.

    Runtimes do not tolerate such a contradiction. The types are then those that follow from the element types.

    Raises:
        TYPE_ERROR: as for `infer_node`.
    """
    fault: Exception | None = None
    node = replace(node, op_type=_WITH_INFERENCE.get(node.kind, node.op_type))
    if not has_inference(node):
        found = [None if each is None else as_inferred(each) for each in results_of(node)]
        return found if node.domain else _with_shapes(node, found), None
    try:
        found = infer_node(node)
    except SHAPE_ERRORS as error:
        if any(each is not None and not type_proto(each.type).WhichOneof("value") for each in node.operands):
            # the result of an unknown operator, of which some functions need the type
            return [None] * len(node.outputs), None
        fault = None if is_tolerated(str(error)) else error
        found = _without_shapes(node)
    return found if node.domain else _with_shapes(node, found), fault


def _with_shapes(node: Node, found: list[InferredType]) -> list[InferredType]:
    """The types of the outputs with the extents that the shape function adds."""
    return [_with_extents(one, other) for one, other in zip(found, _results_or_none(shapes_of, node), strict=True)]


def _without_shapes(node: Node) -> list[InferredType]:
    """The types of the outputs, inferred from the element types of the operands alone."""
    operands = (None if each is None else each.type for each in node.operands)
    bare = [Operand(TensorType(type.dtype, None)) if isinstance(type, TensorType) else None for type in operands]
    try:
        return infer_node(replace(node, operands=bare))
    except SHAPE_ERRORS:
        return [None] * len(node.outputs)


def infer_elements(node: Node) -> list[Elements | None]:
    """The elements of the outputs of a node."""
    return _results_or_none(elements_of, node)


def _results_or_none(function: Callable[[Node], list[T | None]], node: Node) -> list[T | None]:
    """The results of a shape function; None for each output if the operands contradict each other."""
    try:
        return function(node)
    except ValueError:
        return [None] * len(node.outputs)


def _with_extents(by_onnx: InferredType, by_shape_function: Dims | None) -> InferredType:
    """The type by onnx with the extents of the shape function, except for extents that onnx inferred as numbers."""
    if isinstance(by_onnx, OpaqueType) or by_shape_function is None:
        return by_onnx
    shape = by_onnx.shape if by_onnx is not None else None
    if shape is None:
        shape = (None,) * len(by_shape_function)
    if len(shape) != len(by_shape_function):
        return by_onnx
    return PartialType(
        by_onnx.dtype if by_onnx is not None else None, tuple(map(_chosen_dim, shape, by_shape_function))
    )


def _chosen_dim(by_onnx: Dim | None, by_shape_function: Extent | None) -> Dim | None:
    return by_onnx if isinstance(by_onnx, int) or by_shape_function is None else by_shape_function.dim
