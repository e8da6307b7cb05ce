"""Emit: from a graph back to a model of onnx_ir, in topological order. Tensors are shared.

The graph's values must be in canonical storage, as after lowering. Doc strings, metadata, annotations, functions and device
configurations, which the graph does not model, are copied from the origins. The original model is not changed.

Constants are initializers. Bodies have their own constants, so that passes apply to ops with constant operands in bodies too.
Many of them are copies of an outer constant that the body captured before, so large ones are written in the main graph, and
constants whose `Data` is the same object once.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedFunctionsPass

from layoutopt.ir.graph import Graph, UnusedNames
from layoutopt.ir.types import Function, Op, Value
from layoutopt.onnx_io.messages import MAP_TYPES
from layoutopt.onnx_io.partitions import CONFIGURATION, DEVICE, annotate, assign_partitions
from layoutopt.onnx_io.schema import find_schema
from layoutopt.onnx_io.vocabulary import attribute_to_ir, declare, is_same_attribute, set_type, source, tensor_of

_LARGE = 1024  # bytes; smaller constants are written in every graph, where inference reads them
_NEW_MODEL = 10  # the IR version of a model that was not lifted
_FREE_INITIALIZERS = 4  # the IR version since which initializers need not be inputs
_WITH_FUNCTIONS, _WITH_OVERLOADS = 8, 10


def emit(graph: Graph) -> ir.Model:
    """The ONNX model of a graph; for the body of an op, a model of its own.

    Raises:
        InvariantError: a constant has no static shape.
    """
    return Emission(graph).model


def drop_output_shapes(model: ir.Model, names: Collection[str]) -> None:
    """Drop the declared shapes of some outputs of a model."""
    for value in model.graph.outputs:
        if value.name in names:
            value.shape = None


class Emission:
    """The ONNX model of a graph, in `model`.

    Bodies capture outer values again by name. Every name is unique in the model, so that no name shadows another.
    """

    def __init__(self, graph: Graph) -> None:
        """Emit a graph; values of the main graph keep their names."""
        self._graphs = graph.regions()
        self._partitions = assign_partitions(graph)
        self._values = {value: declare(value, value.name) for value in graph.values}
        self._constants = {graph: [value for value in graph.values if value.data is not None]}
        self._large = {(value.data, value.type): value for value in self._constants[graph]}
        self._captured: dict[Graph, int] = {}
        self._bodies: dict[Graph, ir.Graph] = {}
        self._taken = {value.name for value in graph.values}
        self._unused = UnusedNames(self._taken)
        for op in (op for each in self._graphs for op in each.ops if op.bodies):
            for body in op.bodies.values():
                self._declare(op, body)
        origin = graph.root.origin if isinstance(graph.root.origin, ir.Model) else None
        version, opsets = _ir_version(graph, origin), self._opset_imports(graph)
        functions = list(origin.functions.values()) if origin is not None else []
        functions += [self._function(function, opsets) for function in graph.functions]
        for body in reversed(self._graphs[1:]):  # the innermost first
            self._bodies[body] = self._body(body)
        main = self._graph(graph, graph.inputs, [*map(self._output, graph.outputs)], opset_imports=opsets)
        self.model = ir.Model(main, ir_version=version, functions=functions)
        if origin is not None and graph.root is graph:
            for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
                setattr(self.model, name, getattr(origin, name))
            self.model.metadata_props.update(graph.metadata)
            given = (each for each in origin.device_configurations if each.name != CONFIGURATION)
            self.model.device_configurations = tuple(given)
            self.model.graph.meta[MAP_TYPES] = origin.graph.meta.get(MAP_TYPES, {})
        if any(each[0].device for each in self._partitions):
            annotate(self.model, self._partitions)
        _make_node_names_unique(self.model)
        RemoveUnusedFunctionsPass()(self.model)  # type: ignore[no-untyped-call]

    def _declare(self, op: Op, body: Graph) -> None:
        """Add the values of a body: the captured outer values, and its own values under unused names."""
        self._captured[body] = op.captured
        for formal, value in zip(op.captured_inputs(body), op.inputs[op.uncaptured_input_count :], strict=True):
            assert value is not None
            self._values[formal] = self._values[value]
        self._constants[body] = []
        for value in body.values:
            is_large = value.data is not None and value.data.nbytes > _LARGE
            shared = self._large.setdefault((value.data, value.type), value) if is_large else value
            if shared is not value:
                self._values[value] = self._values[shared]
            elif value not in self._values:
                self._values[value] = declare(value, self._take(value.name))
                if value.data is not None:
                    self._constants[self._graphs[0] if is_large else body].append(value)

    def _take(self, stem: str) -> str:
        """An unused name, which is used then."""
        name = self._unused.find(stem)
        self._taken.add(name)
        return name

    def _opset_imports(self, graph: Graph) -> dict[str, int]:
        """The graph's opsets, and version 1 of every other domain of an op in the graph or in its functions."""
        opsets = dict(graph.opsets)
        for body in (*self._graphs, *(function.body for function in graph.functions)):
            for op in body.ops:
                opsets.setdefault(op.domain, body.opsets.get(op.domain, 1))
        for function in graph.functions:
            opsets.setdefault(function.domain, 1)
        return opsets

    def _body(self, graph: Graph) -> ir.Graph:
        """The body of an op, the last of whose inputs are captured values of the enclosing graphs.

        Outputs that are constants, captured values or earlier outputs are copied by an Identity, because onnx refuses
        constants as outputs, and onnxruntime captured values, and does not define repeated ones.
        """
        own = len(graph.inputs) - self._captured[graph]
        taken, outputs, copies = set(graph.inputs[own:]), [], []
        for value in graph.outputs:
            result = self._output(value)
            if value in taken or value.data is not None:
                result = ir.Value(name=self._take(f"{result.name}__copy"), type=result.type, shape=result.shape)
                copies.append(ir.Node("", "Identity", [self._values[value]], [], outputs=[result]))
            taken.add(value)
            outputs.append(result)
        return self._graph(graph, graph.inputs[:own], outputs, copies)

    def _graph(
        self,
        graph: Graph,
        inputs: Sequence[Value],
        outputs: Sequence[ir.Value],
        copies: Sequence[ir.Node] = (),
        opset_imports: dict[str, int] | None = None,
    ) -> ir.Graph:
        """A graph with its constants, and the default values of its inputs."""
        initializers = [self._values[value] for value in self._constants[graph]]
        for value, result in zip(self._constants[graph], initializers, strict=True):
            result.const_value = tensor_of(value, result.name or "")
        for value in inputs:
            origin, result = source(value), self._values[value]
            if origin is not None and origin.const_value is not None:
                result.const_value = origin.const_value
                initializers.append(result)
        emitted = ir.Graph(
            [self._values[value] for value in inputs],
            outputs,
            nodes=[*map(self._node, self._ops(graph)), *copies],
            initializers=initializers,
            opset_imports=opset_imports,
            name=graph.name or None,
        )
        original = graph.origin.graph if isinstance(graph.origin, ir.Model) else graph.origin
        if isinstance(original, ir.Graph):
            emitted.doc_string = original.doc_string
            emitted.metadata_props.update(original.metadata_props)
        return emitted

    def _ops(self, graph: Graph) -> Iterable[Op]:
        """The ops of a graph in the order of its nodes."""
        return chain.from_iterable(self._partitions) if graph is self._graphs[0] else graph.ops

    def _output(self, value: Value) -> ir.Value:
        return set_type(self._values[value], value, is_output=True)

    def _function(self, function: Function, opsets: dict[str, int]) -> ir.Function:
        """A function, which imports the opsets of the model, because onnx's inliner keeps calls of other functions."""
        body = function.body
        self._values |= {value: declare(value, value.name) for value in body.values}
        graph = ir.Graph(
            [self._values[value] for value in body.inputs],
            [self._values[value] for value in body.outputs],
            nodes=[*map(self._node, body.ops)],
            opset_imports=dict(opsets),
            doc_string=function.doc or None,
        )
        attributes = [ir.Attr(name, ir.AttributeType.UNDEFINED, None) for name in function.attributes]
        return ir.Function(function.domain, function.name, function.overload, graph=graph, attributes=attributes)

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
        if isinstance(origin := op.origin, ir.Node):
            node.doc_string = origin.doc_string
            node.metadata_props.update(origin.metadata_props)
            is_from_a_plan = node.metadata_props.pop(DEVICE, None) is not None
            if (node.domain, node.op_type) == (origin.domain, origin.op_type) and not is_from_a_plan:
                node.device_configurations = origin.device_configurations
        return node

    def _attributes(self, op: Op) -> list[ir.Attr]:
        """The attributes of an op, graphs last; unchanged attributes are those of the original node."""
        known = op.origin.attributes if isinstance(op.origin, ir.Node) else {}
        schema = find_schema(op.op_type, op.domain, op.version)
        found = (
            known[name]
            if name in known and is_same_attribute(known[name], value)
            else attribute_to_ir(name, value, schema)
            for name, value in op.attributes.items()
        )
        return [*found, *(ir.AttrGraph(name, self._bodies[body]) for name, body in op.bodies.items())]


def _ir_version(graph: Graph, origin: ir.Model | None) -> int:
    version = max(_FREE_INITIALIZERS, origin.ir_version if origin is not None else _NEW_MODEL)
    if not graph.functions:
        return version
    return max(version, _WITH_OVERLOADS if any(each.overload for each in graph.functions) else _WITH_FUNCTIONS)


def _make_node_names_unique(model: ir.Model) -> None:
    """Rename nodes that have the name of an earlier node, which ONNX Runtime refuses."""
    nodes = [*model.graph.all_nodes()]
    taken = {node.name or "" for node in nodes}
    unused, seen = UnusedNames(taken), {""}
    for node in nodes:
        if node.name in seen and node.name:
            node.name = unused.find(node.name)
            taken.add(node.name)
        seen.add(node.name or "")
