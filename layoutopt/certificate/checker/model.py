"""A model as the checker sees it: nodes, constants, inferred types, and the hash of its content."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from layoutopt.certificate.checker.terms import SAME_IN_BLOCKS, Array, Extent, Shape, Term
from layoutopt.errors import CertificateError, ModelError

FIRST_OVERRIDABLE = 4
"""The first version of ONNX's files in which an initializer that is an input too is only a default."""

_ATTRIBUTES = (1, 2, 3, 4, 6, 7)  # of onnx.AttributeProto: float, int, string, tensor, floats, ints
FIRST_OPSET = 7  # before it, operands are broadcast by attributes
NCHWC, MICROSOFT = "com.microsoft.nchwc", "com.microsoft"


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
        blocked: the values that are arrays in blocks, which standard operators see as images of four axes.
        constant_terms: the initializers that were read so far, as terms.
    """

    message: onnx.ModelProto
    digest: str
    producers: dict[str, int] = field(default_factory=dict)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    opsets: dict[str, int] = field(default_factory=dict)
    types: dict[str, tuple[Shape, int]] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)
    constant_terms: dict[str, Term] = field(default_factory=dict)

    @property
    def nodes(self) -> Any:
        """The nodes of the graph."""
        return self.message.graph.node

    @property
    def inputs(self) -> list[str]:
        """The inputs that are no constants."""
        return [value.name for value in self.message.graph.input if value.name not in self.constants]

    @property
    def outputs(self) -> list[str]:
        """The outputs."""
        return [value.name for value in self.message.graph.output]


def read(path: str | Path) -> Model:
    """The model of a file.

    Raises:
        ModelError: it cannot be read.
        CertificateError: it has a part that the checker refuses.
    """
    try:
        message = onnx.load(path)
    except Exception as fault:
        raise ModelError(f"cannot be read ({_line(fault)})", where=str(path)) from fault
    return of_message(message)


def of_message(message: onnx.ModelProto) -> Model:
    """The model of a message with all its data.

    Raises:
        CertificateError: it has a part that the checker refuses.
    """
    graph = message.graph
    if message.functions or message.training_info or graph.sparse_initializer:
        raise CertificateError("functions, training and sparse initializers have no proofs", where=graph.name)
    names = [*(each.name for each in graph.initializer), *(name for node in graph.node for name in node.output if name)]
    inputs = [each.name for each in graph.input]
    for group in (names, inputs, [each.name for each in graph.output]):
        if repeated := [name for name, count in Counter(group).items() if count > 1]:
            raise CertificateError("two values have this name", where=repeated[0])
    model = Model(message, _digest(message))
    model.producers = {name: position for position, node in enumerate(graph.node) for name in node.output if name}
    if clash := model.producers.keys() & {*inputs}:
        raise CertificateError("is computed by a node, and is an input too", where=min(clash))
    model.constants = {tensor.name: tensor for tensor in graph.initializer}
    if message.ir_version >= FIRST_OVERRIDABLE and (defaults := model.constants.keys() & {*inputs}):
        raise CertificateError("is an input with a default, which has no proof", where=min(defaults))
    versions = [("" if each.domain == "ai.onnx" else each.domain, each.version) for each in message.opset_import]
    model.opsets = dict(versions)
    if len(model.opsets) < len(versions) or model.opsets.get("", 0) < FIRST_OPSET:
        raise CertificateError(f"models of opsets before {FIRST_OPSET}, or of two, have no proofs", where=graph.name)
    for node in graph.node:
        _check_node(node, model)
    try:
        onnx.checker.check_model(message)
        model.types = dict(_types(message))
    except CertificateError:
        raise
    except Exception as fault:
        raise CertificateError(f"is no valid model: {_line(fault)}", where=graph.name) from fault
    for each in graph.value_info:
        declared = each.type.tensor_type.elem_type
        if each.type.HasField("tensor_type") and declared != model.types.get(each.name, ((), declared or -1))[1]:
            raise CertificateError("is declared with another element type", where=each.name)
    return model


def _check_node(node: onnx.NodeProto, model: Model) -> None:
    where = node.name or next(filter(None, node.output), node.op_type)
    if node.domain not in ("", "ai.onnx", MICROSOFT, NCHWC):
        raise CertificateError(f"operators of {node.domain} have no proofs", where=where)
    if len({each.name for each in node.attribute}) < len(node.attribute):
        raise CertificateError("has an attribute twice", where=where)
    if any(each.ref_attr_name or each.type not in _ATTRIBUTES for each in node.attribute):
        raise CertificateError("has an attribute that is a body, a reference or a list of texts", where=where)
    if node.domain == NCHWC:
        is_blocked = node.op_type != "ReorderOutput"
    else:
        is_blocked = node.op_type in SAME_IN_BLOCKS and any(name in model.blocked for name in node.input)
    if is_blocked:
        model.blocked.update(node.output)


def _line(fault: Exception) -> str:
    return next(iter(str(fault).splitlines()), type(fault).__name__)


def _digest(message: onnx.ModelProto) -> str:
    """The SHA-256 of a model without its metadata: it does not depend on where weights are stored."""
    found, skeleton = sha256(), onnx.ModelProto()
    skeleton.CopyFrom(message)
    del skeleton.metadata_props[:]
    for tensor in skeleton.graph.initializer:
        elements = array_of(tensor)
        if elements.dtype == object:
            elements = np.frombuffer(repr(elements.tolist()).encode(), np.uint8)
        found.update(repr((tensor.name, tensor.data_type, elements.shape)).encode())
        found.update(np.ascontiguousarray(elements).tobytes())
    del skeleton.graph.initializer[:]
    found.update(skeleton.SerializeToString(deterministic=True))
    return found.hexdigest()


def _types(message: onnx.ModelProto) -> Iterator[tuple[str, tuple[Shape, int]]]:
    """The types that onnx infers from those of the inputs; no other declared shape is trusted."""
    model = onnx.ModelProto()
    model.CopyFrom(message)
    model.graph.ClearField("value_info")
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True).graph
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        extents: list[Extent] = [
            dim.dim_value
            if dim.HasField("dim_value") and dim.dim_value >= 0
            else _extent_name(dim.dim_param) or f"{value.name}[{axis}]"
            for axis, dim in enumerate(dims)
        ]
        if 0 in extents:
            raise CertificateError("has no elements; such values have no proofs", where=value.name)
        if value.type.tensor_type.HasField("shape"):
            yield value.name, (tuple(extents), value.type.tensor_type.elem_type)


def _extent_name(name: str) -> str:
    """The name of a symbolic extent; names that read as numbers or products are quoted."""
    return repr(name).replace("*", "\\x2a") if "*" in name or any(each.isdigit() for each in name[:1]) else name


def attributes(node: onnx.NodeProto, opset: int) -> dict[str, Any]:
    """All attributes of a node, with the defaults of its operator; text is decoded."""
    found: dict[str, Any] = {}
    if node.domain in ("", "ai.onnx"):
        schema = onnx.defs.get_schema(node.op_type, opset, "")
        found = {
            name: helper.get_attribute_value(each.default_value)
            for name, each in schema.attributes.items()
            if each.default_value.name
        }
    found |= {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def array_of(tensor: onnx.TensorProto) -> Array:
    """The elements of a tensor.

    Raises:
        CertificateError: its data do not fit its shape and type.
    """
    try:
        onnx.checker.check_tensor(tensor)
        return numpy_helper.to_array(tensor)
    except Exception as fault:
        raise CertificateError(f"has damaged data: {_line(fault)}", where=tensor.name) from fault
