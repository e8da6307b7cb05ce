"""Element types, dimensions and attributes: from onnx_ir to the graph's vocabulary, and back.

An unknown dimension becomes a name of its own, "?1", "?2"..., because the graph compares dimensions by name
and two unknown ones are not known to be equal. On the way back every name with that mark is an unknown
dimension again.
"""

import re
from collections.abc import Collection, Iterator
from itertools import count
from typing import Any

import onnx_ir as ir

from layoutopt.ir.graph import Reference
from layoutopt.ir.types import Attribute, Dim, DType, Opaque, OpaqueType, TensorType

UNKNOWN = "?"

_RENAMED = {"FLOAT": DType.FLOAT32, "DOUBLE": DType.FLOAT64}
_DTYPES = {dtype.name: dtype for dtype in DType} | _RENAMED
TO_IR = {dtype: ir.DataType[name] for name, dtype in _DTYPES.items() if name in ir.DataType.__members__}
FROM_IR = {ir_dtype: dtype for dtype, ir_dtype in TO_IR.items()}

_GENERATED = re.compile(r"unk__\d+")  # what onnx's shape inference calls a dimension that it has no name for

_PLAIN = {"INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS"}
_KINDS = {
    "TENSOR": "tensor",
    "TENSORS": "tensors",
    "GRAPH": "graph",
    "GRAPHS": "graphs",
    "TYPE_PROTO": "type",
    "TYPE_PROTOS": "types",
    "STRING": "bytes",  # a string that is not UTF-8
}
_ATTRIBUTE_TYPES = {kind: ir.AttributeType[name] for name, kind in _KINDS.items()}


class DimNames:
    """Names for dimensions: those of the model as they are, "?1", "?2"... for the unknown ones."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        """Start counting at 1, past the names that are taken."""
        self._names = (name for number in count(1) if (name := f"{UNKNOWN}{number}") not in taken)
        self._generated: dict[str, str] = {}

    def fresh(self) -> str:
        """A name that no other dimension has."""
        return next(self._names)

    def dim(self, dim: int | ir.SymbolicDim) -> Dim:
        """A dimension of onnx_ir; generated names that are equal stay equal."""
        if isinstance(dim, int):
            return dim
        name = dim.value
        if not name or name.startswith(UNKNOWN):
            return self.fresh()
        if _GENERATED.fullmatch(name):
            return self._generated.setdefault(name, self.fresh())
        return str(name)

    def type(self, type_: object, shape: Any) -> TensorType | OpaqueType:
        """The graph's type for a type and shape of onnx_ir."""
        if isinstance(type_, ir.TensorType) and (dtype := FROM_IR.get(type_.dtype)) is not None:
            return TensorType(dtype, None if shape is None else tuple(self.dim(dim) for dim in shape))
        return OpaqueType(UNKNOWN if type_ is None else " ".join(str(type_).split()))


def attribute_from_ir(attr: ir.Attr) -> Attribute:
    """A python value for numbers, strings and lists of them; `Opaque` for everything else."""
    if attr.is_ref():
        return Opaque("ref", Reference(attr.ref_attr_name or "", attr.type.name))
    value: Any = attr.value
    if attr.type.name not in _PLAIN or isinstance(value, bytes):
        return Opaque(_KINDS.get(attr.type.name, attr.type.name.lower()), value)
    plain: Attribute = tuple(value) if attr.type.name.endswith("S") else value
    return plain


def attribute_to_ir(name: str, value: Attribute, schema: Any) -> ir.Attr:
    """An attribute of onnx_ir; the op's schema tells what an empty list or a whole number is meant to be."""
    if isinstance(value, Opaque):
        if isinstance(value.payload, Reference):
            return ir.RefAttr(name, value.payload.name, ir.AttributeType[value.payload.kind])
        return ir.Attr(name, _ATTRIBUTE_TYPES[value.kind], value.payload)
    if schema is not None and name in schema.attributes:
        declared = ir.AttributeType[schema.attributes[name].type.name]
        if declared.name in _PLAIN and declared.name.endswith("S") == isinstance(value, tuple):
            return ir.Attr(name, declared, value)
    return ir.Attr(name, _attribute_type(value), value)


def _attribute_type(value: int | float | str | tuple[Any, ...]) -> ir.AttributeType:
    plural = "S" if isinstance(value, tuple) else ""
    sample = (value[0] if value else 0) if isinstance(value, tuple) else value
    name = "STRING" if isinstance(sample, str) else "FLOAT" if isinstance(sample, float) else "INT"
    return ir.AttributeType[name + plural]


def same_attribute(attr: ir.Attr, value: Attribute) -> bool:
    """Whether an attribute still has the value that it was lifted with."""
    lifted = attribute_from_ir(attr)
    if isinstance(lifted, Opaque) and isinstance(value, Opaque):
        return lifted.payload is value.payload or (
            isinstance(lifted.payload, Reference) and lifted.payload == value.payload
        )
    return type(lifted) is type(value) and lifted == value


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs in the attributes of a node, those one level down."""
    for attr in node.attributes.values():
        if attr.is_ref():
            continue
        if attr.type == ir.AttributeType.GRAPH:
            yield attr.as_graph()
        elif attr.type == ir.AttributeType.GRAPHS:
            yield from attr.as_graphs()
