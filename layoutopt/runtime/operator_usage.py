"""The operators of a model with the element types of their inputs, and the support of the installed onnxruntime for each.

Nodes are visited in execution order: those of a subgraph before the node that has it. The input types of a node are those that
onnxruntime inferred for the previous nodes; the declared types of the file are used only for the outputs of nodes that
onnxruntime cannot run. A call of a function is one operator, which onnxruntime composes of those in the function.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import onnx
import onnx_ir as ir

from layoutopt.onnx_io.messages import display_name, graphs
from layoutopt.onnx_io.schema import opsets_of
from layoutopt.onnx_io.structure import captures_of, constant_tensor
from layoutopt.onnx_io.vocabulary import subgraphs
from layoutopt.runtime.kernel_queries import Support, node_support
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
    """The operators of a model with their element types, in the order of the first node of each, without Constant."""
    opsets = opsets_of(model.opset_imports)
    functions = [ir.serde.serialize_function(each) for each in model.functions.values()]
    types: dict[str, str] = {}
    for graph in model.graphs():
        types |= {value.name or "": type_name(value.type) for value in graph.inputs}
        for name, value in graph.initializers.items():
            tensor = value.const_value
            types[name] = type_name(ir.TensorType(tensor.dtype) if tensor is not None else value.type)
    supports: dict[tuple[object, ...], Support] = {}
    found: dict[tuple[object, ...], Usage] = {}
    failing: set[ir.Graph | ir.Function | None] = set()
    for node in _in_execution_order(model.graph):
        present = [value for value in node.outputs if value.name]
        if (tensor := constant_tensor(node)) is not None:
            types[present[0].name or ""] = type_name(ir.TensorType(tensor.dtype))
            continue
        support = _support(node, types, opsets, functions if node.op_identifier() in model.functions else (), supports)
        if support.status == "missing" and not failing.isdisjoint(subgraphs(node).values()):
            support = Support("unknown", "an op in its body cannot be run")
        if support.status in ("missing", "unknown"):
            failing.add(node.graph)
        outputs = support.outputs or [type_name(value.type) for value in present]
        types |= {value.name or "": type_ for value, type_ in zip(present, outputs, strict=True)}
        names = (value.name if value is not None else "" for value in node.inputs)
        inputs = tuple(short_name(types.get(name, UNKNOWN_TYPE)) if name else "" for name in names)
        opset = opsets.get(node.domain)
        key = (node.domain, node.op_type, opset, inputs, support.status, support.detail)
        usage = found.get(key) or Usage(node.domain, node.op_type, opset, inputs, 0, display_name(node), support)
        found[key] = replace(usage, nodes=usage.nodes + 1)
    return list(found.values())


def _in_execution_order(graph: ir.Graph) -> Iterable[ir.Node]:
    """The nodes of a graph and of its subgraphs, those of a subgraph before the node that has it."""
    found, pending = list[ir.Node](), list(graph)
    while pending:
        found.append(pending.pop())
        pending += [node for inner in subgraphs(found[-1]).values() for node in inner]
    return reversed(found)


def _support(
    node: ir.Node,
    types: Mapping[str, str],
    opsets: Mapping[str, int],
    functions: Iterable[onnx.FunctionProto],
    supports: dict[tuple[object, ...], Support],
) -> Support:
    """The support for a node, queried once for equal nodes."""
    read = dict.fromkeys(value.name for value in node.inputs if value is not None and value.name)
    known = {name: types.get(name, UNKNOWN_TYPE) for name in (*read, *captures_of(node))}
    unknown = [name for name, type_ in known.items() if type_ == UNKNOWN_TYPE]
    if unknown:
        return Support("unknown", f"the type of {unknown[0]} is not known")
    proto = ir.serde.serialize_node(node)
    if not subgraphs(node):
        known = _anonymize(proto, known)
    else:
        known |= {name: types[name] for name in _remove_external(proto)}
    key = (proto.SerializeToString(deterministic=True), *known.items())
    if key not in supports:
        supports[key] = node_support(proto, known, opsets, functions)
    return supports[key]


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
