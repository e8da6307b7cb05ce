"""Ops that read the type of an operand and none of its elements."""

from abc import ABC, abstractmethod

from layoutopt.ir.types import Array, Op


class ShapeQuery(ABC):
    """An op whose result depends on the types of its inputs alone."""

    @abstractmethod
    def result_from_types(self, op: Op) -> Array | None:
        """The result, if every extent that it depends on is a number."""


__all__ = ["ShapeQuery"]
