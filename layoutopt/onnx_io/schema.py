"""Schemas of operators in onnx's registry, and checks of nodes against them."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import onnx
import onnx.defs
import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.onnx_io.converter.vocabulary import subgraphs

_HINT = "export the model again"

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
    return {"" if domain == "ai.onnx" else domain: newest for domain, (_, newest) in _version_map().items()}


def _version_map() -> dict[str, tuple[int, int]]:
    return dict(onnx.defs.C.schema_version_map())


def is_onnxruntime_op(domain: str, op_type: str, version: int) -> bool:
    """Whether an operator is saved in ai.onnx by onnxruntime, but has no onnx schema at this opset."""
    return not domain and op_type in _ONNXRUNTIME_OPS and find_schema(op_type, domain, version) is None


def check_ops(model: ir.Model) -> None:
    """Check that the operators of onnx's domains exist at the imported opset; other domains are not checked.

    Raises:
        ModelError: an operator does not exist; the error names the node.
    """
    local = {(function.domain, function.name) for function in model.functions.values()}
    _check(model.graph, opsets_of(model.opset_imports), local)
    for function in model.functions.values():
        _check(function, opsets_of(function.opset_imports), local)


def _check(nodes: Iterable[ir.Node], opsets: dict[str, int], local: set[tuple[str, str]]) -> None:
    newest = opsets_of_onnx()
    for domain, imported in opsets.items():
        if domain in newest and not 1 <= imported <= newest[domain]:
            raise ModelError(
                f"opset {imported} of {domain or 'ai.onnx'} is not supported (1 to {newest[domain]} are)",
                where="model",
                hint=f"upgrade the onnx package (this is {onnx.__version__}), or export for an older opset",
            )
    pending = list(nodes)[::-1]
    while pending:
        node = pending.pop()
        pending.extend(inner for graph in subgraphs(node) for inner in graph)
        version = opsets.get(node.domain)
        if version is not None and is_onnxruntime_op(node.domain, node.op_type, version):
            continue
        if node.domain in newest and (node.domain, node.op_type) not in local:
            _check_node(node, version)


def _check_node(node: ir.Node, version: int | None) -> None:
    domain = node.domain or "ai.onnx"
    if version is None:
        raise ModelError(f"the model imports no opset of {domain}", where=display_name(node), hint=_HINT)
    schema = find_schema(node.op_type, node.domain, version)
    if schema is not None and not schema.deprecated:
        _check_operands(node, schema)
        return
    if schema is not None:
        what = f"operator {node.op_type} is deprecated in opset {version} of {domain}"
    elif onnx.defs.has(node.op_type, node.domain):
        what = f"operator {node.op_type} does not exist yet in opset {version} of {domain}"
    else:
        what = f"there is no operator {node.op_type!r} in {domain}"
    hint = "declare the opset that the model was written for, or put the node in a domain of its own"
    raise ModelError(what, where=display_name(node), hint=hint)


def _check_operands(node: ir.Node, schema: Any) -> None:
    """Check properties that onnx and onnxruntime assume: both read beyond C++ arrays if they do not hold."""
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


def display_name(node: ir.Node) -> str:
    """The name of a node in errors: its own, or else its op type and first output."""
    return node.name or f"{node.op_type} -> {next((value.name for value in node.outputs if value.name), '?')}"
