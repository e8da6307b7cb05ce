"""Lift: from a model of onnx_ir to the graph that the passes work on.

The structure (names, producers, cycles) is built and checked first, then onnx's checker runs on it. Then types are inferred.

A model declares shapes of computed values in `value_info` and for its outputs, and some exporters and graph editors leave
wrong ones there. ONNX Runtime warns and uses the shapes that it infers; onnx's inference fails, or uses the declared shapes.
If element types contradict each other, ONNX Runtime refuses the model.

A model that onnxruntime saved has operators of onnxruntime's domains, and often no declared types of inner values. onnx's
inference stops at the first such operator, and layout rules require known ranks. An onnxruntime session of the model without
weights and without optimisations has the types of all values. If onnxruntime refuses the model, these types remain unknown.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.formats import Dim, Extent, is_unknown
from layoutopt.inference.driver import Inference, infer
from layoutopt.inference.op_inference import HINT, ValueType, type_proto
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, OpaqueType, TensorType, Value
from layoutopt.onnx_io.emission import Emission
from layoutopt.onnx_io.messages import contradict, nodes
from layoutopt.onnx_io.reader import from_message, read
from layoutopt.onnx_io.repair import Repair, repairs_of
from layoutopt.onnx_io.schema import (
    check_attributes,
    check_ops,
    check_structure,
    find_schema,
    is_onnxruntime_op,
    operators,
    opsets_of,
)
from layoutopt.onnx_io.serialize import UNCHECKED_DOMAIN, to_bytes, to_proto, weightless_message
from layoutopt.onnx_io.structure import build
from layoutopt.onnx_io.vocabulary import FROM_IR, DimNames, drop_declared_shape
from layoutopt.runtime import type_names
from layoutopt.runtime.duplicate_definitions import loads
from layoutopt.runtime.errors import RUNTIME_ERRORS
from layoutopt.runtime.session import Session


def lift(model: ir.Model, *, strict: bool = False) -> Graph:
    """Build the graph of a model and check that the model is valid.

    Args:
        model: the model, which is not changed.
        strict: whether to refuse a model that had to be repaired. If not, the graph lists the repairs, here and at reading;
            ONNX Runtime has to load the original, or else they are refused as well.

    Raises:
        ModelError: two values of one name, an input that nothing computes, a cycle, an operator that does not
            exist, shapes or element types that contradict each other.
    """
    names = DimNames()
    graph = Graph(model.graph.name or "", opsets_of(model.opset_imports), origin=model)
    graph.metadata = dict(model.metadata_props)
    build(model, model.graph, graph, names)
    check_ops(model)
    add_runtime_types(graph, names)
    check_structure(weightless_message(Emission(graph).model))
    recorded = repairs_of(model)
    repairs = list(recorded.found) if recorded is not None else []
    if strict:
        infer_with_declarations(graph, names)
        check_attributes(graph)
    else:
        repairs += _infer(graph, names)
    if repairs and (strict or not _runtime_loads(model)):
        raise _strict_refusal(model, repairs[0])
    graph.repairs = [(each.where, each.reason) for each in repairs]
    return graph


def _infer(graph: Graph, names: DimNames) -> list[Repair]:
    """Infer the types of a graph; returns the repairs of declared shapes."""
    try:
        repairs = infer_before_declarations(graph, names)
        check_attributes(graph)
    except ModelError as error:
        return [infer_leniently(graph, names, error)]
    else:
        return repairs


def _runtime_loads(model: ir.Model) -> bool:
    """Whether ONNX Runtime loads a model as it was before any repair."""
    recorded = repairs_of(model)
    return loads(to_bytes(model)) if recorded is None else recorded.is_confirmed()


def _strict_refusal(model: ir.Model, repair: Repair) -> ModelError:
    """The error of reading the source of a repaired model without repairs."""
    recorded = repairs_of(model)
    source = recorded.source if recorded is not None else to_proto(model)
    try:
        lift(read(source, strict=True) if isinstance(source, Path) else from_message(source, strict=True), strict=True)
    except ModelError as error:
        return error
    return ModelError(repair.fault, where=repair.where, hint=HINT)


def infer_with_declarations(graph: Graph, names: DimNames) -> None:
    """Infer and set the types of the values of a graph; a wrong declared shape is an error.

    Raises:
        ModelError: types contradict each other.
    """
    declared = _declared(graph)
    infer(graph, names, declared).commit()
    for value, type in _misdeclared_elements(declared).items():
        raise ModelError(_fault(value, type), where=value.name, hint=HINT)


def infer_again(graph: Graph) -> None:
    """Infer types again, after passes have added constants.

    Raises:
        ModelError: shapes contradict each other.
    """
    values = (value for each in graph.regions() for value in each.values)
    infer_with_declarations(graph, DimNames(_names(values)))


def infer_leniently(graph: Graph, names: DimNames, contradiction: ModelError) -> Repair:
    """Infer the types of a graph in which shapes contradict each other; values behind the contradiction have unknown shapes.

    Args:
        graph: the graph, whose `contradiction` is set.
        names: generates names of dimensions.
        contradiction: the error of `infer_before_declarations`.

    Raises:
        ModelError: element types contradict each other.
    """
    declared = _declared(graph)
    bare = {value: TensorType(type.dtype, None) for value, type in declared.items() if isinstance(type, TensorType)}
    Inference(graph, names, declared | bare, is_lenient=True).commit()
    graph.contradiction = (contradiction.where, contradiction.what)
    return Repair(contradiction.where, contradiction.what, "onnxruntime loads it, so the model is left as it is")


def infer_before_declarations(graph: Graph, names: DimNames) -> list[Repair]:
    """Infer the types of a graph without declared shapes; then add the declared extents that inference does not find.

    No declared extents of the outputs of a graph are added: graph editors leave wrong ones there most often, and a plan gains
    nothing by them. Emitted models declare the shapes of outputs that do not contradict inference, unless another declared
    shape is wrong: ONNX Runtime fuses Reshapes by declared shapes.

    Returns:
        The declared shapes that contradict the inferred ones.

    Raises:
        ModelError: inferred types contradict each other even without declared shapes.
    """
    everything = _declared(graph)
    found, declared = _infer_without_shapes(graph, names)
    outputs = {value for each in graph.regions() for value in each.outputs} - _body_inputs(graph)
    known = _names(graph.inputs)
    extended = _declared_only({value: type for value, type in declared.items() if value not in outputs}, found, known)
    found = _infer_with_declared_only(found, names, extended)
    found.commit()
    wrong: dict[Value, ValueType] = {
        value: type
        for value, type in declared.items()
        if _contradicts(type, value.type, known) or (value in extended and not _covers(value.type, extended[value]))
    }
    wrong |= _misdeclared_elements(everything)
    unconfirmed = {value for value in outputs & declared.keys() if wrong and not _covers(value.type, declared[value])}
    for value in wrong.keys() | unconfirmed:
        drop_declared_shape(value)
    return [Repair(value.name, _fault(value, type), "the declared shape is ignored") for value, type in wrong.items()]


def _declared_only(declared: Mapping[Value, TensorType], found: Inference, known: Set[str]) -> dict[Value, ValueType]:
    """The inferred types, extended by the numbers that only the declared shapes contain; empty if there are none.

    The result is empty if a declared extent contradicts inference: the declared shapes then belong to an earlier version of the
    model, perhaps to one whose inputs had no symbolic dimensions.
    """
    inferred = {value: found.type_of(value) for value in declared}
    if any(_has_other_extents(type, inferred[value], known) for value, type in declared.items()):
        return {}
    extended = {value: _with_declared_extents(type, inferred[value], known) for value, type in declared.items()}
    return {value: type for value, type in extended.items() if type != inferred[value]}


def _infer_with_declared_only(found: Inference, names: DimNames, extended: Mapping[Value, ValueType]) -> Inference:
    """Infer a graph again with the extended types, as far as inference preserves them.

    A model may declare a shape of a loop state that the body does not preserve. Types inferred from such a declaration are also
    wrong, so inference is repeated without it.

    Args:
        found: inference without the declared shapes.
        names: generates names of dimensions.
        extended: inferred types with the numbers that only the declared shapes contain.
    """
    types = {value: found.type_of(value) for value in _computed(found.graph)}
    kept = dict(extended)
    while kept:
        try:
            again = infer(found.graph, names, types | kept)
        except ModelError:  # the types contradict each other
            break
        covered = {value: type for value, type in kept.items() if _covers(again.type_of(value), type)}
        if len(covered) == len(kept):
            return again
        kept = covered
    return found


def _infer_without_shapes(graph: Graph, names: DimNames) -> tuple[Inference, dict[Value, TensorType]]:
    """Infer a graph without declared shapes. Returns the inference and the declared types that it has not used.

    It uses the declared shapes of the results of operators without a schema, and of scalar inputs of bodies, since inference
    may not find these shapes. If these contradict the inferred shapes, they are not used.
    """
    declared = _declared(graph)
    shaped = {
        value: type for value, type in declared.items() if isinstance(type, TensorType) and type.shape is not None
    }
    body_inputs, unknown = _body_inputs(graph), set(_without_schema(graph))
    inferred = {value for value in shaped if value not in unknown and (value not in body_inputs or shaped[value].shape)}
    contradiction = ModelError("")
    for unused in (inferred, shaped.keys()):
        bare = {value: TensorType(shaped[value].dtype, None) for value in unused}
        try:
            return infer(graph, names, declared | bare), {value: shaped[value] for value in shaped if value in bare}
        except ModelError as error:
            contradiction = error
    try:
        return infer(graph, names, declared), {}
    except ModelError:
        raise contradiction from None


def _declared(graph: Graph) -> dict[Value, ValueType]:
    """The types of the computed values of a graph and its bodies before anything is inferred."""
    return {value: value.type for value in _computed(graph)}


def _computed(graph: Graph) -> Iterator[Value]:
    """The values of a graph and its bodies whose types are inferred."""
    inputs = set(graph.inputs) | {value for each in graph.regions() for value in _captured(each)}
    return (value for each in graph.regions() for value in each.values if value.data is None and value not in inputs)


def _captured(graph: Graph) -> Iterator[Value]:
    """The inputs of bodies in a graph that are values captured from the graph."""
    for op in graph.ops:
        for body in op.bodies.values():
            yield from body.inputs[len(body.inputs) - op.captured :]


def _body_inputs(graph: Graph) -> set[Value]:
    return {value for each in graph.regions()[1:] for value in each.inputs}


def _without_schema(graph: Graph) -> Iterator[Value]:
    """The results of operators without an onnx schema."""
    for op in (op for each in graph.regions() for op in each.ops):
        if find_schema(op.op_type, op.domain, op.version) is None:
            yield from (value for value in op.outputs if value is not None)


def _misdeclared_elements(declared: Mapping[Value, ValueType]) -> dict[Value, OpaqueType]:
    """The declared types of sequences and optional values whose elements have other inferred shapes."""
    opaque = {value: type for value, type in declared.items() if isinstance(type, OpaqueType)}
    return {value: type for value, type in opaque.items() if contradict(type_proto(type), type_proto(value.type))}


def _fault(value: Value, declared: ValueType) -> str:
    return f"is declared as {_text(declared)}, but is {_text(value.type)}"


def _text(type: ValueType) -> str:
    """A type as text for a message; the text of a sequence has the shape of its elements."""
    shape = type.origin[1] if isinstance(type, OpaqueType) and isinstance(type.origin, tuple) else None
    return f"{type} of shape {shape}" if shape is not None else str(type)


def _names(values: Iterable[Value]) -> frozenset[str]:
    """The names of dimensions in the shapes of some values."""
    dims = (dim for value in values for dim in value.shape or ())
    return frozenset(name for dim in dims if isinstance(dim, Extent) for name in dim.names)


def _contradicts(declared: TensorType, found: ValueType, known: Set[str]) -> bool:
    """Whether a declared shape has a number where inference finds another number or an expression of dimensions.

    Args:
        declared: the declared type.
        found: the inferred type.
        known: the names of the inputs' dimensions, which may have any size.
    """
    if not isinstance(found, TensorType) or declared.shape is None or found.shape is None:
        return False
    if len(declared.shape) != len(found.shape):
        return True
    pairs = zip(declared.shape, found.shape, strict=True)
    return any(isinstance(a, int) and a != b and not _is_open(b, known) for a, b in pairs)


def _has_other_extents(declared: TensorType, found: ValueType, known: Set[str]) -> bool:
    """Whether a declared shape has the inferred rank and a number that contradicts the inferred shape."""
    shape = found.shape if isinstance(found, TensorType) else None
    is_of_rank = shape is not None and declared.shape is not None and len(shape) == len(declared.shape)
    return is_of_rank and _contradicts(declared, found, known)


def _is_open(dim: Dim, known: Set[str]) -> bool:
    """Whether inference has found no extent for a dimension."""
    return isinstance(dim, Extent) and is_unknown(dim) and not dim.names <= known


def _with_declared_extents(declared: TensorType, found: ValueType, known: Set[str]) -> ValueType:
    """The inferred type, with the numbers that only the declared shape contains."""
    if not isinstance(found, TensorType) or declared.shape is None or _contradicts(declared, found, known):
        return found
    if found.shape is None:
        return TensorType(found.dtype, declared.shape)
    pairs = zip(declared.shape, found.shape, strict=True)
    return TensorType(found.dtype, tuple(a if isinstance(a, int) and _is_open(b, known) else b for a, b in pairs))


def _covers(type: ValueType, required: ValueType) -> bool:
    """Whether a type has all numbers of the shape of `required`."""
    if not isinstance(type, TensorType) or not isinstance(required, TensorType) or required.shape is None:
        return False
    if type.shape is None or len(type.shape) != len(required.shape):
        return False
    return all(a == b for a, b in zip(required.shape, type.shape, strict=True) if isinstance(a, int))


def add_runtime_types(graph: Graph, names: DimNames) -> None:
    """Set the unknown types of the results of operators without an ONNX schema in a main graph."""
    version = graph.opsets.get("", 0)
    known_ops = {*operators(), *_local(graph)}
    undefined = (op for op in graph.ops if (op.domain, op.op_type) not in known_ops or _is_onnxruntime_op(op, version))
    computed = (value for op in undefined for value in op.outputs if value is not None)
    unknown = [value for value in computed if value.rank is None]
    if not unknown:
        return
    emission = Emission(graph)
    proto = weightless_message(emission.model)
    for node in nodes(proto):
        if node.domain == UNCHECKED_DOMAIN and is_onnxruntime_op("", node.op_type, version):
            node.domain = ""
    _expose(proto, [emission.names[value] for value in unknown])
    try:
        session = Session(proto.SerializeToString(), is_optimised=False)
    except RUNTIME_ERRORS:
        return
    outputs = {each.name: each for each in session.get_outputs()}
    known = {str(dim): dim for value in graph.inputs for dim in value.shape or () if isinstance(dim, Extent)}
    for value in unknown:
        _set_type(value, outputs[emission.names[value]], known, names)


def _local(graph: Graph) -> set[tuple[str, str]]:
    """The functions of a model, by domain and name."""
    model = graph.origin
    return {key[:2] for key in model.functions} if isinstance(model, ir.Model) else set()


def _is_onnxruntime_op(op: Op, version: int) -> bool:
    return is_onnxruntime_op(op.domain, op.op_type, version)


def _expose(proto: onnx.ModelProto, names: list[str]) -> None:
    """Add values as outputs without types, so that the session reports their types."""
    there = {output.name for output in proto.graph.output}
    for name in names:
        if name not in there:
            proto.graph.output.add(name=name)


def _set_type(value: Value, output: Any, known: Mapping[str, Extent], names: DimNames) -> None:
    """Set the type of a value to that of an output of the session. Names of dimensions that no input has become unknown.

    onnxruntime does not distinguish an unknown rank from a scalar, so the type of a scalar is ignored.
    """
    if not str(output.type).startswith("tensor(") or not output.shape:
        return
    dtype = FROM_IR.get(ir.DataType(type_names.type_proto(output.type).tensor_type.elem_type))
    if dtype is None:
        return
    dims = (dim if isinstance(dim, int) else known.get(dim) or names.fresh() for dim in output.shape)
    value.give_type(TensorType(dtype, dims))
