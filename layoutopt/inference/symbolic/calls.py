"""Calls of functions: the nodes that a call stands for, with the call's values in place of the function's parameters."""

from collections.abc import Mapping
from typing import TypeAlias

import onnx

from layoutopt.onnx_io.reader.lossless import inner_graphs

Key: TypeAlias = tuple[str, str, str]
"""The domain, the name and the overload of a function."""


def opsets_in(importer: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """The version of every domain that a model or a function imports; ai.onnx has the empty name."""
    return {"" if each.domain == "ai.onnx" else each.domain: each.version for each in importer.opset_import}


def functions_of(model: onnx.ModelProto) -> dict[Key, onnx.FunctionProto]:
    """The functions of a model whose bodies have neither calls of other functions nor subgraphs."""
    found = {(each.domain, each.name, each.overload): each for each in model.functions}
    return {
        key: function
        for key, function in found.items()
        if not any(key_of(node) in found for node in function.node) and not any(inner_graphs(function.node))
    }


def key_of(node: onnx.NodeProto) -> Key:
    """The key of the function that a node calls, if it calls one."""
    return node.domain, node.op_type, node.overload


def bound_body(function: onnx.FunctionProto, call: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Copies of the nodes of a function, which read the inputs and attributes of a call and compute its outputs.

    Values inside get names that begin with the name of the call's first output.
    """
    stem = next((name for name in call.output if name), "")
    names = {"": ""}
    names |= {formal: name for formal, name in zip(function.output, call.output, strict=False) if name}
    names |= {
        formal: call.input[place] if place < len(call.input) else "" for place, formal in enumerate(function.input)
    }
    attributes = {each.name: each for each in function.attribute_proto} | {each.name: each for each in call.attribute}
    return [_bound(node, names, attributes, stem) for node in function.node]


def inner_names(body: list[onnx.NodeProto], call: onnx.NodeProto) -> list[str]:
    """The values that the nodes of a call compute and the call does not."""
    return [name for node in body for name in node.output if name and name not in call.output]


def _bound(
    node: onnx.NodeProto, names: dict[str, str], attributes: Mapping[str, onnx.AttributeProto], stem: str
) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for side in (copy.input, copy.output):
        side[:] = [names.setdefault(name, f"{stem}//{name}") for name in side]
    del copy.attribute[:]
    for attribute in node.attribute:
        given = attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if given is not None:
            copy.attribute.add().CopyFrom(given)
            copy.attribute[-1].name = attribute.name
    return copy


__all__ = ["Key", "bound_body", "functions_of", "inner_names", "key_of", "opsets_in"]
