"""The graph of a model of onnx_ir: its values, ops and bodies, with the types that the model declares.

initializer, Constant node -> Value with data     graph input, node output -> Value without
node                       -> Op                  subgraph                 -> body of the op, closed

A subgraph may read every value of the enclosing graphs by name; a name that it defines itself shadows the outer one.
"""

from collections.abc import Mapping

import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.onnx_io.messages import display_name
from layoutopt.onnx_io.schema import opsets_of_onnx
from layoutopt.onnx_io.vocabulary import DimNames, attribute_from_ir, subgraphs
from layoutopt.record import Record

HINT = "export the model again"


def build(model: ir.Model, source: ir.Graph, graph: Graph, names: DimNames) -> None:
    """Fill an empty graph with the values and ops of a graph of onnx_ir, and its bodies.

    Args:
        model: the model that the source is a part of.
        source: the main graph of the model, or that of a function.
        graph: the empty graph.
        names: for unknown dimensions.

    Raises:
        ModelError: two values of one name, an input that nothing computes, a cycle.
    """
    pending = [_Lifting(source, graph)]
    for lifting in pending:  # extended in the loop
        pending += _Lifter(model, lifting, names).bodies
        if cycle := lifting.graph.find_cycle():
            raise ModelError(
                f"the graph has a cycle: {_shorten(cycle)}",
                where=cycle[0],
                hint="a model cannot feed a value back to itself",
            )


class _Lifting(Record):
    """A graph of onnx_ir, the empty graph to fill, and for a body the names and values that its op captures."""

    source: ir.Graph
    graph: Graph
    captures: tuple[tuple[str, Value], ...] = ()


class _Lifter:
    """Builds one graph: all values first, so that nodes may be in any order. The graphs in `bodies` are to be built next."""

    def __init__(self, model: ir.Model, lifting: _Lifting, names: DimNames) -> None:
        self._model = model
        self._source = lifting.source
        self._names = names
        self.graph = lifting.graph
        self.bodies: list[_Lifting] = []
        self._visible: dict[str, Value] = {}
        self._inputs()
        self._initializers()
        for output in (output for node in self._source for output in node.outputs if output.name):
            self._add(output)
        self._captures(lifting.captures)
        for position, node in enumerate(self._source):
            if (tensor := constant_tensor(node)) is None:
                self._op(position, node)
            else:
                value = self._visible[node.outputs[0].name or ""]
                value.give_type(self._names.type(ir.TensorType(tensor.dtype), tensor.shape))
                value.data = tensor
        self.graph.outputs = [self._find(output.name or "", "the graph's outputs") for output in self._source.outputs]

    def _inputs(self) -> None:
        """Add the inputs. Before IR version 4 the initializers of the main graph are inputs too, and are constants here."""
        old = self._model.ir_version < 4 and self.graph.root is self.graph
        for value in self._source.inputs:
            if not (old and value.name in self._source.initializers):
                self.graph.inputs.append(self._add(value))

    def _initializers(self) -> None:
        for name, value in self._source.initializers.items():
            tensor = value.const_value
            if tensor is None:
                raise ModelError("initializer without data", where=name, hint=HINT)
            if name not in self._visible:
                type = self._names.type(ir.TensorType(tensor.dtype), tensor.shape)
                self._visible[name] = self.graph.add_value(Value(name, type, data=tensor, origin=value))

    def _captures(self, captures: tuple[tuple[str, Value], ...]) -> None:
        """Add the captured inputs; the name of one that this body does not read may be that of another value here."""
        for name, value in captures:
            formal = self.graph.new_value(name, value.type)
            self.graph.inputs.append(formal)
            self._visible.setdefault(name, formal)

    def _op(self, position: int, node: ir.Node) -> None:
        where = display_name(node)
        if node.domain in opsets_of_onnx() and node.domain not in self.graph.opsets:
            raise ModelError(f"the model imports no opset of {node.domain or 'ai.onnx'}", where=where, hint=HINT)
        captures = captures_of(node)
        captured = self._captured(captures, where)
        sources = subgraphs(node)
        bodies = {key: Graph(source.name or "", origin=source, root=self.graph.root) for key, source in sources.items()}
        op = Op(
            node.op_type,
            (*(None if value is None else self._find(value.name or "", where) for value in node.inputs), *captured),
            tuple(self._visible.get(value.name) if value.name else None for value in node.outputs),
            domain=node.domain,
            version=self.graph.opsets.setdefault(node.domain, 1),
            overload=node.overload,
            name=node.name or "",
            attributes={name: attribute_from_ir(attr) for name, attr in node.attributes.items() if name not in sources},
            bodies=bodies,
            captured=len(captured),
            order=(position,),
            origin=node,
        )
        self.graph.add_op(op)
        pairs = tuple(zip(captures, captured, strict=True))
        self.bodies += [_Lifting(sources[key], body, pairs) for key, body in bodies.items()]

    def _captured(self, captures: Mapping[str, ir.Node | None], where: str) -> tuple[Value, ...]:
        found = []
        for name, reader in captures.items():
            inner = display_name(reader) if reader is not None else f"an output of a subgraph of {where}"
            found.append(self._find(name, inner))
        return tuple(found)

    def _find(self, name: str, where: str) -> Value:
        value = self._visible.get(name)
        if value is None:
            raise ModelError(f"input {name!r} is not defined: nothing computes it", where=where, hint=HINT)
        return value

    def _add(self, source: ir.Value) -> Value:
        name = source.name or ""
        if name in self._visible:
            raise ModelError("two values have this name", where=name, hint="give every value a name of its own")
        type = self._names.type(source.type, source.shape)
        if source.is_graph_input() and self.graph.root is self.graph:
            type = self._names.input_type(name, source.type, source.shape)
        value = self.graph.add_value(Value(name, type, origin=source))
        return self._visible.setdefault(name, value)


def _shorten(names: list[str]) -> str:
    shown = names if len(names) <= 8 else [*names[:4], "...", *names[-3:]]
    return " -> ".join(shown)


def captures_of(node: ir.Node) -> dict[str, ir.Node | None]:
    """The outer values that the subgraphs of a node read, at any depth, by name: the first node that reads each.

    The node is None for a value that no node of a subgraph reads, but that is an output of one.
    """
    found: dict[str, ir.Node | None] = {}
    inner = [*subgraphs(node).values()]
    for graph in inner:  # extended in the loop
        inner += [child for each in graph for child in subgraphs(each).values()]
    for graph in inner:
        reads = [(value, reader) for reader in graph for value in reader.inputs if value is not None]
        for value, reader in [*reads, *((value, None) for value in graph.outputs)]:
            is_defined = value.producer() is not None or value.is_graph_input() or value.is_initializer()
            if value.name and not (is_defined and value.graph in inner):
                found.setdefault(value.name, reader)
    return found


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a Constant node; None for any other node, and for attributes that are not tensors."""
    if (node.domain, node.op_type) != ("", "Constant") or node.inputs or not node.outputs or not node.outputs[0].name:
        return None
    try:
        if "value" in node.attributes and len(node.attributes) == 1:
            return node.attributes["value"].as_tensor()  # without the name that onnx_ir would give it
        if any(name.startswith("value_string") for name in node.attributes):
            return None  # onnx_ir would drop NULs at the end
        return ir.convenience.get_const_tensor(node.outputs[0])
    except (TypeError, ValueError):  # it is no valid Constant
        return None
