"""Definitions of onnxruntime's own operators in standard ONNX operators, as functions that any machine runs.

Some operators exist on some machines only. A model with them runs elsewhere, after `define`, by their semantics:

    before: com.microsoft.nchwc.Conv(x, w)
    after:  layoutopt.nchwc.Conv_0(x, w), a function: unpack x and w -> Conv -> pack

Every distinct call gets a function of its own, with its attributes as numbers. The modules:

    body     records the nodes of a definition
    blocked  com.microsoft.nchwc, which exists with the block size of the machine
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import helper

from layoutopt.onnx_io.messages import nodes
from layoutopt.runtime.definitions import blocked
from layoutopt.runtime.definitions.blocked import placeholder
from layoutopt.runtime.definitions.body import Body, Definition
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN


@dataclass(frozen=True, slots=True)
class NativeOperators:
    """Native operators of one domain, which exist on the same machines.

    Attributes:
        domain: the domain of the operators.
        definition_domain: the domain of their definitions, in a model that runs without the kernels.
        definitions: by operator.
    """

    domain: str
    definition_domain: str
    definitions: Mapping[str, Definition]

    def has(self, node: onnx.NodeProto) -> bool:
        """Whether a node is one of the operators."""
        return node.domain == self.domain and node.op_type in self.definitions


BLOCKED = NativeOperators(BLOCKED_DOMAIN, "layoutopt.nchwc", blocked.DEFINITIONS)
"""Operators for blocks of channels; onnxruntime has them for the block size of the machine."""


def define(message: onnx.ModelProto, operators: NativeOperators, block: int = 1) -> None:
    """Replace every native operator in a model by a call of its definition, in place.

    Args:
        message: the model.
        operators: the native operators.
        block: channels per block, for `BLOCKED`.
    """
    opset = next((each.version for each in message.opset_import if each.domain in ("", "ai.onnx")), 1)
    functions: dict[tuple[Any, ...], onnx.FunctionProto] = {}
    for node in nodes(message):
        if operators.has(node):
            _drop_omitted(node)
            key = _signature(node)
            if key not in functions:
                body = Body(opset, block)
                functions[key] = _definition(node, operators, body, f"{node.op_type}_{len(functions)}")
            node.domain, node.op_type = operators.definition_domain, functions[key].name
    message.functions.extend(functions.values())
    if functions:
        message.opset_import.add(domain=operators.definition_domain, version=1)


def _definition(node: onnx.NodeProto, operators: NativeOperators, body: Body, name: str) -> onnx.FunctionProto:
    """The definition of one call, as a function with a name."""
    names = [f"x{index}" if name else "" for index, name in enumerate(node.input)]
    attributes = {attr.name: helper.get_attribute_value(attr) for attr in node.attribute}
    results = operators.definitions[node.op_type](body, names, attributes)[: len(node.output)]
    inputs = [f"x{index}" for index in range(len(names))]
    imports = [helper.make_opsetid("", body.opset)]
    return helper.make_function(operators.definition_domain, name, inputs, results, body.nodes, imports)


def _signature(node: onnx.NodeProto) -> tuple[Any, ...]:
    """Equal for calls that share a definition: operator, attributes, present inputs, number of outputs."""
    attributes = sorted(attr.SerializeToString(deterministic=True) for attr in node.attribute)
    return (node.op_type, tuple(attributes), tuple(bool(name) for name in node.input), len(node.output))


def _drop_omitted(node: onnx.NodeProto) -> None:
    """Drop omitted inputs and outputs at the end."""
    for names in (node.input, node.output):
        while names and not names[-1]:
            del names[-1]


__all__ = ["BLOCKED", "Definition", "NativeOperators", "define", "placeholder"]
