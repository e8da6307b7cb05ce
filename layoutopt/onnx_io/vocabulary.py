"""Element types, dimensions, attributes, values and constants: from onnx_ir to the graph's vocabulary, and back.

An unknown dimension gets a unique name, "?1", "?2"..., because the graph compares dimensions by name and two unknown
dimensions may differ. Emitted models contain names of the original model only.
"""

import re
from collections.abc import Callable, Collection
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir

from layoutopt.errors import InvariantError
from layoutopt.formats import UNKNOWN, Dim, Extent, Shape, is_unknown, quoted, unquoted
from layoutopt.ir.types import Attribute, Data, DType, Opaque, OpaqueType, ReferenceAttribute, TensorType, Value

FROM_IR = {number: dtype for number in ir.DataType for dtype in DType if number == dtype.number}
TO_IR = {dtype: number for number, dtype in FROM_IR.items()}

_GENERATED = re.compile(r"unk__\d+")  # a name that onnx's shape inference generates

_PLAIN = {"INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS"}
_KINDS = {
    "TENSOR": "tensor",
    "TENSORS": "tensors",
    "TYPE_PROTO": "type",
    "TYPE_PROTOS": "types",
    "STRING": "bytes",  # a string that is not UTF-8
}
_PYTHON_TYPES = {int: "INT", float: "FLOAT", str: "STRING"}
_ATTRIBUTE_TYPES = {kind: ir.AttributeType[name] for name, kind in _KINDS.items()}


class DimNames:
    """The names of dimensions: those of the model, and "?1", "?2"... for unknown ones."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        """Generate names from "?1" on, except those in `taken`."""
        self._names = (name for number in count(1) if (name := f"{UNKNOWN}{number}") not in taken)
        self._taken = set(taken)
        self._generated: dict[str, Extent] = {}

    def fresh(self) -> Extent:
        """A dimension with an unused name."""
        return Extent.of_atom(next(self._names))

    def dim(self, dim: int | ir.SymbolicDim) -> Dim:
        """The dimension for one of onnx_ir; equal generated names become one dimension, a negative number an unknown one."""
        if isinstance(dim, int):
            return dim if dim >= 0 else self.fresh()
        name = dim.value
        if not name or name.startswith(UNKNOWN):
            return self.fresh()
        if _GENERATED.fullmatch(name) and name not in self._taken:
            return self._generated.setdefault(name, self.fresh())
        return Extent.of_atom(quoted(name))

    def type(self, type_: object, shape: Any) -> TensorType | OpaqueType:
        """The graph's type for a type and shape of onnx_ir."""
        if isinstance(type_, ir.TensorType) and (dtype := FROM_IR.get(type_.dtype)) is not None:
            return TensorType(dtype, None if shape is None else tuple(self.dim(dim) for dim in shape))
        return OpaqueType(UNKNOWN if type_ is None else " ".join(str(type_).split()), (type_, shape))

    def input_type(self, name: str, type_: object, shape: Any) -> TensorType | OpaqueType:
        """The type of an input of the model: callers name a dimension without a name `input[axis]`."""
        self._taken.update(dim.value for dim in shape or () if isinstance(dim, ir.SymbolicDim) and dim.value)
        found = self.type(type_, shape)
        if not isinstance(found, TensorType) or found.shape is None:
            return found
        axes = enumerate(found.shape)
        dims = (quoted(f"{UNKNOWN}{name}[{axis}]") if is_unknown(dim) else dim for axis, dim in axes)
        return TensorType(found.dtype, dims)


def attribute_from_ir(attr: ir.Attr) -> Attribute:
    """A python value for numbers, strings and lists of them; `Opaque` for everything else."""
    if attr.is_ref():
        return Opaque("ref", ReferenceAttribute(attr.ref_attr_name or "", attr.type.name))
    value: Any = attr.value
    if attr.type.name not in _PLAIN or isinstance(value, bytes):
        return Opaque(_KINDS.get(attr.type.name, attr.type.name.lower()), value)
    plain: Attribute = tuple(value) if attr.type.name.endswith("S") else value
    return plain


def attribute_to_ir(name: str, value: Attribute, schema: Any) -> ir.Attr:
    """An attribute of onnx_ir; the op's schema determines the type of an empty list or a whole number."""
    if isinstance(value, Opaque):
        if isinstance(value.payload, ReferenceAttribute):
            return ir.RefAttr(name, value.payload.name, ir.AttributeType[value.payload.kind])
        return ir.Attr(name, _ATTRIBUTE_TYPES[value.kind], value.payload)
    if schema is not None and name in schema.attributes:
        declared = ir.AttributeType[schema.attributes[name].type.name]
        if declared.name in _PLAIN and declared.name.endswith("S") == isinstance(value, tuple):
            return ir.Attr(name, declared, value)
    types = {*map(type, value)} if isinstance(value, tuple) else {type(value)}
    kind = _PYTHON_TYPES.get(types.pop()) if len(types) == 1 else None
    if kind is None:
        return ir.convenience.convert_attribute(name, value)
    return ir.Attr(name, ir.AttributeType[f"{kind}S" if isinstance(value, tuple) else kind], value)


def is_same_attribute(attr: ir.Attr, value: Attribute) -> bool:
    """Whether an attribute has the value that it was lifted with."""
    lifted = attribute_from_ir(attr)
    if isinstance(lifted, Opaque) and isinstance(value, Opaque):
        return lifted.payload is value.payload or (
            isinstance(lifted.payload, ReferenceAttribute) and lifted.payload == value.payload
        )
    return type(lifted) is type(value) and lifted == value


def subgraphs(node: ir.Node) -> dict[str, ir.Graph]:
    """The graphs in the attributes of a node, without those nested in them."""
    graphs = {name: attr for name, attr in node.attributes.items() if attr.type == ir.AttributeType.GRAPH}
    return {name: attr.as_graph() for name, attr in graphs.items() if not attr.is_ref()}


def graphs_of(model: ir.Model) -> list[ir.Graph]:
    """The main graph and the graphs in attributes of its nodes, at every depth."""
    found = [model.graph]
    for graph in found:  # extended in the loop
        found += [inner for node in graph for inner in subgraphs(node).values()]
    return found


def values_of(model: ir.Model) -> list[ir.Value]:
    """The inputs, initializers and computed values of the graphs of a model, those of the main graph first."""
    found: dict[ir.Value, None] = {}
    for graph in graphs_of(model):
        computed = (value for node in graph for value in node.outputs)
        found |= dict.fromkeys([*graph.inputs, *graph.initializers.values(), *computed])
    return list(found)


TENSORS = (
    ir.ExternalTensor,
    ir.LazyTensor,
    ir.PackedTensor,
    ir.StringTensor,
    ir.Tensor,
    ir.serde.TensorProtoTensor,
)
_ANNOTATION = "quant_parameter_tensor_names"  # the key of quantisation annotations in the meta of an onnx_ir value
_MISDECLARED = "layoutopt.misdeclared"  # the key in the meta of an onnx_ir value whose declared shape is wrong


def source(value: Value) -> ir.Value | None:
    """The onnx_ir value from which a value was lifted; None for values that layoutopt created."""
    return value.origin if isinstance(value.origin, ir.Value) else None


def drop_declared_shape(value: Value) -> None:
    """Mark the declared shape of a value as wrong: emitted models declare the inferred shape, even with fewer known extents."""
    origin = source(value)
    if origin is not None:
        origin.meta[_MISDECLARED] = True


def declare(value: Value, name: str) -> ir.Value:
    """A new onnx_ir value with a name, the type and shape, and the doc string and metadata of the original.

    A constant gets no type here, because its tensor has a type.
    """
    result = ir.Value(name=name)
    origin = source(value)
    if origin is not None:
        result.doc_string = origin.doc_string
        result.metadata_props.update(origin.metadata_props)
        if _ANNOTATION in origin.meta:
            result.meta[_ANNOTATION] = origin.meta[_ANNOTATION]
    return result if value.data is not None else set_type(result, value)


def set_type(result: ir.Value, value: Value, *, is_output: bool = False) -> ir.Value:
    """Set the type and shape of an onnx_ir value, and return it.

    Args:
        result: the onnx_ir value.
        value: the value of the graph.
        is_output: whether the value is an output of its graph. Then its symbolic dimensions stay as declared even if inference
            finds a number, and so do extents and ranks that inference does not find.
    """
    origin = source(value)
    is_misdeclared = origin is not None and _MISDECLARED in origin.meta
    declared = None if origin is None or is_misdeclared else origin.shape
    if isinstance(value.type, OpaqueType):
        inferred = value.type.origin if isinstance(value.type.origin, tuple) else None
        if origin is not None and origin.type is not None and not (is_misdeclared and inferred):
            result.type, result.shape = origin.type, origin.shape
        elif inferred is not None:
            result.type, result.shape = inferred[0], _element_shape(inferred[1])
        return result
    result.type = ir.TensorType(TO_IR[value.type.dtype])
    if origin is not None and origin.type is not None and origin.type.denotation:
        result.type.denotation = origin.type.denotation
    if value.shape is not None:
        result.shape = _shape(value.shape, declared, is_output=is_output)
    elif is_output:
        result.shape = declared
    return result


def _element_shape(shape: ir.Shape | None) -> ir.Shape | None:
    """The inferred shape of the elements of a sequence; dimensions without a name in the model are unknown."""
    return None if shape is None else ir.Shape([_declarable(_name(dim)) for dim in shape])


def _declarable(dim: Dim | str | None) -> int | str | None:
    """A dimension as an ONNX model declares it; None for an unknown one."""
    if dim is None or isinstance(dim, int):
        return dim
    return None if is_unknown(dim) else unquoted(dim)


def _shape(dims: Shape, declared: ir.Shape | None, *, is_output: bool) -> ir.Shape:
    """An onnx_ir shape. Dimensions without a name in the model are unknown; declared names of outputs stay."""
    plain = [_declarable(dim) for dim in dims]
    if declared is None or len(declared) != len(dims):
        return ir.Shape(plain)
    pairs = [(known, _name(old)) for known, old in zip(plain, declared, strict=True)]
    if not all(known == old or not isinstance(old, int) or (known is None and is_output) for known, old in pairs):
        return ir.Shape(plain)  # another shape than the declared one, so the denotations do not apply
    if is_output:
        plain = [known if old is None and isinstance(known, str) else old for known, old in pairs]
    return ir.Shape(plain, [declared.get_denotation(axis) for axis in range(len(dims))])


def _name(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value


def tensor_of(value: Value, name: str) -> ir.TensorProtocol:
    """The named tensor of a constant; computed elements are in memory only while they are written."""
    data = value.data
    if isinstance(data, TENSORS) and data.name == name:
        return data
    if data is None or not isinstance(value.type, TensorType) or value.static_shape is None:
        raise InvariantError("a constant needs elements and a static shape", where=value.name)
    shape = ir.Shape(value.static_shape)
    if value.dtype is DType.STRING:
        return ir.StringTensor([_bytes(item) for item in data.numpy().flat], shape=shape, name=name)
    load = partial(_load, data, value.type, name)
    return StreamedTensor(data, load, TO_IR[value.type.dtype], shape, name=name)


def external_tensor(
    tensor: ir.TensorProtocol, location: str, offset: int | None = None, *, name: str = ""
) -> ir.ExternalTensor:
    """A tensor like another one whose elements are at an offset in a file."""
    return ir.ExternalTensor(
        location,
        offset,
        tensor.nbytes,
        tensor.dtype,
        shape=ir.Shape(tensor.shape.numpy()),
        name=name or tensor.name or "",
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
    )


class StreamedTensor(ir.LazyTensor):
    """A lazy tensor that is written to a file in chunks, so that a packed weight is never completely in memory.

    Attributes:
        data: the elements.
    """

    def __init__(
        self, data: Data, load: Callable[[], ir.TensorProtocol], dtype: ir.DataType, shape: ir.Shape, name: str
    ) -> None:
        super().__init__(load, dtype, shape, name=name)
        self.data = data


def _load(data: Data, type_: TensorType, name: str) -> ir.TensorProtocol:
    """The elements as an onnx_ir tensor. A tensor of onnx_ir is returned itself, so that a mapped file stays mapped."""
    if isinstance(data, TENSORS):
        return data
    array = data.numpy()
    if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
        raise InvariantError(f"declared {type_}, but its data is {array.dtype}{list(array.shape)}", where=name)
    return ir.Tensor(np.ascontiguousarray(array).reshape(array.shape))


def _bytes(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()
