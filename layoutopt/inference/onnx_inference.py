"""onnx's own judgement of a model: its checker and its shape inference, with one-line errors."""

import re
from collections.abc import Mapping

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.inference.contrib import explain
from layoutopt.inference.symbolic import Boundaries, Refined, refine
from layoutopt.ir.types import OpaqueType, TensorType
from layoutopt.onnx_io.converter.vocabulary import DimNames
from layoutopt.onnx_io.reader.lossless import graphs, inner_graphs
from layoutopt.onnx_io.schema import find_schema
from layoutopt.onnx_io.sidecar import has_map

_NODE = re.compile(r"\(op_type:([^,)]*)(?:, node name: (.*?))?\): ")
_CONTEXT = re.compile(r"Name: (?P<where>.*?) OpType: ", re.DOTALL)
_ERRORS = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError)
_TAG = re.compile(r"\[\w*Error\] ?|Inference error\(s\): ?")
_ELEMENT = re.compile(r"(elem type.*?)\((\d+)\) vs \((\d+)\)")
_TOO_STRICT = ("Input to 'Range' op should be scalars", "Input 0 expected to have rank 2 but has rank 1 in node Gemm")
"""Complaints about what ONNX Runtime runs: Range of tensors with one element, which ONNX's own body of AffineGrid has; Gemm of
a vector, which it reads as a matrix of one row."""

_LONGEST = 1 << 21
"""Elements of lists, all together, past which their values are not followed; each takes some 70 bytes."""


def check_structure(proto: onnx.ModelProto) -> None:
    """Run onnx's checker. Outputs without a type, which only it refuses, are inferred first; so does it refuse unknown ranks.

    Raises:
        ModelError: what the checker says, on one line.
    """
    if not all(info.HasField("type") for info in proto.graph.output):
        proto = infer(proto, follow_values=False)
        _type_repeated_outputs(proto)
    try:
        onnx.checker.check_model(_with_ranks(proto))
    except _ERRORS as error:
        raise _model_error(error) from error


def _type_repeated_outputs(proto: onnx.ModelProto) -> None:
    """Give outputs without a type that of an output of the same name: inference finds the type of one of them."""
    types = {info.name: info.type for info in proto.graph.output if info.type.WhichOneof("value")}
    for info in proto.graph.output:
        if not info.type.WhichOneof("value") and info.name in types:
            info.type.CopyFrom(types[info.name])


def _with_ranks(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The message; a copy where inputs or outputs have no shape, with one that the checker takes. It does not infer."""
    if all(_has_rank(info) for info in (*proto.graph.input, *proto.graph.output)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for info in (*copy.graph.input, *copy.graph.output):
        if not _has_rank(info):
            info.type.tensor_type.shape.SetInParent()
    return copy


def _has_rank(info: onnx.ValueInfoProto) -> bool:
    return not info.type.HasField("tensor_type") or info.type.tensor_type.HasField("shape")


def infer(proto: onnx.ModelProto, *, follow_values: bool = True) -> onnx.ModelProto:
    """Strict inference, weakened step by step where strictness is known to refuse valid models.

    Propagating values through shape computations is younger than the rest, so a complaint counts only if it
    is there without that as well. The bodies of some of onnx's own composite operators do not pass at every
    opset, and some complaints are about what runtimes do not mind.

    Args:
        proto: the model.
        follow_values: whether to propagate values, which finds more shapes and no more contradictions.

    Raises:
        ModelError: the operators' inputs, or what the model declares, contradict each other.
    """
    try:
        found = _infer(proto, strict=True, follow_values=False)
    except _ERRORS as error:
        if not _in_composite(str(error), proto) and not _is_too_strict(str(error)):
            raise _model_error(error) from error
        found = _infer(proto, strict=False, follow_values=False)
    if not follow_values or _listed(found) > _LONGEST:
        return found
    try:
        return _infer(proto, strict=True, follow_values=True)
    except _ERRORS:
        return _infer(proto, strict=False, follow_values=True)


def _infer(proto: onnx.ModelProto, *, strict: bool, follow_values: bool) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(proto, check_type=strict, strict_mode=strict, data_prop=follow_values)


def _listed(proto: onnx.ModelProto) -> int:
    """How many elements lists have, all together: onnx takes every one for a shape, and notes its elements one by one."""
    values = (info for graph in graphs(proto) for info in (*graph.input, *graph.value_info, *graph.output))
    shapes = (info.type.tensor_type.shape.dim for info in values)
    return sum(dims[0].dim_value for dims in shapes if len(dims) == 1)


def infer_types(
    proto: onnx.ModelProto, names: DimNames, inputs: Mapping[str, TensorType | OpaqueType], boundaries: Boundaries
) -> Refined:
    """The type of every value that inference knows, by name, in subgraphs too, and what small integer tensors hold.

    Args:
        proto: the model.
        names: for dimensions.
        inputs: the types of the model's inputs where they are more than the message says.
        boundaries: what crosses into the bodies of nodes and out.

    Raises:
        ModelError: as for `infer`.
    """
    found: dict[str, TensorType | OpaqueType] = {}
    inferred = _inferred(proto)
    pending = [inferred.graph]
    for graph in pending:  # it grows by the subgraphs of every graph
        pending += inner_graphs(graph.node)
        for info in (*graph.input, *graph.value_info, *graph.output):
            if has_map(info.type):
                found[info.name] = OpaqueType("map")
            elif info.HasField("type"):
                value = ir.serde.deserialize_value_info_proto(info, None)
                found[info.name] = names.type(value.type, value.shape)
    return refine(inferred, found | dict(inputs), names, boundaries)


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Inference that looks into operators of onnxruntime, unless it refuses what they are said to be."""
    explained = onnx.ModelProto()
    explained.CopyFrom(proto)
    if explain(explained, ""):
        proto = onnx.ModelProto()
        proto.CopyFrom(explained)
    if explain(explained):
        try:
            return infer(explained)
        except ModelError:
            pass  # the model's own contradictions are found below, if there are any
    return infer(proto)


def _in_composite(text: str, proto: onnx.ModelProto) -> bool:
    """Whether a complaint is about the body that onnx itself gives an operator."""
    chain = _NODE.findall(text.split("\n")[0])
    if len(chain) < 2 or any(function.name == chain[0][0] for function in proto.functions):
        return False
    schema = find_schema(chain[0][0], "", onnx.defs.onnx_opset_version())
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def _is_too_strict(text: str) -> bool:
    """Whether nothing is complained of but what runtimes do not mind."""
    complaints = [line for line in text.split("\n") if _NODE.search(line)]
    return bool(complaints) and all(any(each in line for each in _TOO_STRICT) for line in complaints)


def _model_error(error: Exception) -> ModelError:
    """The first complaint of a message of onnx, and the innermost node that it is about."""
    text = str(error).strip()
    first = text.split("\n")[0]
    chain = [name for _, name in _NODE.findall(first) if name]
    context = _CONTEXT.search(text)
    where = chain[-1] if chain else context["where"].strip() if context else ""
    what = _TAG.sub("", _NODE.split(first)[-1]).strip()
    what = _ELEMENT.sub(lambda found: f"{found[1]}{_element(found[2])} vs {_element(found[3])}", what)
    return ModelError(what[:1].lower() + what[1:].rstrip("."), where=where or "model", hint="export the model again")


def _element(code: str) -> str:
    number = int(code)
    return ir.DataType(number).name.lower() if number in set(ir.DataType) else code
