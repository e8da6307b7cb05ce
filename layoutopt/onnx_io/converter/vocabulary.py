"""Element types, dimensions and attributes: from onnx_ir to the graph's vocabulary, and back.

An unknown dimension gets a unique name, "?1", "?2"..., because the graph compares dimensions by name and two unknown
dimensions may differ. Emitted models contain names of the original model only.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any

import onnx_ir as ir

from layoutopt.formats import UNKNOWN, Dim, Extent, is_unknown, quoted
from layoutopt.ir.functions import ReferenceAttribute
from layoutopt.ir.types import Attribute, DType, Opaque, OpaqueType, TensorType

_RENAMED = {"FLOAT": DType.FLOAT32, "DOUBLE": DType.FLOAT64}
_DTYPES = {dtype.name: dtype for dtype in DType} | _RENAMED
TO_IR = {dtype: ir.DataType[name] for name, dtype in _DTYPES.items() if name in ir.DataType.__members__}
FROM_IR = {ir_dtype: dtype for dtype, ir_dtype in TO_IR.items()}

_GENERATED = re.compile(r"unk__\d+")  # a name that onnx's shape inference generates

_ITEM = re.compile(r"(.*)\[\d+\]")
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
    return ir.Attr(name, _attribute_type(value), value)


def _attribute_type(value: int | float | str | tuple[Any, ...]) -> ir.AttributeType:
    plural = "S" if isinstance(value, tuple) else ""
    sample = (value[0] if value else 0) if isinstance(value, tuple) else value
    name = "STRING" if isinstance(sample, str) else "FLOAT" if isinstance(sample, float) else "INT"
    return ir.AttributeType[name + plural]


def is_same_attribute(attr: ir.Attr, value: Attribute) -> bool:
    """Whether an attribute has the value that it was lifted with."""
    lifted = attribute_from_ir(attr)
    if isinstance(lifted, Opaque) and isinstance(value, Opaque):
        return lifted.payload is value.payload or (
            isinstance(lifted.payload, ReferenceAttribute) and lifted.payload == value.payload
        )
    return type(lifted) is type(value) and lifted == value


def has_graphs(attr: ir.Attr) -> bool:
    """Whether an attribute is a graph or a list of graphs."""
    if attr.is_ref() or attr.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return False
    return attr.type == ir.AttributeType.GRAPH or bool(attr.as_graphs())


def keyed_subgraphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """The graphs in the attributes of a node by attribute, `name[0]`, `name[1]`... for a list, without those nested in them."""
    for name, attr in node.attributes.items():
        if not has_graphs(attr):
            continue
        if attr.type == ir.AttributeType.GRAPH:
            yield name, attr.as_graph()
        else:
            yield from ((f"{name}[{number}]", graph) for number, graph in enumerate(attr.as_graphs()))


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs in the attributes of a node, without those nested in them."""
    return (graph for _, graph in keyed_subgraphs(node))


def graph_attributes(graphs: Mapping[str, ir.Graph]) -> dict[str, ir.Attr]:
    """The attributes with graphs, from graphs with the keys of `keyed_subgraphs`."""
    found: dict[str, ir.Attr] = {}
    lists: dict[str, list[ir.Graph]] = {}
    for key, graph in graphs.items():
        if item := _ITEM.fullmatch(key):
            lists.setdefault(item[1], []).append(graph)
        else:
            found[key] = ir.AttrGraph(key, graph)
    return found | {name: ir.AttrGraphs(name, graphs) for name, graphs in lists.items()}
