"""Weightless models: the message of a model without its large weights, as an argument for onnx's C++ functions.

These functions take a serialised model, which may not be larger than 2 GB, and copy it. An initializer or
Constant node above a threshold becomes an input of the main graph with its type and shape. A weight of a subgraph
becomes an input of the main graph as well, whose values a subgraph can read, unless another value has its name.
"""

from collections import Counter
from collections.abc import Mapping

import onnx
import onnx_ir as ir

from layoutopt.onnx_io.converter.constant import constant_tensor
from layoutopt.onnx_io.converter.inline_limits import large_calls
from layoutopt.onnx_io.reader.lossless import display_name, graphs, inner_graphs, nested, nodes
from layoutopt.onnx_io.repeated_fields import keep_messages
from layoutopt.onnx_io.schema import find_schema, is_onnxruntime_op, opsets_of
from layoutopt.onnx_io.sidecar import write_map_types
from layoutopt.onnx_io.writer.serialize import embedded

UNCHECKED_DOMAIN = "com.microsoft"  # onnx's checker ignores ops of this domain
_SMALL = 1024  # bytes; shapes, axes, pads and sizes, which data propagation reads, are smaller


def weightless_message(model: ir.Model, *, small: int = _SMALL) -> onnx.ModelProto:
    """The message of a model without its large weights. All graphs and nodes have names, for errors."""
    proto = onnx.ModelProto(ir_version=model.ir_version)
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    _fill(proto.graph, model.graph, small)
    for function in model.functions.values():
        ir.serde.serialize_function_into(proto.functions.add(), function, create_value_info=model.ir_version >= 10)
    write_map_types(proto.graph, model.graph)
    drop_functions_of_other_opsets(proto)
    _hoist(proto, small)
    for graph in graphs(proto):
        graph.name = graph.name or "graph"
    for node in nodes(proto):
        node.name = display_name(node)
    move_unknown_ops(proto)
    return proto


def move_unknown_ops(proto: onnx.ModelProto) -> None:
    """Move operators of ai.onnx without an onnx schema, and large function calls, to a domain that onnx does not check."""
    version = opsets_of({opset.domain: opset.version for opset in proto.opset_import}).get("", 0)
    moved = [node for node in nodes(proto) if is_onnxruntime_op(node.domain, node.op_type, version)]
    moved += large_calls(proto)
    for node in moved:
        node.domain = UNCHECKED_DOMAIN
    for importer in (proto, *proto.functions) if moved else ():
        if all(opset.domain != UNCHECKED_DOMAIN for opset in importer.opset_import):
            importer.opset_import.add(domain=UNCHECKED_DOMAIN, version=1)


def drop_functions_of_other_opsets(proto: onnx.ModelProto) -> None:
    """Drop functions with an operator that differs between their opset and the model's, which onnx's checker refuses.

    ONNX Runtime accepts them. Without the function, its calls are operators of a domain without schemas in onnx.
    """
    ours = opsets_of({opset.domain: opset.version for opset in proto.opset_import})
    kept = [function for function in proto.functions if not _has_other_semantics(function, ours)]
    keep_messages(proto.functions, kept)


def _has_other_semantics(function: onnx.FunctionProto, ours: Mapping[str, int]) -> bool:
    theirs = opsets_of({opset.domain: opset.version for opset in function.opset_import})
    inner = (node for graph in nested(inner_graphs(function.node)) for node in graph.node)
    for node in (*function.node, *inner):
        domain = "" if node.domain == "ai.onnx" else node.domain
        if ours.get(domain, 0) != theirs.get(domain, 0) and domain in ours and domain in theirs:
            schemas = (find_schema(node.op_type, domain, each[domain]) for each in (theirs, ours))
            if len({None if schema is None else schema.since_version for schema in schemas}) > 1:
                return True
    return False


def _fill(proto: onnx.GraphProto, graph: ir.Graph, small: int) -> None:
    proto.name = graph.name or ""
    for value in graph.inputs:
        ir.serde.serialize_value_into(proto.input.add(), value)
    listed = {value.name for value in graph.inputs}
    for name, value in graph.initializers.items():
        if value.const_value is None or value.const_value.nbytes > small:
            if name not in listed and value.const_value is not None:
                _declare(proto, name, value.const_value)
            continue
        ir.serde.serialize_tensor_into(proto.initializer.add(), embedded(value.const_value))
        proto.initializer[-1].name = name
    for node in graph:
        tensor = constant_tensor(node)
        if tensor is not None and tensor.nbytes > small:
            _declare(proto, node.outputs[0].name or "", tensor)
            continue
        ir.serde.serialize_node_into(proto.node.add(), node)
        for value in node.outputs:
            if value.name and value.type is not None and not value.is_graph_output():
                ir.serde.serialize_value_into(proto.value_info.add(), value)
    for value in graph.outputs:
        ir.serde.serialize_value_into(proto.output.add(), value)


def _declare(proto: onnx.GraphProto, name: str, tensor: ir.TensorProtocol) -> None:
    """An input of the type and shape of a tensor."""
    proto.input.append(onnx.helper.make_tensor_value_info(name, int(tensor.dtype), tensor.shape.numpy()))


def _hoist(proto: onnx.ModelProto, small: int) -> None:
    """Make the large weights of subgraphs inputs of the main graph; not those in functions, which cannot read them."""
    inner = [graph for graph in nested([proto.graph]) if graph is not proto.graph]
    taken = Counter(name for graph in (proto.graph, *inner) for name in _names(graph))
    for graph in inner:
        kept = []
        for tensor in graph.initializer:
            external = tensor.data_location == onnx.TensorProto.EXTERNAL
            if (external or tensor.ByteSize() > small) and taken[tensor.name] == 1:
                info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                proto.graph.input.append(info)
            else:
                kept.append(tensor)
        keep_messages(graph.initializer, kept)


def _names(graph: onnx.GraphProto) -> list[str]:
    outputs = [name for node in graph.node for name in node.output]
    return [*(info.name for info in graph.input), *(tensor.name for tensor in graph.initializer), *outputs]
