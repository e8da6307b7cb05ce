"""Which operators a model uses on which element types, and what the installed onnxruntime can make of each.

Nodes are visited in the order in which they run: those of a subgraph or of a function's body before the node that has or
calls it. What types a node gets is what onnxruntime has inferred for the nodes before; nothing depends on what the
file declares, but where onnxruntime cannot run a node.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from layoutopt.onnx_io.converter.captures import scope_of
from layoutopt.onnx_io.converter.constant import constant_tensor
from layoutopt.onnx_io.converter.vocabulary import subgraphs
from layoutopt.onnx_io.reader.lossless import graphs, nodes
from layoutopt.onnx_io.schema import describe, opsets_of
from layoutopt.runtime.kernels import Support, node_support
from layoutopt.runtime.type_names import UNKNOWN_TYPE, short_name, type_name


@dataclass(frozen=True, slots=True)
class Usage:
    """Nodes of one kind.

    Attributes:
        domain: of the operator.
        op_type: the operator.
        opset: the version of the domain that the model imports; None if it imports none.
        inputs: the element types, nothing where an input is left out.
        nodes: how many.
        first: the name of the first.
        support: what onnxruntime can make of them.
    """

    domain: str
    op_type: str
    opset: int | None
    inputs: tuple[str, ...]
    nodes: int
    first: str
    support: Support


def usages(model: ir.Model) -> list[Usage]:
    """All kinds of nodes in a model, in the order of their first; Constants are not counted.

    Every node of a subgraph counts once, every node of a function once per call.
    """
    survey = _Survey(model)
    pending = [_Step(node, survey.root) for node in reversed(model.graph)]
    while pending:
        step = pending.pop()
        if not step.entered:
            step.entered = True
            inside = survey.enter(step)
            if inside:
                pending += [step, *reversed(inside)]
                continue
        survey.leave(step)
    return survey.found()


@dataclass(slots=True)
class _Scope:
    """The main graph or one call of a function, with their subgraphs.

    Attributes:
        opsets: the version of each domain.
        types: of the values by name, as onnxruntime spells them.
        attributes: those of the call.
        calls: the functions that are being called.
    """

    opsets: dict[str, int]
    types: dict[str, str] = field(default_factory=dict)
    attributes: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    calls: frozenset[ir.OperatorIdentifier] = frozenset()


@dataclass(slots=True)
class _Step:
    """A node on the way.

    Attributes:
        node: the node.
        scope: where it is.
        entered: whether what is inside has been looked at.
        body: the scope of the function that it calls.
        problems: how many nodes onnxruntime could not run before this one was entered.
    """

    node: ir.Node
    scope: _Scope
    entered: bool = False
    body: _Scope | None = None
    problems: int = 0


class _Survey:
    """What is known on the way through a model."""

    def __init__(self, model: ir.Model) -> None:
        """Start with the inputs and initializers of the main graph."""
        self.root = _Scope(opsets_of(model.opset_imports))
        self._functions = model.functions
        self._problems = 0
        self._known: dict[tuple[object, ...], Support] = {}
        self._count: Counter[tuple[object, ...]] = Counter()
        self._first: dict[tuple[object, ...], Usage] = {}
        _declare(model.graph, self.root)

    def enter(self, step: _Step) -> list[_Step]:
        """The nodes inside, with the types of what they get."""
        node, scope = step.node, step.scope
        step.problems = self._problems
        function = self._functions.get(node.op_identifier())
        if function is not None and function.identifier() not in scope.calls:
            step.body = _call(function, node, scope)
            return [_Step(each, step.body) for each in function]
        inside = []
        for graph in subgraphs(node):
            _declare(graph, scope)
            inside += [_Step(each, scope) for each in graph]
        return inside

    def leave(self, step: _Step) -> None:
        """Note what onnxruntime makes of a node, and the types of what it gives."""
        node, scope = step.node, step.scope
        present = [value for value in node.outputs if value.name]
        if step.body is not None:
            results = self._functions[node.op_identifier()].outputs
            for value, result in zip(node.outputs, results, strict=False):
                scope.types[value.name or ""] = step.body.types.get(result.name or "", UNKNOWN_TYPE)
            return
        tensor = constant_tensor(node)
        if tensor is not None:
            scope.types[present[0].name or ""] = type_name(ir.TensorType(tensor.dtype))
            return
        support = self._support(node, scope)
        if support.status == "missing" and self._problems > step.problems:
            support = Support("unknown", "something inside cannot be run")
        self._problems += support.status in ("missing", "unknown")
        declared = [type_name(value.type) for value in present]
        for value, type_ in zip(present, support.outputs or declared, strict=True):
            scope.types[value.name or ""] = type_
        self._note(node, scope, support)

    def _support(self, node: ir.Node, scope: _Scope) -> Support:
        """Ask once for nodes that are alike."""
        read = dict.fromkeys(value.name for value in node.inputs if value is not None and value.name)
        types = {name: scope.types.get(name, UNKNOWN_TYPE) for name in (*read, *scope_of(node).captures)}
        unknown = [name for name, type_ in types.items() if type_ == UNKNOWN_TYPE]
        if unknown:
            return Support("unknown", f"the type of {unknown[0]} is not known")
        proto = ir.serde.serialize_node(node)
        _resolve(proto, scope.attributes)
        if next(subgraphs(node), None) is None:
            types = _anonymous(proto, types)
        else:
            types |= {name: scope.types[name] for name in _take_out_external(proto)}
        key = (proto.SerializeToString(deterministic=True), *types.items(), *scope.opsets.items())
        if key not in self._known:
            self._known[key] = node_support(proto, types, scope.opsets)
        return self._known[key]

    def _note(self, node: ir.Node, scope: _Scope, support: Support) -> None:
        names = (value.name if value is not None else "" for value in node.inputs)
        inputs = tuple(short_name(scope.types.get(name, UNKNOWN_TYPE)) if name else "" for name in names)
        opset = scope.opsets.get(node.domain)
        key = (node.domain, node.op_type, opset, inputs, support.status, support.detail)
        self._count[key] += 1
        self._first.setdefault(key, Usage(node.domain, node.op_type, opset, inputs, 1, describe(node), support))

    def found(self) -> list[Usage]:
        """All that was noted."""
        return [
            Usage(each.domain, each.op_type, each.opset, each.inputs, self._count[key], each.first, each.support)
            for key, each in self._first.items()
        ]


def _declare(graph: ir.Graph, scope: _Scope) -> None:
    """The types of what a graph does not compute itself."""
    for value in graph.inputs:
        scope.types[value.name or ""] = type_name(value.type)
    for name, value in graph.initializers.items():
        tensor = value.const_value
        scope.types[name] = type_name(ir.TensorType(tensor.dtype) if tensor is not None else value.type)


def _call(function: ir.Function, node: ir.Node, scope: _Scope) -> _Scope:
    """The scope of a function's body when it is called by a node."""
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
    """Put the attributes of a call where a node or its subgraphs refer to them; those that it does not have go."""
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


def _take_out_external(proto: onnx.NodeProto) -> list[str]:
    """Remove the initializers of a node's subgraphs whose values are in another file; their names."""
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


def _anonymous(proto: onnx.NodeProto, types: Mapping[str, str]) -> dict[str, str]:
    """Give a node the name that all of its kind have, and its operands theirs; the types by the new names."""
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
