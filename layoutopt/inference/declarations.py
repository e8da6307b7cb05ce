"""Types of computed values: inference first, declared shapes only where it finds nothing.

A model declares shapes of computed values in `value_info` and for its outputs, and some exporters and graph editors leave
wrong ones there. ONNX Runtime warns and goes on with the shapes that it infers; onnx's inference fails, or believes them. With
element types it is different: where they contradict each other, ONNX Runtime refuses the model.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from layoutopt.errors import ModelError
from layoutopt.formats import Dim, Extent, is_unknown
from layoutopt.inference.onnx_inference import check_structure
from layoutopt.inference.retype import give_type, retype
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import OpaqueType, TensorType, Value
from layoutopt.onnx_io.converter.emit import Emission
from layoutopt.onnx_io.converter.values import forget_declared_shape
from layoutopt.onnx_io.converter.vocabulary import DimNames
from layoutopt.onnx_io.reader.repair import Repair
from layoutopt.onnx_io.schema import find_schema
from layoutopt.onnx_io.writer.weightless import stand_in

Type: TypeAlias = TensorType | OpaqueType


def infer_with_declarations(graph: Graph, names: DimNames) -> None:
    """Check the structure of a graph and infer the types of its values; a wrong declared shape is an error.

    Raises:
        ModelError: onnx's checker refuses the graph, or types contradict each other.
    """
    emission = Emission(graph)
    check_structure(stand_in(emission.model))
    retype(graph, names, emission)


def infer_before_declarations(graph: Graph, names: DimNames) -> list[Repair]:
    """Infer the types of a graph without the declared shapes; then add what only they say, as long as nothing contradicts it.

    Of computed outputs of a graph nothing is added: their shapes are edited most often, and a plan gains nothing by them.

    Returns:
        The declared shapes that contradict what was inferred.

    Raises:
        ModelError: types contradict each other without any declared shape, too.
    """
    declared = _forget_shapes(graph, names)
    found = {value: value.type for each in graph.nest() for value in each.values if value.data is None}
    outputs = {value for each in graph.nest() for value in each.outputs} - _formals(graph)
    known = {dim for value in graph.inputs for dim in value.shape or () if isinstance(dim, str)}
    claims = {
        value: claim
        for value, type in declared.items()
        if value not in outputs and (claim := _claim(type, found[value], known)) != found[value]
    }
    _infer_with_claims(graph, names, claims, found)
    wrong = {
        value: type
        for value, type in declared.items()
        if _contradicts(type, value.type, known) or (value in claims and not _covers(value.type, claims[value]))
    }
    for value in wrong:
        forget_declared_shape(value)
    return [
        Repair(value.name, f"is declared as {type}, but is {value.type}", "the declared shape is ignored")
        for value, type in wrong.items()
    ]


def _infer_with_claims(
    graph: Graph, names: DimNames, claims: Mapping[Value, Type], found: Mapping[Value, Type]
) -> None:
    """Infer a graph again with shapes that are only declared, as far as inference keeps them.

    The state of a loop may be declared in a shape that the body does not preserve. What follows from such a claim is wrong,
    too, so inference begins anew without it.

    Args:
        graph: a graph whose values have the types that inference found without declared shapes.
        names: for dimensions.
        claims: types with the numbers that are only declared.
        found: the types of all computed values without these numbers.
    """
    kept = dict(claims)
    while kept:
        _give(kept)
        try:
            infer_with_declarations(graph, names)
        except ModelError:  # they contradict each other
            kept = {}
        else:
            covered = {value: claim for value, claim in kept.items() if _covers(value.type, claim)}
            if len(covered) == len(kept):
                return
            kept = covered
        _give(found)
    if claims:
        infer_with_declarations(graph, names)


def _forget_shapes(graph: Graph, names: DimNames) -> dict[Value, TensorType]:
    """Infer a graph without declared shapes; the types that were declared.

    Those of operators without a schema and of scalars that bodies are given are kept, since inference may know nothing else. If
    they contradict the rest, they are forgotten, too.
    """
    everything = dict(_declared(graph))
    formals = _formals(graph)
    scalars = {value for value in everything if value in formals and not everything[value].shape}
    kept = scalars | {value for value in everything if not _has_schema(graph, value)}
    for forgotten in (everything.keys() - kept, everything.keys()):
        _give({value: TensorType(everything[value].dtype, None) for value in forgotten})
        try:
            infer_with_declarations(graph, names)
        except ModelError:
            _give(everything)
        else:
            return {value: type for value, type in everything.items() if value in forgotten}
    infer_with_declarations(graph, names)
    return {}


def _declared(graph: Graph) -> Iterator[tuple[Value, TensorType]]:
    """The computed values of a graph and its bodies that have a shape before anything is inferred, with their types."""
    given = set(graph.inputs) | {value for each in graph.nest() for value in _captured(each)}
    for value in (value for each in graph.nest() for value in each.values):
        is_computed = value.data is None and value not in given
        if is_computed and isinstance(value.type, TensorType) and value.type.shape is not None:
            yield value, value.type


def _captured(graph: Graph) -> Iterator[Value]:
    """The inputs of bodies in a graph that stand for values of the graphs around them."""
    for op in graph.ops:
        for body in op.bodies.values():
            yield from body.inputs[len(body.inputs) - op.captured :]


def _formals(graph: Graph) -> set[Value]:
    return {value for each in graph.nest()[1:] for value in each.inputs}


def _has_schema(graph: Graph, value: Value) -> bool:
    producers = (each.producer(value) for each in graph.nest() if value in each)
    op = next((op for op in producers if op is not None), None)
    return op is None or find_schema(op.op_type, op.domain, op.version) is not None


def _give(types: Mapping[Value, TensorType | OpaqueType]) -> None:
    for value, type in types.items():
        give_type(value, type)


def _contradicts(declared: TensorType, found: Type, known: Collection[Dim]) -> bool:
    """Whether a declared shape claims a number that inference does not find: another one, or an expression of dimensions.

    Args:
        declared: the declared type.
        found: the inferred type.
        known: the symbolic dimensions of the inputs, which have any size.
    """
    if not isinstance(found, TensorType) or declared.shape is None or found.shape is None:
        return False
    if len(declared.shape) != len(found.shape):
        return True
    pairs = zip(declared.shape, found.shape, strict=True)
    return any(isinstance(a, int) and a != b and not _is_open(b, known) for a, b in pairs)


def _is_open(dim: Dim, known: Collection[Dim]) -> bool:
    """Whether inference has found nothing of a dimension."""
    return is_unknown(dim) and not Extent.of(dim).names <= set(known)


def _claim(declared: TensorType, found: Type, known: Collection[Dim]) -> Type:
    """The found type, with the numbers that only the declared shape has."""
    if not isinstance(found, TensorType) or declared.shape is None or _contradicts(declared, found, known):
        return found
    if found.shape is None:
        return TensorType(found.dtype, declared.shape)
    pairs = zip(declared.shape, found.shape, strict=True)
    return TensorType(found.dtype, tuple(a if isinstance(a, int) and _is_open(b, known) else b for a, b in pairs))


def _covers(type: TensorType | OpaqueType, claim: TensorType | OpaqueType) -> bool:
    """Whether the numbers of a claim have become part of a type."""
    if not isinstance(type, TensorType) or not isinstance(claim, TensorType) or claim.shape is None:
        return False
    if type.shape is None or len(type.shape) != len(claim.shape):
        return False
    return all(a == b for a, b in zip(claim.shape, type.shape, strict=True) if isinstance(a, int))
