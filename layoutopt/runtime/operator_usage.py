"""The operators of a model with the element types of their inputs, and the support of the installed onnxruntime for each.

Nodes are visited in execution order: those of a subgraph or of a function's body before the node that has or calls it. The
input types of a node are those that onnxruntime inferred for the previous nodes; the declared types of the file are used only
for the outputs of nodes that onnxruntime cannot run.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from layoutopt.onnx_io.messages import display_name, graphs, nodes
from layoutopt.onnx_io.schema import opsets_of
from layoutopt.onnx_io.structure import captures_of, constant_tensor
from layoutopt.onnx_io.vocabulary import subgraphs
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN, Support, blocked_channels, node_support
from layoutopt.runtime.type_names import UNKNOWN_TYPE, short_name, type_name


@dataclass(frozen=True, slots=True)
class Usage:
    """The nodes with one operator and the same element types.

    Attributes:
        domain: the domain of the operator.
        op_type: the operator.
        opset: the version of the domain that the model imports; None if it imports none.
        inputs: the element types of the inputs, empty for omitted inputs.
        nodes: the number of nodes.
        first: the name of the first node.
        support: the support of onnxruntime for them.
    """

    domain: str
    op_type: str
    opset: int | None
    inputs: tuple[str, ...]
    nodes: int
    first: str
    support: Support


def usages(model: ir.Model) -> list[Usage]:
    """The operators of a model with their element types, in the order of the first node of each, without Constant.

    Every node of a subgraph counts once, every node of a function once per call.
    """
    traversal = _Traversal(model)
    pending = [_Visit(node, traversal.root) for node in reversed(model.graph)]
    while pending:
        visit = pending.pop()
        if not visit.is_entered:
            visit.is_entered = True
            inside = traversal.enter(visit)
            if inside:
                pending += [visit, *reversed(inside)]
                continue
        traversal.leave(visit)
    return traversal.usages()


@dataclass(slots=True)
class _Scope:
    """The main graph or one call of a function, with their subgraphs.

    Attributes:
        opsets: the version of each domain.
        types: the type names of the values, by name.
        attributes: the attributes of the call.
        calls: the functions on the call stack.
    """

    opsets: dict[str, int]
    types: dict[str, str] = field(default_factory=dict)
    attributes: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    calls: frozenset[ir.OperatorIdentifier] = frozenset()


@dataclass(slots=True)
class _Visit:
    """A node on the stack of the traversal.

    Attributes:
        node: the node.
        scope: the scope of the node.
        is_entered: whether its subgraphs or function body have been visited.
        body: the scope of the function that it calls.
        problems: the number of nodes that onnxruntime could not run when this one was is_entered.
    """

    node: ir.Node
    scope: _Scope
    is_entered: bool = False
    body: _Scope | None = None
    problems: int = 0


class _Traversal:
    """The state of a traversal of a model."""

    def __init__(self, model: ir.Model) -> None:
        """Begin with the types of the inputs and initializers of the main graph."""
        self.root = _Scope(opsets_of(model.opset_imports))
        self._functions = model.functions
        self._problems = 0
        self._supports: dict[tuple[object, ...], Support] = {}
        self._count: Counter[tuple[object, ...]] = Counter()
        self._first: dict[tuple[object, ...], Usage] = {}
        _declare(model.graph, self.root)

    def enter(self, visit: _Visit) -> list[_Visit]:
        """Record the types of the inputs of a node's subgraphs or function body, and return the nodes in these."""
        node, scope = visit.node, visit.scope
        visit.problems = self._problems
        has_schema = node.domain == BLOCKED_DOMAIN and blocked_channels() is not None  # before functions of that name
        function = None if has_schema else self._functions.get(node.op_identifier())
        if function is not None and function.identifier() not in scope.calls:
            visit.body = _call(function, node, scope)
            return [_Visit(each, visit.body) for each in function]
        inside = []
        for graph in subgraphs(node):
            _declare(graph, scope)
            inside += [_Visit(each, scope) for each in graph]
        return inside

    def leave(self, visit: _Visit) -> None:
        """Record the support for a node and the types of its outputs."""
        node, scope = visit.node, visit.scope
        present = [value for value in node.outputs if value.name]
        if visit.body is not None:
            results = self._functions[node.op_identifier()].outputs
            for value, result in zip(node.outputs, results, strict=False):
                scope.types[value.name or ""] = visit.body.types.get(result.name or "", UNKNOWN_TYPE)
            return
        tensor = constant_tensor(node)
        if tensor is not None:
            scope.types[present[0].name or ""] = type_name(ir.TensorType(tensor.dtype))
            return
        support = self._support(node, scope)
        if support.status == "missing" and self._problems > visit.problems:
            support = Support("unknown", "an op in its body cannot be run")
        self._problems += support.status in ("missing", "unknown")
        declared = [type_name(value.type) for value in present]
        for value, type_ in zip(present, support.outputs or declared, strict=True):
            scope.types[value.name or ""] = type_
        self._note(node, scope, support)

    def _support(self, node: ir.Node, scope: _Scope) -> Support:
        """The support for a node, queried once for equal nodes."""
        read = dict.fromkeys(value.name for value in node.inputs if value is not None and value.name)
        types = {name: scope.types.get(name, UNKNOWN_TYPE) for name in (*read, *captures_of(node))}
        unknown = [name for name, type_ in types.items() if type_ == UNKNOWN_TYPE]
        if unknown:
            return Support("unknown", f"the type of {unknown[0]} is not known")
        proto = ir.serde.serialize_node(node)
        _resolve(proto, scope.attributes)
        if next(subgraphs(node), None) is None:
            types = _anonymize(proto, types)
        else:
            types |= {name: scope.types[name] for name in _remove_external(proto)}
        key = (proto.SerializeToString(deterministic=True), *types.items(), *scope.opsets.items())
        if key not in self._supports:
            self._supports[key] = node_support(proto, types, scope.opsets)
        return self._supports[key]

    def _note(self, node: ir.Node, scope: _Scope, support: Support) -> None:
        names = (value.name if value is not None else "" for value in node.inputs)
        inputs = tuple(short_name(scope.types.get(name, UNKNOWN_TYPE)) if name else "" for name in names)
        opset = scope.opsets.get(node.domain)
        key = (node.domain, node.op_type, opset, inputs, support.status, support.detail)
        self._count[key] += 1
        self._first.setdefault(key, Usage(node.domain, node.op_type, opset, inputs, 1, display_name(node), support))

    def usages(self) -> list[Usage]:
        """The recorded operators."""
        return [
            Usage(each.domain, each.op_type, each.opset, each.inputs, self._count[key], each.first, each.support)
            for key, each in self._first.items()
        ]


def _declare(graph: ir.Graph, scope: _Scope) -> None:
    """Record the types of the inputs and initializers of a graph."""
    for value in graph.inputs:
        scope.types[value.name or ""] = type_name(value.type)
    for name, value in graph.initializers.items():
        tensor = value.const_value
        scope.types[name] = type_name(ir.TensorType(tensor.dtype) if tensor is not None else value.type)


def _call(function: ir.Function, node: ir.Node, scope: _Scope) -> _Scope:
    """The scope of a function body for a call by a node."""
    proto = ir.serde.serialize_node(node)
    _resolve(proto, scope.attributes)
    defaults = [attr for attr in function.attributes.values() if attr.value is not None]
    attributes = {attr.name: ir.serde.serialize_attribute(attr) for attr in defaults}
    attributes |= {attr.name: attr for attr in proto.attribute}
    opsets = opsets_of(function.opset_imports)
    body = _Scope(opsets, attributes=attributes, calls=scope.calls | {function.identifier()})
    for value, parameter in zip(node.inputs, function.inputs, strict=False):
        name = value.name if value is not None else ""
        body.types[parameter.name or ""] = scope.types.get(name or "", UNKNOWN_TYPE)
    return body


def _resolve(proto: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace references to attributes of the enclosing function by the call's values, and drop those without a value."""
    holder = onnx.ModelProto()
    holder.graph.node.append(proto)
    if not any(attr.ref_attr_name for node in nodes(holder) for attr in node.attribute):
        return
    for node in nodes(holder):
        kept = [attr for attr in node.attribute if not attr.ref_attr_name or attr.ref_attr_name in given]
        for attr in kept:
            if attr.ref_attr_name:
                name = attr.name
                attr.CopyFrom(given[attr.ref_attr_name])
                attr.name = name
        _replace(node, kept)
    proto.CopyFrom(holder.graph.node[0])


def _replace(node: onnx.NodeProto, attributes: Iterable[onnx.AttributeProto]) -> None:
    copies = [onnx.AttributeProto.FromString(attr.SerializeToString()) for attr in attributes]
    del node.attribute[:]
    node.attribute.extend(copies)


def _remove_external(proto: onnx.NodeProto) -> list[str]:
    """Remove the initializers with external data from a node's subgraphs, and return their names."""
    holder = onnx.ModelProto()
    holder.graph.node.append(proto)
    taken = []
    for graph in graphs(holder):
        outside = [each for each in graph.initializer if each.data_location == onnx.TensorProto.EXTERNAL]
        taken += [each.name for each in outside]
        for each in outside:
            graph.initializer.remove(each)
    if taken:
        proto.CopyFrom(holder.graph.node[0])
    return taken


def _anonymize(proto: onnx.NodeProto, types: Mapping[str, str]) -> dict[str, str]:
    """Replace the names of a node and its operands by numbered ones, and return the types by the new names."""
    proto.name = proto.doc_string = ""
    del proto.metadata_props[:]
    found = {}
    for index, name in enumerate(proto.input):
        if name:
            proto.input[index] = f"x{index}"
            found[f"x{index}"] = types[name]
    for index, name in enumerate(proto.output):
        if name:
            proto.output[index] = f"y{index}"
    return found
