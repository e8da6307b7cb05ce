"""Emit: from a graph back to a model of onnx_ir, in topological order. Tensors are shared.

The graph's values must be in canonical storage, as after lowering. Doc strings, metadata, annotations, functions and device
configurations, which the graph does not model, are copied from the origins. The original model is not changed.

Bodies have their own constants, so that passes apply to ops with constant operands in bodies too. Many of them are copies of an
outer constant that the body captured before. Constants whose `Data` is the same object are written once, in the main graph.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import onnx_ir as ir

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Data, DType, Function, Op, Value
from layoutopt.onnx_io.messages import copy_sidecar
from layoutopt.onnx_io.schema import find_schema
from layoutopt.onnx_io.structure import NodeData
from layoutopt.onnx_io.vocabulary import (
    attribute_to_ir,
    declare,
    graph_attributes,
    is_same_attribute,
    set_type,
    source,
    tensor_of,
)

_LARGE = 1024  # bytes; smaller constants are written in every graph, where inference reads them


@dataclass(slots=True)
class Sharing:
    """The constants that are written in another graph than their own.

    Attributes:
        written_as: for constants of bodies, the constant that is written in their place.
        hoisted: constants of bodies that the main graph writes.
        common: the constants that replace others; they are initializers of the main graph.
    """

    written_as: dict[Value, Value] = field(default_factory=dict)
    hoisted: dict[Value, None] = field(default_factory=dict)
    common: set[Value] = field(default_factory=set)

    @classmethod
    def of(cls, graphs: Sequence[Graph]) -> "Sharing":
        """The sharing in a main graph and its bodies, in that order. Outputs of a body are constants of the body."""
        found: dict[Data, list[Value]] = {}
        main = set(graphs[0].values) if len(graphs) > 1 else set()
        for graph in graphs if len(graphs) > 1 else ():
            given = set(graph.outputs) if graph is not graphs[0] else set()
            for value in graph.values:
                if value.data is not None and value not in given and value.data.nbytes > _LARGE:
                    found.setdefault(value.data, []).append(value)
        sharing = cls()
        for first, *others in found.values():
            inner = [value for value in others if value not in main and value.type == first.type]
            if not inner:
                continue
            sharing.written_as |= dict.fromkeys(inner, first)
            sharing.common.add(first)
            if first not in main:
                sharing.hoisted[first] = None
        return sharing

    def is_written_elsewhere(self, value: Value) -> bool:
        """Whether a constant is not written in the graph that has it."""
        return value in self.written_as or value in self.hoisted


_NEW_MODEL = 10  # the IR version of a model that was not lifted
_WITH_FUNCTIONS = 8
_FREE_INITIALIZERS = 4  # the IR version since which initializers need not be inputs
_WITH_OVERLOADS = 10
_NEEDED = {  # the IR version that introduced an element type
    **dict.fromkeys([DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ], 9),
    **dict.fromkeys([DType.INT4, DType.UINT4], 10),
    DType.FLOAT4E2M1: 11,
    DType.FLOAT8E8M0: 12,
    **dict.fromkeys([DType.INT2, DType.UINT2], 13),
}


def emit(graph: Graph) -> ir.Model:
    """The ONNX model of a graph; for the body of an op, a model of its own.

    Raises:
        InvariantError: a constant has no static shape.
    """
    return Emission(graph, keeps_declarations=True).model


def drop_output_shapes(model: ir.Model, names: Collection[str]) -> None:
    """Drop the declared shapes of some outputs of a model."""
    for value in model.graph.outputs:
        if value.name in names:
            value.shape = None


class Emission:
    """The ONNX model of a graph, and the names of the values in it.

    Bodies capture outer values again by name. Every name is unique in the model, so that no name shadows another.

    Attributes:
        model: the model.
        names: the names of the values of the graph and of its bodies.
    """

    def __init__(self, graph: Graph, *, keeps_declarations: bool = False) -> None:
        """Emit a graph; values of the main graph keep their names.

        Args:
            graph: the graph.
            keeps_declarations: whether outputs of unknown shape have the shape that the original declares; false for a model
                whose types are to be inferred.
        """
        self._keeps_declarations = keeps_declarations
        self._graphs = graph.regions()
        self._values = {value: declare(value, value.name) for value in graph.values}
        self._captured: dict[Graph, int] = {}
        self._sharing = Sharing.of(self._graphs)
        self._free = _Names(value.name for value in graph.values)
        for op in (op for each in self._graphs for op in each.ops if op.bodies):
            for body in op.bodies.values():
                self._declare(op, body)
        self.names = {value: each.name or "" for value, each in self._values.items()}
        origin = graph.root.origin if isinstance(graph.root.origin, ir.Model) else None
        version, opsets = self._ir_version(graph, origin), self._opset_imports(graph)
        functions = list(origin.functions.values()) if origin is not None else []
        functions += [_function(function, opsets) for function in graph.functions]
        self.model = ir.Model(self._main(opsets, version), ir_version=version, functions=functions)
        if origin is not None and graph.root is graph:
            for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
                setattr(self.model, name, getattr(origin, name))
            self.model.metadata_props.update(graph.metadata)
            self.model.device_configurations = origin.device_configurations
            copy_sidecar(self.model, origin)
        _make_node_names_unique(self.model)

    def _declare(self, op: Op, body: Graph) -> None:
        """Add the values of a body: the captured outer values, and its own values under unused names."""
        self._captured[body] = op.captured
        formals = body.inputs[len(body.inputs) - op.captured :]
        for formal, value in zip(formals, op.inputs[op.uncaptured_input_count :], strict=True):
            assert value is not None
            self._values[formal] = self._values[value]
        for value in body.values:
            if value in self._sharing.written_as:
                self._values[value] = self._values[self._sharing.written_as[value]]
            elif value not in self._values:
                self._values[value] = declare(value, self._free.take(value.name))

    def _opset_imports(self, graph: Graph) -> dict[str, int]:
        """The graph's opsets, and version 1 of every other domain of an op in the graph or in its functions."""
        opsets = dict(graph.opsets)
        for body in (*self._graphs, *(function.body for function in graph.functions)):
            for op in body.ops:
                opsets.setdefault(op.domain, body.opsets.get(op.domain, 1))
        for function in graph.functions:
            opsets.setdefault(function.domain, 1)
        return opsets

    def _ir_version(self, graph: Graph, origin: ir.Model | None) -> int:
        version = origin.ir_version if origin is not None else _NEW_MODEL
        if graph.functions:
            has_overloads = any(function.overload for function in graph.functions)
            version = max(version, _WITH_OVERLOADS if has_overloads else _WITH_FUNCTIONS)
        inner = (value.data for body in self._graphs[1:] for value in body.values if value.data is not None)
        if any(not isinstance(data, NodeData) for data in inner):
            version = max(version, _FREE_INITIALIZERS)
        return max([version, *(_NEEDED.get(value.dtype, 0) for value in self._values if value.dtype is not None)])

    def _main(self, opsets: dict[str, int], ir_version: int) -> ir.Graph:
        """The main graph; its bodies are built before it, the innermost first."""
        bodies: dict[Graph, ir.Graph] = {}
        for graph in reversed(self._graphs[1:]):
            emitter = _Emitter(graph, self._values, bodies, self._sharing, self._keeps_declarations)
            bodies[graph] = emitter.body(self._captured[graph], self._free)
        main = _Emitter(self._graphs[0], self._values, bodies, self._sharing, self._keeps_declarations)
        return main.main(opsets, ir_version)


def _make_node_names_unique(model: ir.Model) -> None:
    """Rename nodes that have the name of an earlier node, which ONNX Runtime refuses."""
    free = _Names(node.name or "" for node in model.graph.all_nodes())
    seen = {""}
    for node in model.graph.all_nodes():
        if node.name in seen and node.name:
            node.name = free.take(node.name)
        seen.add(node.name or "")


class _Names:
    """A set of used names, which generates unused ones."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._suffixes: dict[str, int] = {}

    def take(self, stem: str) -> str:
        """An unused name, which is used then: `stem`, or else the first unused one of `stem_2`, `stem_3`..."""
        name, count = stem, self._suffixes.get(stem, 1)
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._suffixes[stem] = count
        self._taken.add(name)
        return name


def _function(function: Function, opsets: dict[str, int]) -> ir.Function:
    """A function of the model. It imports the opsets of the model, because onnx's inliner keeps calls of other functions."""
    attributes = [ir.Attr(name, ir.AttributeType.UNDEFINED, None) for name in function.attributes]
    values = {value: declare(value, value.name) for value in function.body.values}
    body = _Emitter(function.body, values, {}, Sharing()).function(function, opsets)
    return ir.Function(function.domain, function.name, function.overload, graph=body, attributes=attributes)


class _Emitter:
    """Converts one graph to onnx_ir; its values and the bodies in it have been converted before."""

    def __init__(
        self,
        graph: Graph,
        values: dict[Value, ir.Value],
        bodies: dict[Graph, ir.Graph],
        sharing: Sharing,
        keeps_declarations: bool = False,
    ) -> None:
        self._graph = graph
        self._values = values
        self._bodies = bodies
        self._sharing = sharing
        self._keeps_declarations = keeps_declarations
        constants = (value for value in graph.values if value.data is not None)
        self._constants = [value for value in constants if not sharing.is_written_elsewhere(value)]

    def main(self, opsets: dict[str, int], ir_version: int) -> ir.Graph:
        """The main graph."""
        inputs = [self._values[value] for value in self._graph.inputs]
        if ir_version < _FREE_INITIALIZERS:
            inputs += [set_type(self._values[value], value) for value in self._initializer_values()]
        result = ir.Graph(
            inputs,
            [self._output(value) for value in self._graph.outputs],
            nodes=self._nodes(self._constant_nodes()),
            initializers=[
                *map(self._initializer, [*self._initializer_values(), *self._sharing.hoisted]),
                *self._defaults(len(inputs)),
            ],
            opset_imports=opsets,
            name=self._graph.name or None,
        )
        _copy_metadata(result, self._graph)
        return result

    def body(self, captured: int, names: _Names) -> ir.Graph:
        """The body of an op, whose last `captured` inputs are values of the enclosing graphs.

        Outputs that are captured values or earlier outputs are copied by an Identity, because onnxruntime refuses captured
        values as outputs and does not define repeated ones.
        """
        own = len(self._graph.inputs) - captured
        nodes = self._nodes(self._constant_nodes())
        taken, outputs = set(self._graph.inputs[own:]), []
        for value in self._graph.outputs:
            result = self._output(value)
            if value in taken:
                result = ir.Value(name=names.take(f"{result.name}__copy"), type=result.type, shape=result.shape)
                nodes.append(ir.Node("", "Identity", [self._values[value]], [], outputs=[result]))
            taken.add(value)
            outputs.append(result)
        body = ir.Graph(
            [self._values[value] for value in self._graph.inputs[:own]],
            outputs,
            nodes=nodes,
            initializers=[*map(self._initializer, self._initializer_values()), *self._defaults(own)],
            name=self._graph.name or None,
        )
        _copy_metadata(body, self._graph)
        return body

    def _output(self, value: Value) -> ir.Value:
        return set_type(self._values[value], value, is_interface=True, keeps_declarations=self._keeps_declarations)

    def function(self, function: Function, opsets: dict[str, int]) -> ir.Graph:
        """The body of a function, which cannot have initializers: its constants are nodes."""
        return ir.Graph(
            [self._values[self._graph.value(name)] for name in function.inputs],
            [self._values[self._graph.value(name)] for name in function.outputs],
            nodes=self._nodes(self._constants),
            opset_imports=dict(opsets),
            doc_string=function.doc or None,
        )

    def _constant_nodes(self) -> list[Value]:
        """The constants that are emitted as nodes."""
        common = self._sharing.common
        return [value for value in self._constants if isinstance(value.data, NodeData) and value not in common]

    def _initializer_values(self) -> list[Value]:
        """The constants that are emitted as initializers: shared ones must be defined before all nodes."""
        placed = set(self._constant_nodes())
        return [value for value in self._constants if value not in placed]

    def _nodes(self, constants: list[Value]) -> list[ir.Node]:
        """The nodes in order, Constant nodes at their positions in the file, but before their readers."""
        waiting = dict.fromkeys(sorted(constants, key=_position))
        nodes = []
        for op in self._graph.ops:
            due = list(takewhile(lambda value: _position(value) < op.order[0], waiting))  # noqa: B023, used at once
            for value in dict.fromkeys([*due, *(value for value in op.inputs if value in waiting)]):
                nodes.append(self._constant(value))
                del waiting[value]
            nodes.append(self._node(op))
        return nodes + [self._constant(value) for value in waiting]

    def _node(self, op: Op) -> ir.Node:
        node = ir.Node(
            op.domain,
            op.op_type,
            [None if value is None else self._values[value] for value in op.inputs[: op.uncaptured_input_count]],
            self._attributes(op),
            outputs=[ir.Value(name="") if value is None else self._values[value] for value in op.outputs],
            overload=op.overload,
            name=op.name,
        )
        if isinstance(op.origin, ir.Node):
            _copy_node_metadata(node, op.origin)
        return node

    def _attributes(self, op: Op) -> list[ir.Attr]:
        """The attributes of an op in the order of the original node; unchanged attributes are those of the original node."""
        known = op.origin.attributes if isinstance(op.origin, ir.Node) else {}
        schema = find_schema(op.op_type, op.domain, op.version)
        found = {
            name: known[name]
            if name in known and is_same_attribute(known[name], value)
            else attribute_to_ir(name, value, schema)
            for name, value in op.attributes.items()
        }
        found |= graph_attributes({key: self._bodies[body] for key, body in op.bodies.items()})
        return [found[name] for name in dict.fromkeys([*(name for name in known if name in found), *found])]

    def _constant(self, value: Value) -> ir.Node:
        """A Constant node; a copy of the original node if the value was lifted from one."""
        output = set_type(self._values[value], value)
        if not isinstance(value.data, NodeData):
            tensor = tensor_of(value, output.name or "")
            return ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[output], name="")
        origin = value.data.node
        node = ir.Node("", "Constant", [], origin.attributes, outputs=[output], name=origin.name)
        _copy_node_metadata(node, origin)
        return node

    def _initializer(self, value: Value) -> ir.Value:
        result = self._values[value]
        result.const_value = tensor_of(value, result.name or "")
        return result

    def _defaults(self, own: int) -> list[ir.Value]:
        """The initializers that are default values of the first `own` inputs."""
        found = []
        for value in self._graph.inputs[:own]:
            origin, result = source(value), self._values[value]
            if origin is not None and origin.const_value is not None:
                result.const_value = origin.const_value
                found.append(result)
        return found


def _position(constant: Value) -> int:
    return constant.data.position if isinstance(constant.data, NodeData) else -1


def _copy_metadata(result: ir.Graph, graph: Graph) -> None:
    """Copy doc string and metadata of the graph that a graph was lifted from."""
    origin = graph.origin.graph if isinstance(graph.origin, ir.Model) else graph.origin
    if isinstance(origin, ir.Graph):
        result.doc_string = origin.doc_string
        result.metadata_props.update(origin.metadata_props)


def _copy_node_metadata(node: ir.Node, origin: ir.Node) -> None:
    """Copy doc string and metadata of the original node; overload and devices only for the same operator."""
    node.doc_string = origin.doc_string
    node.metadata_props.update(origin.metadata_props)
    if (node.domain, node.op_type) == (origin.domain, origin.op_type):
        node.overload = origin.overload
        node.device_configurations = origin.device_configurations
