"""Records the nodes of a definition. They have operators of opset 7 and later, in the form that the model's opset has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import onnx
from onnx import helper

_CONSTANT_HAS_INTEGERS = 9
_ALLOW_ZERO = 14  # the opset from which Reshape takes extents of 0 literally

Attributes: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class Body:
    """The nodes of one definition.

    Attributes:
        opset: the version of the standard operators.
        block: channels per block; 1 if the operator has no blocks.
        nodes: the nodes so far.
    """

    opset: int
    block: int = 1
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def __call__(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return the output's name."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def constant(self, values: Sequence[float] | float, dtype: int) -> str:
        """A constant with one axis, or none for a single number."""
        shape = [] if isinstance(values, int | float) else [len(values)]
        numbers = [values] if isinstance(values, int | float) else values
        return self("Constant", value=helper.make_tensor("value", dtype, shape, numbers))

    def ints(self, *values: int) -> str:
        """A constant list of int64."""
        if self.opset < _CONSTANT_HAS_INTEGERS:
            return self("Cast", self.constant(values, onnx.TensorProto.FLOAT), to=onnx.TensorProto.INT64)
        return self.constant(values, onnx.TensorProto.INT64)

    def extents(self, value: str) -> list[str]:
        """The four extents of a tensor, each as a list of one."""
        shape = self("Shape", value)
        return [self("Gather", shape, self.ints(axis)) for axis in range(4)]

    def shaped(self, value: str, *extents: str) -> str:
        """A Reshape to extents, each a list of one or more."""
        shape = self("Concat", *extents, axis=0) if len(extents) > 1 else extents[0]
        return self("Reshape", value, shape, **({"allowzero": 1} if self.opset >= _ALLOW_ZERO else {}))


Definition: TypeAlias = Callable[[Body, Sequence[str], Attributes], tuple[str, ...]]
"""Adds the nodes that compute an operator from its inputs (an empty name is an omitted input), and returns its outputs."""

__all__ = ["Attributes", "Body", "Definition"]
