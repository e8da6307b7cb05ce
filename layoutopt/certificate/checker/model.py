"""A model as the checker sees it: nodes, constants, inferred types, and the hash of its files."""

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import helper, numpy_helper

from layoutopt.certificate.checker.terms import Extent, Shape, Term, UnprovableError
from layoutopt.errors import ModelError

_WITHOUT_PROOF = frozenset(
    ["RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike", "Multinomial", "Bernoulli", "Dropout"]
)
FIRST_OVERRIDABLE = 4
"""The first version of ONNX's files in which an initializer that is an input too is only a default."""


@dataclass(slots=True)
class Model:
    """A model, its nodes by output, and its constants.

    Attributes:
        message: the model, with external data.
        digest: the SHA-256 of its content.
        producers: the index of the node that computes a value.
        constants: initializers, by name.
        opsets: versions of operator sets, by domain.
        types: inferred shapes and element types; an extent that is not known has a name of its own.
        constant_terms: the initializers that were read so far, as terms.
    """

    message: onnx.ModelProto
    digest: str
    producers: dict[str, int] = field(default_factory=dict)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    opsets: dict[str, int] = field(default_factory=dict)
    types: dict[str, tuple[Shape, int]] = field(default_factory=dict)
    constant_terms: dict[str, Term] = field(default_factory=dict)

    @property
    def nodes(self) -> Any:
        """The nodes of the graph."""
        return self.message.graph.node

    @property
    def inputs(self) -> list[str]:
        """The inputs that are no initializers."""
        return [value.name for value in self.message.graph.input if value.name not in self.constants]

    @property
    def outputs(self) -> list[str]:
        """The outputs."""
        return [value.name for value in self.message.graph.output]


def read(path: str | Path) -> Model:
    """The model of a file.

    Raises:
        ModelError: it cannot be read.
    """
    try:
        message = onnx.load(path)
    except Exception as fault:
        raise ModelError(f"cannot be read ({str(fault).splitlines()[0]})", where=str(path)) from fault
    return of_message(message)


def of_message(message: onnx.ModelProto) -> Model:
    """The model of a message with all its data; its functions are inlined."""
    digest = _digest(message)
    if any(each.domain in ("", "ai.onnx") or each.domain.startswith("com.microsoft") for each in message.functions):
        raise ModelError("a function has the name of an operator", where=message.functions[0].name)
    if message.functions:
        message = onnx.inliner.inline_local_functions(message)
    if message.functions:
        raise ModelError("a function of another opset is not inlined", where=message.functions[0].name)
    if message.graph.sparse_initializer:
        raise ModelError("sparse initializers have no proofs", where=message.graph.name)
    model = Model(message, digest)
    graph = message.graph
    for position, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in model.producers:
                raise ModelError("two nodes have this output", where=name)
            model.producers[name] = position
    given = {each.name for each in graph.input} if message.ir_version >= FIRST_OVERRIDABLE else set()
    model.constants = {each.name: each for each in graph.initializer if each.name not in given}
    if clash := model.producers.keys() & {*given, *model.constants}:
        raise ModelError("is computed by a node, and is an input or initializer too", where=min(clash))
    model.opsets = {"" if each.domain == "ai.onnx" else each.domain: each.version for each in message.opset_import}
    model.types = _types(message)
    return model


def _digest(message: onnx.ModelProto) -> str:
    """The SHA-256 of a model without its metadata: it does not depend on where weights are stored."""
    found = sha256()
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(message)
    del skeleton.metadata_props[:]
    for tensor in skeleton.graph.initializer:
        elements = numpy_helper.to_array(tensor)
        if elements.dtype == object:
            elements = np.frombuffer(repr(elements.tolist()).encode(), np.uint8)
        found.update(repr((tensor.name, tensor.data_type, elements.shape)).encode())
        found.update(np.ascontiguousarray(elements).tobytes())
    del skeleton.graph.initializer[:]
    found.update(skeleton.SerializeToString(deterministic=True))
    return found.hexdigest()


def _types(message: onnx.ModelProto) -> dict[str, tuple[Shape, int]]:
    try:
        graph = onnx.shape_inference.infer_shapes(message, data_prop=True).graph
    except Exception:  # a model of more than 2 GB, or one that onnx cannot infer: declared types only
        graph = message.graph
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            extents: list[Extent] = [
                dim.dim_value
                if dim.HasField("dim_value") and dim.dim_value >= 0
                else _extent_name(dim.dim_param) or f"{value.name}[{axis}]"
                for axis, dim in enumerate(tensor.shape.dim)
            ]
            found[value.name] = tuple(extents), tensor.elem_type
    return found


def _extent_name(name: str) -> str:
    """The name of a symbolic extent; names that read as numbers or products are quoted."""
    return repr(name).replace("*", "\\x2a") if "*" in name or any(each.isdigit() for each in name[:1]) else name


def attributes(node: onnx.NodeProto, opset: int) -> dict[str, Any]:
    """All attributes of a node, with the defaults of its operator; text is decoded."""
    found: dict[str, Any] = {}
    if node.domain in ("", "ai.onnx"):
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, "")
            found = {
                name: helper.get_attribute_value(each.default_value)
                for name, each in schema.attributes.items()
                if each.default_value.name
            }
        except Exception:
            found = {}
    found |= {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def without_captured_names(graph: onnx.GraphProto) -> tuple[onnx.GraphProto, list[str]]:
    """The body of a control-flow operator with numbers for the outer values that it reads, and their names."""
    body = onnx.GraphProto()
    body.CopyFrom(graph)
    found: dict[str, str] = {}
    if b"captured " in graph.SerializeToString():
        raise UnprovableError("a body has a name that the checker uses")

    def visit(part: onnx.GraphProto, outer: frozenset[str]) -> None:
        own = {each.name for each in (*part.input, *part.initializer)} | {
            name for node in part.node for name in node.output
        }
        known = outer | own
        for node in part.node:
            if node.op_type in _WITHOUT_PROOF or node.domain not in ("", "ai.onnx"):
                raise UnprovableError(f"a body has the operator {node.op_type}")
            for place, name in enumerate(node.input):
                if name and name not in known:
                    node.input[place] = found.setdefault(name, f"captured {len(found)}")
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    visit(inner, known)
        for value in part.output:
            if value.name not in known:
                value.name = found.setdefault(value.name, f"captured {len(found)}")

    visit(body, frozenset())
    return body, list(found)


def array_of(tensor: onnx.TensorProto) -> Any:
    """The elements of a tensor."""
    return numpy_helper.to_array(tensor)
