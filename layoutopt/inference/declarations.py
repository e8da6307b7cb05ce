"""Types of computed values: inferred, and completed by declared shapes for dimensions that inference does not find.

A model declares shapes of computed values in `value_info` and for its outputs, and some exporters and graph editors leave
wrong ones there. ONNX Runtime warns and uses the shapes that it infers; onnx's inference fails, or uses the declared shapes.
If element types contradict each other, ONNX Runtime refuses the model.
"""

from collections.abc import Iterable, Iterator, Mapping, Set

from layoutopt.errors import ModelError
from layoutopt.formats import Dim, Extent, is_unknown
from layoutopt.inference.driver import Inference, infer
from layoutopt.inference.merge import HINT, ValueType
from layoutopt.inference.onnx_inference import type_proto
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import OpaqueType, TensorType, Value
from layoutopt.onnx_io.converter.values import drop_declared_shape
from layoutopt.onnx_io.converter.vocabulary import DimNames
from layoutopt.onnx_io.reader.lossless import contradict
from layoutopt.onnx_io.reader.repair import Repair
from layoutopt.onnx_io.schema import find_schema


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
