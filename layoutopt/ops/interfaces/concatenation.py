"""Concatenation of all inputs along one axis."""

from abc import ABC, abstractmethod

from layoutopt.ir.types import Op


class ConcatenationOp(ABC):
    """An op whose result is the concatenation of its inputs."""

    @abstractmethod
    def concatenated_axis(self, op: Op) -> int | None:
        """The axis along which the inputs are concatenated; None if the rank is unknown."""


__all__ = ["ConcatenationOp"]
