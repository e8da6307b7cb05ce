"""Lift: from a model of onnx_ir to the graph that the passes work on.

    initializer, Constant node -> Value with data     graph input, node output -> Value without
    node                       -> Op                  subgraph                 -> opaque attribute, captures

Structure comes first (names, producers, cycles), by the graph's own means, since the messages of others do
not name what is wrong. Then onnx's inference finds the types, and its checker has the last word (`standin`).
"""

import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Format, Op, OpaqueType, Storage, TensorType, Value
from layoutopt.onnx_io.constant import NodeData, constant_tensor
from layoutopt.onnx_io.emit import emit
from layoutopt.onnx_io.infer import check_structure, infer_types
from layoutopt.onnx_io.schema import check_ops, describe, opsets_of
from layoutopt.onnx_io.scope import Scope, scope_of
from layoutopt.onnx_io.standin import stand_in
from layoutopt.onnx_io.vocabulary import DimNames, attribute_from_ir

_HINT = "export the model again"


def lift(model: ir.Model) -> Graph:
    """Build the graph of a model and check that the model is valid.

    Raises:
        ModelError: two values of one name, an input that nothing computes, a cycle, an operator that does not
            exist, shapes or element types that contradict each other.
    """
    names = DimNames()
    graph = _Lifter(model, names).graph
    if cycle := graph.find_cycle():
        raise ModelError(
            f"the graph has a cycle: {_shorten(cycle)}",
            where=cycle[0],
            hint="a model cannot feed a value back to itself",
        )
    check_ops(model)
    proto = stand_in(emit(graph))
    check_structure(proto)
    _retype(graph, infer_types(proto, names))
    return graph


class _Lifter:
    """Builds one graph: all values first, so that ops may come in any order."""

    def __init__(self, model: ir.Model, names: DimNames) -> None:
        self._model = model
        self._source = model.graph
        self._names = names
        self.graph = Graph(model.graph.name or "", opsets_of(model.opset_imports), origin=model)
        self.graph.metadata = dict(model.metadata_props)
        self._inputs()
        self._initializers()
        for output in (output for node in self._source for output in node.outputs if output.name):
            self._add(output)
        for position, node in enumerate(self._source):
            if not self._constant(position, node):
                self._op(position, node)
        self.graph.outputs = [self._find(output.name or "", "the graph's outputs") for output in self._source.outputs]

    def _inputs(self) -> None:
        """Before IR version 4 every initializer is listed as an input, and is a constant all the same."""
        old = self._model.ir_version < 4
        for value in self._source.inputs:
            if not (old and value.name in self._source.initializers):
                self.graph.inputs.append(self._add(value))

    def _initializers(self) -> None:
        for name, value in self._source.initializers.items():
            tensor = value.const_value
            if tensor is None:
                raise ModelError("initializer without data", where=name, hint=_HINT)
            actual = self._names.type(ir.TensorType(tensor.dtype), tensor.shape)
            declared = self._names.type(value.type, value.shape)
            if not _compatible(declared, actual):
                raise ModelError(f"declared as {declared}, but its data is {actual}", where=name, hint=_HINT)
            if self.graph.find(name) is None:
                self.graph.add_value(Value(name, actual, data=tensor, origin=value))

    def _constant(self, position: int, node: ir.Node) -> bool:
        """Give the output of a Constant node its elements; whether it was one."""
        tensor = constant_tensor(node)
        if tensor is None:
            return False
        value = self.graph.value(node.outputs[0].name or "")
        value.type = self._names.type(ir.TensorType(tensor.dtype), tensor.shape)
        value.storage = _canonical(value.type)
        value.data, value.origin = NodeData(node, tensor, position), node
        return True

    def _op(self, position: int, node: ir.Node) -> None:
        scope = scope_of(node)
        self.graph.reserve(scope.names)
        where = describe(node)
        attributes = {name: attribute_from_ir(attr) for name, attr in node.attributes.items()}
        op = Op(
            node.op_type,
            tuple(None if value is None else self._find(value.name or "", where) for value in node.inputs),
            tuple(self.graph.find(value.name) if value.name else None for value in node.outputs),
            domain=node.domain,
            version=self.graph.opsets.get(node.domain, 1),
            name=node.name or "",
            attributes=attributes,
            captures=self._captures(scope, where),
            order=(position,),
            origin=node,
        )
        self.graph.add_op(op)

    def _captures(self, scope: Scope, where: str) -> tuple[Value, ...]:
        found = []
        for name, reader in scope.captures.items():
            inner = describe(reader) if reader is not None else f"an output of a subgraph of {where}"
            found.append(self._find(name, inner))
        return tuple(found)

    def _find(self, name: str, where: str) -> Value:
        value = self.graph.find(name)
        if value is None:
            raise ModelError(f"input {name!r} is not defined: nothing computes it", where=where, hint=_HINT)
        return value

    def _add(self, source: ir.Value) -> Value:
        name = source.name or ""
        if self.graph.find(name) is not None:
            raise ModelError("two values have this name", where=name, hint="give every value a name of its own")
        return self.graph.add_value(Value(name, self._names.type(source.type, source.shape), origin=source))


def infer_again(graph: Graph) -> None:
    """Find the types of values again, after more constants have become known.

    Raises:
        ModelError: shapes contradict each other.
    """
    names = DimNames({dim for value in graph.values for dim in value.shape or () if isinstance(dim, str)})
    _retype(graph, infer_types(stand_in(emit(graph)), names))


def _retype(graph: Graph, types: dict[str, TensorType | OpaqueType]) -> None:
    """Give every value that is computed the type that was inferred for it."""
    for value in graph.values:
        found = types.get(value.name)
        if isinstance(found, TensorType) and value.data is None and graph.producer(value) is not None:
            value.type = found
            value.storage = _canonical(found)


def _canonical(type_: TensorType | OpaqueType) -> Storage | None:
    shape = type_.shape if isinstance(type_, TensorType) else None
    return None if shape is None else Storage(Format.canonical(len(shape)))


def _compatible(declared: TensorType | OpaqueType, actual: TensorType | OpaqueType) -> bool:
    """Whether a declaration may describe a tensor: names of dimensions stand for any number."""
    if not isinstance(declared, TensorType) or not isinstance(actual, TensorType):
        return True
    if declared.dtype is not actual.dtype:
        return False
    if declared.shape is None or actual.shape is None:
        return True
    pairs = zip(declared.shape, actual.shape, strict=False)
    return len(declared.shape) == len(actual.shape) and all(isinstance(a, str) or a == b for a, b in pairs)


def _shorten(names: list[str]) -> str:
    shown = names if len(names) <= 8 else [*names[:4], "...", *names[-3:]]
    return " -> ".join(shown)
