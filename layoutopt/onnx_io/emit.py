"""Emit: from a graph back to a model of onnx_ir, in topological order. Tensors and subgraphs are shared.

The graph's values must be in canonical storage: a dialect has lowered them before. Whatever the graph does
not model is taken from the origins: doc strings, metadata, annotations, functions, device configurations. The
original model is not touched.
"""

from itertools import takewhile

import onnx_ir as ir

from layoutopt.errors import InvariantError
from layoutopt.ir.graph import Function, Graph
from layoutopt.ir.types import DType, Op, Value
from layoutopt.onnx_io.beside import inherit
from layoutopt.onnx_io.constant import NodeData
from layoutopt.onnx_io.schema import find_schema
from layoutopt.onnx_io.values import declare, source, tensor_of, typed
from layoutopt.onnx_io.vocabulary import attribute_to_ir, same_attribute

_NEW_MODEL = 10  # the IR version of a model that was not lifted
_WITH_FUNCTIONS = 8
_NEEDED = {  # the IR version that introduced an element type
    **dict.fromkeys([DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ], 9),
    **dict.fromkeys([DType.INT4, DType.UINT4], 10),
    DType.FLOAT4E2M1: 11,
    DType.FLOAT8E8M0: 12,
    **dict.fromkeys([DType.INT2, DType.UINT2], 13),
}


def emit(graph: Graph) -> ir.Model:
    """Build a model that says what the graph says.

    Raises:
        InvariantError: a value that a subgraph reads by name was renamed, or a constant has no static shape.
    """
    origin = graph.origin if isinstance(graph.origin, ir.Model) else None
    version = _ir_version(graph, origin)
    opsets = _opset_imports(graph)
    functions = list(origin.functions.values()) if origin is not None else []
    functions += [_function(function, opsets) for function in graph.functions]
    model = ir.Model(_Emitter(graph).main(opsets, version), ir_version=version, functions=functions)
    model.metadata_props.update(graph.metadata)
    if origin is not None:
        for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
            setattr(model, name, getattr(origin, name))
        model.device_configurations = origin.device_configurations
        inherit(model, origin)
    return model


def _opset_imports(graph: Graph) -> dict[str, int]:
    """The graph's opsets, and version 1 of every other domain that an op of it or of its functions is in."""
    opsets = dict(graph.opsets)
    for body in (graph, *(function.body for function in graph.functions)):
        for op in body.ops:
            opsets.setdefault(op.domain, body.opsets.get(op.domain, 1))
    for function in graph.functions:
        opsets.setdefault(function.domain, 1)
    return opsets


def _ir_version(graph: Graph, origin: ir.Model | None) -> int:
    version = origin.ir_version if origin is not None else _NEW_MODEL
    if graph.functions:
        version = max(version, _WITH_FUNCTIONS)
    return max([version, *(_NEEDED.get(value.dtype, 0) for value in graph.values if value.dtype is not None)])


def _function(function: Function, opsets: dict[str, int]) -> ir.Function:
    """A function of the model. It imports what the model does, or else onnx's inliner leaves its calls."""
    attributes = [ir.Attr(name, ir.AttributeType.UNDEFINED, None) for name in function.attributes]
    body = _Emitter(function.body).body(function, opsets)
    return ir.Function(function.domain, function.name, graph=body, attributes=attributes)


class _Emitter:
    """Turns the values and ops of one graph into those of onnx_ir, each value once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values = {value: declare(value) for value in graph.values}

    def main(self, opsets: dict[str, int], ir_version: int) -> ir.Graph:
        """The main graph."""
        constants = [value for value in self._graph.values if value.data is not None]
        plain = [value for value in constants if not isinstance(value.data, NodeData)]
        inputs = [self._values[value] for value in self._graph.inputs]
        if ir_version < 4:  # there every initializer has to be listed as an input
            inputs += [typed(self._values[value], value) for value in plain]
        result = ir.Graph(
            inputs,
            [typed(self._values[value], value, interface=True) for value in self._graph.outputs],
            nodes=self._nodes([value for value in constants if isinstance(value.data, NodeData)]),
            initializers=[self._initializer(value, tensor_of(value)) for value in plain] + self._defaults(),
            opset_imports=opsets,
            name=self._graph.name or None,
        )
        if isinstance(self._graph.origin, ir.Model):
            result.doc_string = self._graph.origin.graph.doc_string
            result.metadata_props.update(self._graph.origin.graph.metadata_props)
        return result

    def body(self, function: Function, opsets: dict[str, int]) -> ir.Graph:
        """The body of a function, which cannot have initializers: its constants are nodes."""
        return ir.Graph(
            [self._values[self._graph.value(name)] for name in function.inputs],
            [self._values[self._graph.value(name)] for name in function.outputs],
            nodes=self._nodes([value for value in self._graph.values if value.data is not None]),
            opset_imports=dict(opsets),
            doc_string=function.doc or None,
        )

    def _nodes(self, constants: list[Value]) -> list[ir.Node]:
        """The nodes in order, constants where they were in the file but before what reads them."""
        waiting = dict.fromkeys(sorted(constants, key=_position))
        nodes = []
        for op in self._graph.ops:
            due = list(takewhile(lambda value: _position(value) < op.order[0], waiting))  # noqa: B023, used at once
            for value in dict.fromkeys([*due, *(value for value in (*op.inputs, *op.captures) if value in waiting)]):
                nodes.append(self._constant(value))
                del waiting[value]
            nodes.append(self._node(op))
        return nodes + [self._constant(value) for value in waiting]

    def _node(self, op: Op) -> ir.Node:
        for value in op.captures:
            origin = source(value)
            if origin is not None and origin.name != value.name:
                raise InvariantError(f"a subgraph of {op} reads it as {origin.name!r}", where=value.name)
        node = ir.Node(
            op.domain,
            op.op_type,
            [None if value is None else self._values[value] for value in op.inputs],
            _attributes(op),
            outputs=[ir.Value(name="") if value is None else self._values[value] for value in op.outputs],
            name=op.name,
        )
        if isinstance(op.origin, ir.Node):
            _inherit(node, op.origin)
        return node

    def _constant(self, value: Value) -> ir.Node:
        """A Constant node, the original one if the value came from one."""
        output = typed(self._values[value], value)
        if not isinstance(value.data, NodeData):
            return ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor_of(value))], outputs=[output], name="")
        origin = value.data.node
        node = ir.Node("", "Constant", [], origin.attributes, outputs=[output], name=origin.name)
        _inherit(node, origin)
        return node

    def _initializer(self, value: Value, tensor: ir.TensorProtocol) -> ir.Value:
        result = self._values[value]
        result.const_value = tensor
        return result

    def _defaults(self) -> list[ir.Value]:
        """The inputs that have a default value."""
        origins = ((value, source(value)) for value in self._graph.inputs)
        return [
            self._initializer(value, origin.const_value)
            for value, origin in origins
            if origin is not None and origin.const_value is not None
        ]


def _position(constant: Value) -> int:
    return constant.data.position if isinstance(constant.data, NodeData) else -1


def _attributes(op: Op) -> list[ir.Attr]:
    """The attributes of an op, those of the original node wherever they did not change."""
    known = op.origin.attributes if isinstance(op.origin, ir.Node) else {}
    schema = find_schema(op.op_type, op.domain, op.version)
    return [
        known[name] if name in known and same_attribute(known[name], value) else attribute_to_ir(name, value, schema)
        for name, value in op.attributes.items()
    ]


def _inherit(node: ir.Node, origin: ir.Node) -> None:
    """Keep what the graph does not model; overload and devices only while it is the same operator."""
    node.doc_string = origin.doc_string
    node.metadata_props.update(origin.metadata_props)
    if (node.domain, node.op_type) == (origin.domain, origin.op_type):
        node.overload = origin.overload
        node.device_configurations = origin.device_configurations
