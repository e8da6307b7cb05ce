"""The types of the values of a graph and its bodies, as inference finds them."""

from collections.abc import Iterator

from layoutopt.inference.onnx_inference import infer_types
from layoutopt.inference.regions import Crossings
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Format, Op, OpaqueType, Storage, TensorType, Value
from layoutopt.onnx_io.converter.emit import Emission
from layoutopt.onnx_io.converter.vocabulary import DimNames
from layoutopt.onnx_io.writer.weightless import stand_in


def retype(graph: Graph, names: DimNames, emission: Emission | None = None) -> None:
    """Give every value that is computed the type that inference finds for it.

    Args:
        graph: a main graph.
        names: for dimensions that are not known.
        emission: what the graph says in ONNX, if that is at hand.

    Raises:
        ModelError: shapes or element types contradict each other.
    """
    emission = emission or Emission(graph)
    inputs = {emission.names[value]: value.type for value in graph.inputs}
    boundaries = Crossings(graph, emission.names, names)
    inferred = infer_types(stand_in(emission.model), names, inputs, boundaries)
    given = set(graph.inputs)
    for each in graph.nest():
        for value in each.values:
            name = emission.names[value]
            found = inferred.types.get(name, value.type)
            if value.data is None and value not in given and isinstance(found, TensorType | type(value.type)):
                give_type(value, found)
                value.elements = inferred.elements.get(name)
        for op in (op for op in each.ops if op.bodies):
            given.update(_captured(op))


def _captured(op: Op) -> Iterator[Value]:
    """What stands for outer values in the bodies of an op, now of their types."""
    for body in op.bodies.values():
        formals = body.inputs[len(body.inputs) - op.captured :]
        for formal, value in zip(formals, op.inputs[op.own_inputs :], strict=True):
            assert value is not None
            give_type(formal, value.type)
            yield formal


def give_type(value: Value, type: TensorType | OpaqueType) -> None:
    """Set the type of a value, which lies as the model has it."""
    value.type = type
    shape = type.shape if isinstance(type, TensorType) else None
    value.storage = None if shape is None else Storage(Format.canonical(len(shape)))
