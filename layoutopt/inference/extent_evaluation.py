"""Evaluation of extents without a symbolic expression at the sizes that a model is planned for, by inference with numbers."""

from collections.abc import Collection, Mapping

from layoutopt.errors import ModelError
from layoutopt.formats import Dim, Extent, Shape, is_unknown
from layoutopt.inference.driver import infer
from layoutopt.inference.merge import ValueType
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import TensorType, Value
from layoutopt.onnx_io.converter.vocabulary import DimNames


def evaluate_extents(graph: Graph, sizes: Sizes) -> Sizes:
    """The sizes with those of the unknown dimensions whose value follows from the sizes of the inputs at every point.

    A point at which the shapes of the model contradict each other is ignored.
    """
    shapes = {value: value.shape for each in graph.regions() for value in each.values if value.shape is not None}
    named = {dim for value in graph.inputs for dim in value.shape or ()}
    unknown = {dim for shape in shapes.values() for dim in shape if is_unknown(dim) and dim not in named}
    if not unknown:
        return sizes
    return sizes.with_inferred([_found_at(graph, point, shapes, unknown) for point in (*sizes.points, *sizes.guards)])


def _found_at(
    graph: Graph, point: Mapping[str, int], shapes: Mapping[Value, Shape], unknown: Collection[Dim]
) -> dict[str, int]:
    """The sizes of unknown dimensions at one point, inferred from the inputs alone, not from other declared shapes."""
    inputs: dict[Value, ValueType] = {}
    for value in graph.inputs:
        if isinstance(value.type, TensorType) and value.shape is not None:
            inputs[value] = TensorType(value.type.dtype, (Extent.of(dim).at(point) or 1 for dim in value.shape))
    try:
        inferred = infer(graph, DimNames(), {}, inputs=inputs, caches_results=False)
    except ModelError:
        return {}
    found: dict[str, int] = {}
    for value, shape in shapes.items():
        type = inferred.type_of(value)
        if isinstance(type, TensorType) and type.shape is not None and len(type.shape) == len(shape):
            pairs = zip(shape, type.shape, strict=True)
            found |= {str(dim): size for dim, size in pairs if dim in unknown and isinstance(size, int)}
    return found
