"""Schemas of operators in onnx's registry, checks of nodes against them, and onnx's checker with one-line errors."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.onnx_io.messages import display_name, refuse_twice

_HINT = "export the model again"

MIN_IR_VERSION = 3  # older files have no opset imports

ONNX_VERSION = str(onnx.__version__)

_NO_OPSET = 1 << 31  # onnx reads opsets as 32-bit numbers, files have 64 bits

_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional
_ONNXRUNTIME_OPS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})


def opsets_of(imports: Mapping[str, int]) -> dict[str, int]:
    """Opset imports with the empty name for ai.onnx, which files may also name `ai.onnx`."""
    return {"" if domain == "ai.onnx" else domain: version for domain, version in imports.items()}


@lru_cache(maxsize=4096)
def find_schema(op_type: str, domain: str, version: int) -> Any:
    """The `OpSchema` of an operator at an opset; None if there is none."""
    if not 0 < version < _NO_OPSET:
        return None
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


@lru_cache(maxsize=1)
def _history() -> dict[tuple[str, str], list[int]]:
    """The opsets at which each operator of onnx's domains changed, by domain and type."""
    found: dict[tuple[str, str], list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        versions = found.setdefault((schema.domain, schema.name), [])
        if not schema.deprecated:
            versions.append(schema.since_version)
    return found


def change_opsets(op_type: str, domain: str) -> list[int]:
    """The opsets at which an operator of onnx's domains changed, in order; empty for other operators."""
    return sorted(_history().get((domain, op_type), ()))


def operators() -> list[tuple[str, str]]:
    """All operators of onnx's domains, as pairs of domain and type."""
    return sorted(_history())


@lru_cache(maxsize=1)
def opsets_of_onnx() -> dict[str, int]:
    """The newest opset of each domain of onnx."""
    return {
        "" if domain == "ai.onnx" else domain: newest
        for domain, (_, newest) in dict(onnx.defs.C.schema_version_map()).items()
    }


def is_onnxruntime_op(domain: str, op_type: str, version: int) -> bool:
    """Whether an operator is saved in ai.onnx by onnxruntime, but has no onnx schema at this opset."""
    return not domain and op_type in _ONNXRUNTIME_OPS and find_schema(op_type, domain, version) is None


def check_versions(proto: onnx.ModelProto) -> None:
    """Raise ModelError for an IR version or an opset that is not supported, and for a domain with two opsets."""
    if not MIN_IR_VERSION <= proto.ir_version <= onnx.IR_VERSION:
        supported = f"{MIN_IR_VERSION} to {onnx.IR_VERSION}"
        what = f"IR version {proto.ir_version} is not supported ({supported} are)"
        raise ModelError(what, where="model", hint="upgrade the onnx package, or export the model again")
    newest = opsets_of_onnx()
    for importer in (proto, *proto.functions):
        versions = dict.fromkeys(
            ("" if each.domain == "ai.onnx" else each.domain, each.version) for each in importer.opset_import
        )
        refuse_twice((domain or "ai.onnx" for domain, _ in versions), "the opset of", "model")
        for domain, version in versions:
            last = newest.get(domain, _NO_OPSET - 1)
            if not 1 <= version <= last:
                what = f"opset {version} of {domain or 'ai.onnx'} is not supported (1 to {last} are)"
                hint = f"upgrade the onnx package (this is {onnx.__version__}), or export for an older opset"
                raise ModelError(what, where="model", hint=hint)


def check_operands(model: ir.Model) -> None:
    """Check properties of nodes that onnx and onnxruntime assume: both read beyond C++ arrays if they do not hold.

    Raises:
        ModelError: a property does not hold; the error names the node.
    """
    parts: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for part in parts:
        opsets = opsets_of(part.opset_imports)
        for node in part.all_nodes():
            if (schema := find_schema(node.op_type, node.domain, opsets.get(node.domain, 0))) is not None:
                _check_operands(node, schema)


def _check_operands(node: ir.Node, schema: Any) -> None:
    for index, value in enumerate(node.inputs):
        parameter = schema.inputs[min(index, len(schema.inputs) - 1)] if schema.inputs else None
        if value is None and parameter is not None and parameter.option != _OPTIONAL:
            raise ModelError(f"input {parameter.name!r} is required", where=display_name(node), hint=_HINT)
    known = {name: attr.value for name, attr in node.attributes.items() if not attr.is_ref()}
    if node.op_type == "Split" and known.get("num_outputs", len(node.outputs)) != len(node.outputs):
        what = f"num_outputs is {known['num_outputs']}, but there are {len(node.outputs)} outputs"
        raise ModelError(what, where=display_name(node), hint=_HINT)
    if node.op_type == "GatherND" and str(known.get("batch_dims", 0)).startswith("-"):
        raise ModelError(f"batch_dims is {known['batch_dims']}", where=display_name(node), hint=_HINT)


_ERRORS = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError)


def check_structure(proto: onnx.ModelProto) -> None:
    """Run onnx's checker. It refuses outputs without a type and unknown ranks, so these are completed in the message before.

    Raises:
        ModelError: the checker refuses the model; the message is the checker's, on one line.
    """
    for info in proto.graph.output:
        if not info.type.WhichOneof("value"):
            info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for info in (*proto.graph.input, *proto.graph.output):
        if not _has_rank(info):
            info.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(proto)
    except _ERRORS as error:
        raise model_error(error) from error


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


NODE = re.compile(r"\(op_type:([^,)]*)(?:, node name: (.*?))?\): ")
"""The text of a node in onnx's messages: its operator and its name."""

_TOLERATED = (
    "Input to 'Range' op should be scalars",
    "Input 0 expected to have rank 2 but has rank 1",
    "Integer overflow",
)
"""Errors for models that ONNX Runtime loads: Range of tensors with one element, as in ONNX's own body of AffineGrid; Gemm of a
vector, which it reads as a matrix of one row; extents that no tensor can have."""

_CONTEXT = re.compile(r"Name: (?P<where>.*?) OpType: ", re.DOTALL)
_TAG = re.compile(r"\[\w*Error\] ?|Inference error\(s\): ?")
_ELEMENT = re.compile(r"(elem type.*?)\((\d+)\) vs \((\d+)\)")


def is_tolerated(text: str) -> bool:
    """Whether runtimes tolerate the fault that an error message of onnx states."""
    return any(each in text for each in _TOLERATED)


def model_error(error: Exception, default: str = "") -> ModelError:
    """The first error of a message of onnx, located at the innermost node that it names.

    If the message names no node, the error is located at `default`, else at the node's operator, else at "model".
    """
    text = str(error).strip()
    first = text.split("\n")[0]
    chain = [name for _, name in NODE.findall(first) if name]
    operators = ["model", *(operator for operator, _ in NODE.findall(first))]
    context = _CONTEXT.search(text)
    where = chain[-1] if chain else context["where"].strip() if context else ""
    what = _TAG.sub("", NODE.split(first)[-1]).strip()
    what = _ELEMENT.sub(lambda found: f"{found[1]}{_element(found[2])} vs {_element(found[3])}", what)
    what = what[:1].lower() + what[1:].rstrip(".")
    return ModelError(what, where=where or default or operators[-1], hint="export the model again")


def _element(code: str) -> str:
    number = int(code)
    return ir.DataType(number).name.lower() if number in set(ir.DataType) else code
