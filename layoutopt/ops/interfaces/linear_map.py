"""Channel-wise linear maps: a 1x1 convolution and a product with a constant matrix are linear maps over one axis.

    y[.., o, ..] = sum over c of matrix[o, c] * x[.., c, ..] + shift[o]      at every position of the other axes

Such a map commutes with every op that makes each element of its result a mean of elements of x along other axes, with
weights that sum to one: interpolation, average pooling. Both are linear, act on different axes, and a mean of equal shifts
is the shift. A map of tensors concatenated along its axis is the sum of maps of the tensors.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Op, OpaqueType, TensorType, Value
from layoutopt.ops.base import rule_of


@dataclass(frozen=True, slots=True, eq=False)
class LinearMap:
    """A linear map over one axis of the first input, which is that axis of the result too.

    Attributes:
        axis: the axis.
        matrix: float64, of shape (extent in the result, extent in the input).
        shift: float64, of shape (extent in the result,).
    """

    axis: int
    matrix: Array
    shift: Array

    @property
    def extents(self) -> tuple[int, int]:
        """The extents of the axis in the result and in the input."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def after(self, first: "LinearMap") -> "LinearMap":
        """This map of the result of `first`, as one map along the axis of this one."""
        return LinearMap(self.axis, self.matrix @ first.matrix, self.matrix @ first.shift + self.shift)

    def scaled(self, scale: Array, shift: Array) -> "LinearMap":
        """This map of x * scale + shift, both of shape (extent in the input,)."""
        return LinearMap(self.axis, self.matrix * scale, self.matrix @ shift + self.shift)

    def of_ranges(self, pieces: Sequence[tuple[int, int]]) -> "LinearMap":
        """The map restricted to concatenated ranges (start, stop) of the axis; the range that starts at 0 has the shift."""
        shift = self.shift if any(start == 0 for start, _ in pieces) else np.zeros_like(self.shift)
        return LinearMap(self.axis, np.concatenate([self.matrix[:, slice(*each)] for each in pieces], axis=1), shift)


class LinearMapOp(ABC):
    """An op that may be a linear map over one axis of its first input."""

    @abstractmethod
    def mapped_axis(self, op: Op) -> int | None:
        """The axis, by shapes and attributes alone; None if the op is no such map, or its matrix is not constant."""

    @abstractmethod
    def linear_map(self, op: Op) -> LinearMap | None:
        """The map; None if the op is none, or its numbers are not finite."""

    @abstractmethod
    def with_linear_map(self, op: Op, map: LinearMap) -> dict[int, Array] | None:
        """The constant inputs with which the op computes another map over the same axis; None if there are none."""


def mapped_axis_of(op: Op) -> int | None:
    """The axis over which an op is a linear map with a constant matrix; None if it is none."""
    rule = rule_of(op)
    return rule.mapped_axis(op) if isinstance(rule, LinearMapOp) else None


def linear_map_of(op: Op) -> LinearMap | None:
    """The linear map over one axis that an op is; None if it is none."""
    rule = rule_of(op)
    return rule.linear_map(op) if isinstance(rule, LinearMapOp) else None


def with_linear_map(op: Op, map: LinearMap) -> dict[int, Array] | None:
    """The constant inputs with which an op computes another linear map over the same axis; None if there are none."""
    rule = rule_of(op)
    return rule.with_linear_map(op, map) if isinstance(rule, LinearMapOp) else None


def add_sum(graph: Graph, one: Value, other: Value, type: TensorType | OpaqueType, stem: str, near: Op) -> Value:
    """Add an Add of two tensors of one shape right behind the op `near`; returns its output."""
    return graph.new_result("Add", (one, other), type, stem, near)
