"""How large the dimensions are that no expression says, at the sizes that a model is planned for: inference with numbers."""

from collections.abc import Mapping

import onnx

from layoutopt.errors import ModelError
from layoutopt.formats import Extent, is_unknown
from layoutopt.inference.onnx_inference import infer_types
from layoutopt.inference.regions import Crossings
from layoutopt.inference.symbolic import Boundaries
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import OpaqueType, TensorType
from layoutopt.onnx_io.converter.emit import Emission
from layoutopt.onnx_io.converter.vocabulary import DimNames
from layoutopt.onnx_io.writer.weightless import stand_in


def measure(graph: Graph, sizes: Sizes) -> Sizes:
    """The sizes with those of unknown dimensions, as far as they follow from the inputs' at every point.

    A point at which the model contradicts itself says nothing.
    """
    shapes = {value: value.shape for each in graph.nest() for value in each.values if value.shape is not None}
    named = {dim for value in graph.inputs for dim in value.shape or ()}
    unknown = {dim for shape in shapes.values() for dim in shape if is_unknown(dim) and dim not in named}
    if not unknown:
        return sizes
    emission, names = Emission(graph), DimNames()
    proto = stand_in(emission.model)
    boundaries = Crossings(graph, emission.names, names)
    inputs = {emission.names[value]: value.type for value in graph.inputs}
    learned = []
    for point in (*sizes.points, *sizes.guards):
        types = _types_at(proto, inputs, point, names, boundaries)
        found: dict[str, int] = {}
        for value, shape in shapes.items():
            type = types.get(emission.names[value])
            if isinstance(type, TensorType) and type.shape is not None and len(type.shape) == len(shape):
                pairs = zip(shape, type.shape, strict=True)
                found |= {
                    dim: size
                    for dim, size in pairs
                    if dim in unknown and isinstance(size, int) and isinstance(dim, str)
                }
        learned.append(found)
    return sizes.learned(learned)


def _types_at(
    proto: onnx.ModelProto,
    inputs: Mapping[str, TensorType | OpaqueType],
    point: Mapping[str, int],
    names: DimNames,
    boundaries: Boundaries,
) -> Mapping[str, TensorType | OpaqueType]:
    """The types of all values where the inputs have sizes; nothing that was declared for others counts."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(proto)
    del fixed.graph.value_info[:]
    bound: dict[str, TensorType | OpaqueType] = {}
    for info in (*fixed.graph.input, *fixed.graph.output):
        type = inputs.get(info.name)
        if isinstance(type, TensorType) and type.shape is not None:
            sizes = [Extent.of(dim).at(point) or 1 for dim in type.shape]
            bound[info.name] = TensorType(type.dtype, tuple(sizes))
            for dim, size in zip(info.type.tensor_type.shape.dim, sizes, strict=True):
                dim.dim_value = size
        elif info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    try:
        return infer_types(fixed, names, bound, boundaries).types
    except ModelError:
        return {}
