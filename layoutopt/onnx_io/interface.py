"""What a model takes and gives, as its file declares it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from layoutopt.onnx_io.read import read
from layoutopt.onnx_io.type_names import type_name


@dataclass(frozen=True, slots=True)
class Input:
    """An input as it is declared.

    Attributes:
        name: its name.
        type: as onnxruntime spells it: tensor(float).
        shape: extents, or names of symbolic dimensions; one without a name is called `input[axis]`. None if even the
            rank is unknown.
    """

    name: str
    type: str
    shape: tuple[int | str, ...] | None

    @property
    def symbols(self) -> list[str]:
        """The symbolic dimensions."""
        return [dim for dim in self.shape or () if isinstance(dim, str)]


@dataclass(frozen=True, slots=True)
class Interface:
    """What a model takes and gives.

    Attributes:
        inputs: in order, without those that have a value already.
        outputs: their names, in order.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]

    def get_inputs(self) -> tuple[Input, ...]:
        """The inputs, under the name that `trials.draw` asks a session of onnxruntime for."""
        return self.inputs

    def resolved(self, dims: Mapping[str, int]) -> "Interface":
        """The same with extents for symbolic dimensions, and scalars where the rank is unknown."""
        shapes = (tuple(dims[dim] if isinstance(dim, str) else dim for dim in each.shape or ()) for each in self.inputs)
        inputs = tuple(replace(each, shape=shape) for each, shape in zip(self.inputs, shapes, strict=True))
        return replace(self, inputs=inputs)


def interface(model: Path) -> Interface:
    """Read what a model takes and gives.

    Raises:
        ModelError: it cannot be read.
    """
    graph = read(model).graph
    inputs = (each for each in graph.inputs if each.name not in graph.initializers)
    return Interface(tuple(map(_input, inputs)), tuple(each.name or "" for each in graph.outputs))


def _input(value: ir.Value) -> Input:
    name, type = value.name or "", type_name(value.type)
    if value.shape is None:
        return Input(name, type, None)
    dims = (dim if isinstance(dim, int) else dim.value for dim in value.shape)
    return Input(name, type, tuple(f"{name}[{axis}]" if dim is None else dim for axis, dim in enumerate(dims)))
