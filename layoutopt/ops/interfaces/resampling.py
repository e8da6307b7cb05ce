"""Averages along axes, and ops that accept another extent of an axis; both commute with linear maps over channels."""

from abc import ABC, abstractmethod

from layoutopt.ir.types import Op
from layoutopt.ops.base import rule_of


class ExtentChange(ABC):
    """An op that may compute the same for an input with another extent along an axis that it does not change."""

    @abstractmethod
    def shape_edits(self, op: Op, axis: int, extent: int) -> dict[int, dict[int, int]] | None:
        """Edits to shape operands, as {input: {position: value}}, when the extent of x along `axis` becomes `extent`.

        The edited elements have to be numbers already, in a constant or in a computed list. None if the op may not be edited.
        """


class AveragingOp(ExtentChange):
    """An op whose results may be means of elements of its first input: interpolation, average pooling."""

    @abstractmethod
    def averaged_axes(self, op: Op) -> frozenset[int] | None:
        """The axes along which results are means of elements of x, with weights that sum to one; None if it computes no means.

        Other axes are unchanged, so the result is x if the set is empty.
        """


def averaged_axes_of(op: Op) -> frozenset[int] | None:
    """The axes along which the results of an op are means of elements of its first input; None if it computes no means."""
    rule = rule_of(op)
    return rule.averaged_axes(op) if isinstance(rule, AveragingOp) else None


def shape_edits_of(op: Op, axis: int, extent: int) -> dict[int, dict[int, int]] | None:
    """Edits to the shape operands of an op when the extent of its first input along `axis` changes; None if it may not."""
    rule = rule_of(op)
    return rule.shape_edits(op, axis, extent) if isinstance(rule, ExtentChange) else None


__all__ = ["AveragingOp", "ExtentChange", "averaged_axes_of", "shape_edits_of"]
