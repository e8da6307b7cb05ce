"""The inputs and outputs of a model, as its file or its graph declares them."""

from pathlib import Path

import onnx_ir as ir

from layoutopt.formats import is_unknown
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import caller_name
from layoutopt.ir.types import TensorType, Value
from layoutopt.onnx_io.reader import read
from layoutopt.record import Record
from layoutopt.runtime.type_names import UNKNOWN_TYPE, tensor_name, type_name


class Input(Record):
    """A declared input.

    Attributes:
        name: its name.
        type: its type as in onnxruntime, such as tensor(float).
        shape: extents and names of symbolic dimensions, `input[axis]` for those without a name. None if the rank is unknown.
    """

    name: str
    type: str
    shape: tuple[int | str, ...] | None

    @property
    def symbols(self) -> list[str]:
        """The symbolic dimensions."""
        return [dim for dim in self.shape or () if isinstance(dim, str)]


class Interface(Record):
    """The inputs and outputs of a model.

    Attributes:
        inputs: the inputs in order, without those that have an initializer.
        outputs: the names of the outputs in order.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]

    def get_inputs(self) -> tuple[Input, ...]:
        """The inputs, by the method name of onnxruntime's `InferenceSession`."""
        return self.inputs


def read_interface(model: Path) -> Interface:
    """Read the inputs and outputs of a model file.

    Raises:
        ModelError: it cannot be read.
    """
    found = read(model)
    return Interface(declared_inputs(found), tuple(each.name or "" for each in found.graph.outputs))


def declared_inputs(model: ir.Model) -> tuple[Input, ...]:
    """The inputs of a model, without those that have an initializer."""
    graph = model.graph
    return tuple(_input(each) for each in graph.inputs if each.name not in graph.initializers)


def _input(value: ir.Value) -> Input:
    name, type = value.name or "", type_name(value.type)
    if value.shape is None:
        return Input(name, type, None)
    dims = (dim if isinstance(dim, int) else dim.value for dim in value.shape)
    return Input(name, type, tuple(_extent(name, axis, dim) for axis, dim in enumerate(dims)))


def _extent(input: str, axis: int, dim: int | str | None) -> int | str:
    """The extent, or the name of a symbolic dimension; PaddlePaddle declares -1 for a dimension without a name."""
    return dim if isinstance(dim, int) and dim >= 0 else dimension_name(input, axis, dim)


def dimension_name(input: str, axis: int, dim: object) -> str:
    """The name of a symbolic dimension for callers: `input[axis]` if it has no name, or one that begins with "?"."""
    return dim if isinstance(dim, str) and dim and not is_unknown(dim) else f"{input}[{axis}]"


def inputs_of(graph: Graph) -> tuple[Input, ...]:
    """The inputs of a graph, in the form of `read_interface`."""
    return tuple(Input(value.name, type_of(value), _names_of(value)) for value in graph.inputs)


def type_of(value: Value) -> str:
    """The type of a value as in onnxruntime; `unknown` if it is not known."""
    if isinstance(value.type, TensorType):
        return tensor_name(value.type.dtype.label)
    return type_name(value.type.origin[0]) if isinstance(value.type.origin, tuple) else UNKNOWN_TYPE


def _names_of(value: Value) -> tuple[int | str, ...] | None:
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else caller_name(dim) for dim in value.shape)
