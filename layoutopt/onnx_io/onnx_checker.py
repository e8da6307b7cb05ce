"""Runs onnx's checker and onnx's shape inference on a model, with one-line errors."""

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference

from layoutopt.onnx_io.onnx_messages import NODE, is_tolerated, model_error
from layoutopt.onnx_io.schema import find_schema

_ERRORS = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError)


def check_structure(proto: onnx.ModelProto) -> None:
    """Run onnx's checker. Outputs without a type and unknown ranks, which it refuses, are completed before.

    Raises:
        ModelError: the checker refuses the model; the message is the checker's, on one line.
    """
    try:
        onnx.checker.check_model(_typed(proto))
    except _ERRORS as error:
        raise model_error(error) from error


def _typed(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The message, or a copy in which inputs and outputs without a type or a rank have a type that the checker accepts."""
    if all(_has_rank(info) for info in (*proto.graph.input, *proto.graph.output)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for info in copy.graph.output:
        if not info.type.WhichOneof("value"):
            info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for info in (*copy.graph.input, *copy.graph.output):
        if not _has_rank(info):
            info.type.tensor_type.shape.SetInParent()
    return copy


def _has_rank(info: onnx.ValueInfoProto) -> bool:
    kind = info.type.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or bool(info.type.tensor_type.HasField("shape")))


def check_inference(proto: onnx.ModelProto) -> None:
    """Run onnx's inference on a whole model, strictly.

    Errors in the bodies of onnx's own composite operators, which occur at some opsets, and errors that runtimes tolerate are
    ignored.

    Raises:
        ModelError: the operators' inputs, or what the model declares, contradict each other.
    """
    try:
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=False)
    except _ERRORS as error:
        if not _is_in_composite(str(error), proto) and not _is_too_strict(str(error)):
            raise model_error(error) from error


def _is_in_composite(text: str, proto: onnx.ModelProto) -> bool:
    """Whether an error is in the body that onnx defines for a composite operator."""
    chain = NODE.findall(text.split("\n")[0])
    if len(chain) < 2 or any(function.name == chain[0][0] for function in proto.functions):
        return False
    schema = find_schema(chain[0][0], "", onnx.defs.onnx_opset_version())
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def _is_too_strict(text: str) -> bool:
    """Whether all errors of a message are errors that runtimes tolerate."""
    errors = [line for line in text.split("\n") if NODE.search(line)]
    return bool(errors) and all(map(is_tolerated, errors))
