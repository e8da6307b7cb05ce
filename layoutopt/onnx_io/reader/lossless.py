"""Refuses messages with content that onnx_ir would drop or merge without an error."""

from collections.abc import Iterable, Iterator

import onnx

from layoutopt.errors import ModelError
from layoutopt.onnx_io.sidecar import has_map

MIN_IR_VERSION = 3  # older files have no opset imports
_WITH_DEVICES = 11  # in older files onnx_ir drops device configurations
_HINT = "export the model again"
_MESSAGES = {onnx.AttributeProto.TENSOR: "t", onnx.AttributeProto.GRAPH: "g", onnx.AttributeProto.TYPE_PROTO: "tp"}


def refuse_losses(proto: onnx.ModelProto) -> None:
    """Raise ModelError for the first part of a model that onnx_ir would lose."""
    _refuse_twice((_function_name(function) for function in proto.functions), "function", "model")
    _refuse_twice((prop.key for prop in proto.metadata_props), "metadata key", "model")
    _check_devices(proto)
    for function in proto.functions:
        name = _function_name(function)
        _refuse_twice(function.input, "input", name)
        _refuse_twice([*function.attribute, *(attr.name for attr in function.attribute_proto)], "attribute", name)
        _refuse_outputs_twice(function.input, function.node, name)
        if missing := set(function.output) - set(function.input) - _produced(function.node):
            raise ModelError(f"nothing computes output {min(missing)!r}", where=name, hint=_HINT)
    for graph in graphs(proto):
        _check_graph(graph)
    for node in nodes(proto):
        _check_node(node)
    for graph in nested([proto.graph]):
        _refuse_references(graph.node)


def check_versions(proto: onnx.ModelProto) -> None:
    """Raise ModelError for an IR version that is not supported, or two versions of one opset."""
    if not MIN_IR_VERSION <= proto.ir_version <= onnx.IR_VERSION:
        supported = f"{MIN_IR_VERSION} to {onnx.IR_VERSION}"
        raise ModelError(
            f"IR version {proto.ir_version} is not supported ({supported} are)",
            where="model",
            hint="upgrade the onnx package, or export the model again",
        )
    versions: dict[str, int] = {}
    for opset in proto.opset_import:
        domain = "" if opset.domain == "ai.onnx" else opset.domain
        if versions.setdefault(domain, opset.version) != opset.version:
            raise ModelError(
                f"{domain or 'ai.onnx'} is imported at versions {versions[domain]} and {opset.version}",
                where="model",
                hint="keep one",
            )


def _check_devices(proto: onnx.ModelProto) -> None:
    placed = [node for node in nodes(proto) if node.device_configurations]
    if (proto.configuration or placed) and proto.ir_version < _WITH_DEVICES:
        where = display_name(placed[0]) if placed else "model"
        raise ModelError(f"device configurations need IR version {_WITH_DEVICES}", where=where, hint=_HINT)
    for node in placed:
        for each in node.device_configurations:
            if not each.configuration_id:
                raise ModelError("a device configuration has no name", where=display_name(node), hint=_HINT)
            if not all(spec.tensor_name for spec in each.sharding_spec):
                raise ModelError("a device configuration names no tensor", where=display_name(node), hint=_HINT)


def _check_graph(graph: onnx.GraphProto) -> None:
    where = f"graph {graph.name!r}"
    if not all(tensor.name for tensor in graph.initializer):
        raise ModelError("an initializer has no name", where=where, hint=_HINT)
    _refuse_twice((info.name for info in graph.input), "input", where)
    _refuse_twice((tensor.name for tensor in graph.initializer), "initializer", where)
    _refuse_twice((annotation.tensor_name for annotation in graph.quantization_annotation), "annotation", where)
    taken = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    _refuse_outputs_twice(taken, graph.node, where)
    if "" in taken:
        raise ModelError("an input has no name", where=where, hint=_HINT)
    for info in (*graph.input, *graph.output, *graph.value_info):
        _check_type(info.type, info.name)
        if has_map(info.type):
            raise ModelError("maps in subgraphs are not supported", where=info.name, hint="move it to the main graph")
    declared = {info.name: info.type for info in graph.input}
    for info in (*graph.output, *graph.value_info):
        if info.name in declared and contradict(declared[info.name], info.type):
            raise ModelError("is declared twice, as different types", where=info.name, hint=_HINT)


def contradict(one: onnx.TypeProto, other: onnx.TypeProto) -> bool:
    """Whether two declared types, each possibly partial, cannot both hold for one value."""
    kinds = {each.WhichOneof("value") for each in (one, other)}
    for kind in kinds & {"sequence_type", "optional_type"} if len(kinds) == 1 else ():
        return contradict(getattr(one, kind).elem_type, getattr(other, kind).elem_type)
    if kinds - {None} != {"tensor_type"}:
        return len(kinds - {None}) > 1
    first, second = one.tensor_type, other.tensor_type
    if first.elem_type and second.elem_type and first.elem_type != second.elem_type:
        return True
    if not first.HasField("shape") or not second.HasField("shape"):
        return False
    dims = list(zip(first.shape.dim, second.shape.dim, strict=False))
    numbers = [(a.dim_value, b.dim_value) for a, b in dims if a.HasField("dim_value") and b.HasField("dim_value")]
    differ = any(a != b and min(a, b) >= 0 for a, b in numbers)  # a negative extent is unknown
    return differ or len(first.shape.dim) != len(second.shape.dim)


def _check_type(type_: onnx.TypeProto, where: str) -> None:
    while (kind := type_.WhichOneof("value")) in ("sequence_type", "optional_type"):
        type_ = getattr(type_, kind).elem_type
    if kind in ("tensor_type", "sparse_tensor_type"):
        element = getattr(type_, kind).elem_type
        if element not in onnx.TensorProto.DataType.values():
            raise ModelError(
                f"element type {element} is unknown", where=where or "model", hint="upgrade the onnx package"
            )


def _check_node(node: onnx.NodeProto) -> None:
    where = display_name(node)
    _refuse_twice((attr.name for attr in node.attribute), "attribute", where)
    for attr in node.attribute:
        if attr.type in (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS):
            raise ModelError(f"attribute {attr.name!r} is a sparse tensor", where=where, hint="make it dense")
        if attr.type == onnx.AttributeProto.UNDEFINED:
            raise ModelError(f"attribute {attr.name!r} has no type", where=where, hint=_HINT)
        if attr.type in _MESSAGES and not attr.ref_attr_name and not attr.HasField(_MESSAGES[attr.type]):
            raise ModelError(f"attribute {attr.name!r} has no value", where=where, hint=_HINT)


def _refuse_references(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attr in node.attribute:
            if attr.ref_attr_name:
                what = f"attribute {attr.name!r} refers to one of a function, and is in none"
                raise ModelError(what, where=display_name(node), hint=_HINT)


def display_name(node: onnx.NodeProto) -> str:
    """The name of a node in errors: its own, or else its op type and first output."""
    return node.name or f"{node.op_type} -> {next((name for name in node.output if name), '?')}"


def graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The main graph and all graphs in attributes, at every depth, including those of functions."""
    yield from nested([proto.graph, *(g for function in proto.functions for g in inner_graphs(function.node))])


def nested(graphs: Iterable[onnx.GraphProto]) -> Iterator[onnx.GraphProto]:
    """The given graphs and all graphs in attributes in them, at every depth."""
    pending = list(graphs)
    while pending:
        graph = pending.pop()
        yield graph
        pending.extend(inner_graphs(graph.node))


def nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of every graph and function."""
    for function in proto.functions:
        yield from function.node
    for graph in graphs(proto):
        yield from graph.node


def inner_graphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs in the attributes of nodes, without those nested in them."""
    for node in nodes:
        for attr in node.attribute:
            if attr.HasField("g"):
                yield attr.g
            yield from attr.graphs


def _produced(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    return {name for node in nodes for name in node.output}


def _refuse_outputs_twice(taken: Iterable[str], nodes: Iterable[onnx.NodeProto], where: str) -> None:
    seen = dict.fromkeys(taken, where)
    for node in nodes:
        for name in node.output:
            if name and name in seen:
                raise ModelError(
                    f"{name!r} is computed by {display_name(node)!r} and defined by {seen[name]!r} too",
                    where=display_name(node),
                    hint="give every value a name of its own",
                )
            seen[name] = display_name(node)


def _refuse_twice(names: Iterable[str], what: str, where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"{what} {name!r} occurs twice", where=where, hint="keep one")
        seen.add(name)


def _function_name(function: onnx.FunctionProto) -> str:
    return f"{function.domain}::{function.name}" + (f":{function.overload}" if function.overload else "")
