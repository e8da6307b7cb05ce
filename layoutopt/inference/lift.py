"""Lift: from a model of onnx_ir to the graph that the passes work on.

The structure (names, producers, cycles) is built and checked first, then onnx's checker runs on it. Then types are inferred.

A model declares shapes of computed values in `value_info` and for its outputs, and some exporters and graph editors leave
wrong ones there. ONNX Runtime warns and uses the shapes that it infers; onnx's inference fails, or uses the declared shapes.
If element types contradict each other, ONNX Runtime refuses the model.

A model that onnxruntime saved has operators of onnxruntime's domains, and often no declared types of inner values. onnx's
inference stops at the first such operator, and layout rules require known ranks. An onnxruntime session of the model without
weights and without optimisations has the types of all values. If onnxruntime refuses the model, these types remain unknown.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.formats import Extent, Shape
from layoutopt.inference.driver import infer, names_of, shape_of
from layoutopt.inference.op_inference import HINT, ValueType, contradicts, type_proto, without_shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, OpaqueType, TensorType, Value
from layoutopt.onnx_io.emission import emit
from layoutopt.onnx_io.messages import contradict, nodes
from layoutopt.onnx_io.repair import Repair, repairs_of
from layoutopt.onnx_io.schema import (
    check_operands,
    check_structure,
    find_schema,
    is_onnxruntime_op,
    operators,
    opsets_of,
)
from layoutopt.onnx_io.serialize import UNCHECKED_DOMAIN, to_bytes, weightless_message
from layoutopt.onnx_io.structure import build
from layoutopt.onnx_io.vocabulary import FROM_IR, DimNames, drop_declared_shape
from layoutopt.runtime import type_names
from layoutopt.runtime.errors import RUNTIME_ERRORS
from layoutopt.runtime.session import Session, load_failure


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
    check_operands(model)
    add_runtime_types(graph, names)
    check_structure(weightless_message(emit(graph)))
    recorded = repairs_of(model)
    repairs = [*(recorded.found if recorded is not None else ()), *infer_types(graph, names)]
    if repairs and (strict or not _is_confirmed(model)):
        raise ModelError(repairs[0].fault, where=repairs[0].where, hint=HINT)
    graph.repairs = [(each.where, each.reason) for each in repairs]
    return graph


def _is_confirmed(model: ir.Model) -> bool:
    """Whether ONNX Runtime loads the original of a model."""
    recorded = repairs_of(model)
    return not load_failure(to_bytes(model), is_optimised=False) if recorded is None else recorded.is_confirmed()


def infer_again(graph: Graph) -> None:
    """Infer types again, after passes have added constants.

    Raises:
        ModelError: types contradict each other.
    """
    before = _declared(graph)
    found = infer(graph, DimNames(names_of(value for each in graph.regions() for value in each.values)), before)
    if found.contradiction is not None:
        raise found.contradiction
    found.commit()
    for value, type in before.items():
        numbers = None if value.shape is None else [dim if isinstance(dim, int) else None for dim in value.shape]
        if contradicts(shape_of(type), numbers, frozenset()):
            raise ModelError(_fault(value, type), where=value.name, hint=HINT)


def infer_types(graph: Graph, names: DimNames) -> list[Repair]:
    """Infer the types of a graph; declared shapes are hints, whose numbers are used where inference finds no extents.

    Declared shapes of the outputs of graphs are no hints: graph editors leave wrong ones there most often, and a plan gains
    nothing by them. Emitted models declare the shapes of outputs that do not contradict inference, unless another declared
    shape is wrong: ONNX Runtime fuses Reshapes by declared shapes. If a hint contradicts inference, the declared shapes belong
    to an earlier version of the model, perhaps to one whose inputs had no symbolic dimensions. Then the only hints are the
    shapes that inference may not find: those of results of operators without a schema, and of scalar inputs of bodies.

    Where shapes contradict each other without hints, `contradiction` of the graph is set, and the shapes of values behind it
    are unknown.

    Returns:
        The declared shapes that contradict the inferred ones, or the contradiction.

    Raises:
        ModelError: element types contradict each other.
    """
    declared = _declared(graph)
    shapes = {value: shape for value, type in declared.items() if (shape := shape_of(type)) is not None}
    body_inputs = {value for each in graph.regions()[1:] for value in each.inputs}
    outputs = {value for each in graph.regions() for value in each.outputs} - body_inputs
    unknown, known = set(_without_schema(graph)), names_of(graph.inputs)
    needed = {value for value, shape in shapes.items() if value in unknown or (value in body_inputs and not shape)}
    misdeclared = set[Value]()
    for hints in (shapes.keys() - (outputs - needed), needed, set[Value]()):
        bare = {value: without_shape(type) for value, type in declared.items() if value not in hints}
        found = infer(graph, names, declared | bare)
        inferred = {value: shape for value in hints - needed if (shape := shape_of(found.type_of(value))) is not None}
        alike = (value for value, shape in inferred.items() if len(shape) == len(shapes[value]))
        misdeclared |= found.misdeclared
        is_wrong = any(contradicts(shapes[each], inferred[each], known) for each in alike)
        if found.contradiction is None and not found.misdeclared and not is_wrong:
            break
    found.commit()
    if fault := found.contradiction:
        graph.contradiction = (fault.where, fault.what)
        return [Repair(fault.where, fault.what, "onnxruntime loads it, so the model is left as it is")]
    uncovered = {value for value, shape in shapes.items() if not _has_numbers(value, shape)}
    wrong = _misdeclared_elements(declared)
    wrong |= {each for each in uncovered if each in hints or contradicts(shapes[each], each.shape, known)}
    for value in wrong | (outputs & uncovered if wrong or misdeclared else set()):
        drop_declared_shape(value)
    faults = ((value.name, _fault(value, declared[value])) for value in declared if value in wrong)
    return [Repair(name, fault, "the declared shape is ignored") for name, fault in faults]


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
            yield from op.captured_inputs(body)


def _without_schema(graph: Graph) -> Iterator[Value]:
    """The results of operators without an onnx schema."""
    for op in (op for each in graph.regions() for op in each.ops):
        if find_schema(op.op_type, op.domain, op.version) is None:
            yield from op.present_outputs


def _misdeclared_elements(declared: Mapping[Value, ValueType]) -> set[Value]:
    """The sequences and optional values whose elements have other inferred shapes than the declared ones."""
    opaque = {value: type for value, type in declared.items() if isinstance(type, OpaqueType)}
    return {value for value, type in opaque.items() if contradict(type_proto(type), type_proto(value.type))}


def _fault(value: Value, declared: ValueType) -> str:
    return f"is declared as {_text(declared)}, but is {_text(value.type)}"


def _text(type: ValueType) -> str:
    """A type as text for a message; the text of a sequence has the shape of its elements."""
    shape = type.origin[1] if isinstance(type, OpaqueType) and isinstance(type.origin, tuple) else None
    return f"{type} of shape {shape}" if shape is not None else str(type)


def _has_numbers(value: Value, declared: Shape) -> bool:
    """Whether the shape of a value has all numbers of the declared one."""
    if value.shape is None or len(value.shape) != len(declared):
        return False
    return all(a == b for a, b in zip(declared, value.shape, strict=True) if isinstance(a, int))


def add_runtime_types(graph: Graph, names: DimNames) -> None:
    """Set the unknown types of the results of operators without an ONNX schema in a main graph."""
    version = graph.opsets.get("", 0)
    known_ops = set(operators())
    undefined = (op for op in graph.ops if (op.domain, op.op_type) not in known_ops or _is_onnxruntime_op(op, version))
    computed = (value for op in undefined for value in op.present_outputs)
    unknown = [value for value in computed if value.rank is None]
    if not unknown:
        return
    proto = weightless_message(emit(graph))
    for node in nodes(proto):
        if node.domain == UNCHECKED_DOMAIN and is_onnxruntime_op("", node.op_type, version):
            node.domain = ""
    _expose(proto, [value.name for value in unknown])
    try:
        session = Session(proto.SerializeToString(), is_optimised=False)
    except RUNTIME_ERRORS:
        return
    outputs = {each.name: each for each in session.get_outputs()}
    known = {str(dim): dim for value in graph.inputs for dim in value.shape or () if isinstance(dim, Extent)}
    for value in unknown:
        _set_type(value, outputs[value.name], known, names)


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
