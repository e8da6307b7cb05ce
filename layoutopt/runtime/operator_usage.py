"""The operators of a model with the element types of their inputs, and the support of the installed onnxruntime for each.

Ops with bodies are not listed, but the ops in their bodies are. A call of a function is one operator, which onnxruntime
composes of those in the function.
"""

from collections.abc import Iterable

import onnx
import onnx_ir as ir
from msgspec.structs import replace

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.onnx_io.interface import type_of
from layoutopt.onnx_io.messages import display_name
from layoutopt.record import Record
from layoutopt.runtime.kernel_queries import Support, node_support
from layoutopt.runtime.type_names import UNKNOWN_TYPE, short_name


class Usage(Record):
    """The nodes with one operator and the same element types.

    Attributes:
        domain: the domain of the operator.
        op_type: the operator.
        opset: the version of the domain that the model imports.
        inputs: the element types of the inputs, empty for omitted inputs.
        nodes: the number of nodes.
        first: the name of the first node.
        support: the support of onnxruntime for them.
    """

    domain: str
    op_type: str
    opset: int
    inputs: tuple[str, ...]
    nodes: int
    first: str
    support: Support


def usages(graph: Graph, model: ir.Model) -> list[Usage]:
    """The operators of the graph of a model with their element types, in the order of the first node of each."""
    functions = {key: ir.serde.serialize_function(each) for key, each in model.functions.items()}
    supports: dict[tuple[object, ...], Support] = {}
    found: dict[tuple[object, ...], Usage] = {}
    for op in (op for each in graph.regions() for op in each.ops if not op.bodies):
        types = ["" if value is None else type_of(value) for value in op.inputs]
        called = functions.values() if (op.domain, op.op_type, op.overload) in functions else ()
        support = _support(op, types, graph.opsets, called, supports)
        inputs = tuple(map(short_name, types))
        key = (op.kind, inputs, support)
        usage = found.get(key) or Usage(op.domain, op.op_type, op.version, inputs, 0, display_name(op), support)
        found[key] = replace(usage, nodes=usage.nodes + 1)
    return list(found.values())


def _support(
    op: Op,
    types: list[str],
    opsets: dict[str, int],
    functions: Iterable[onnx.FunctionProto],
    supports: dict[tuple[object, ...], Support],
) -> Support:
    """The support for an op, queried once for ops that differ in the names of their operands only."""
    if UNKNOWN_TYPE in types:
        return Support("unknown", f"the type of input {types.index(UNKNOWN_TYPE)} is not known")
    assert isinstance(op.origin, ir.Node)
    proto = ir.serde.serialize_node(op.origin)
    node = onnx.NodeProto(op_type=op.op_type, domain=op.domain, overload=op.overload, attribute=proto.attribute)
    node.input.extend(type and f"x{index}" for index, type in enumerate(types))
    node.output.extend("" if value is None else f"y{index}" for index, value in enumerate(op.outputs))
    key = (node.SerializeToString(deterministic=True), *types)
    if key not in supports:
        known = {name: type for name, type in zip(node.input, types, strict=True) if name}
        supports[key] = node_support(node, known, opsets, functions)
    return supports[key]
