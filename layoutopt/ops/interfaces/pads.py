"""Folding of zero pads into ops that have pads as attributes."""

from abc import ABC, abstractmethod
from typing import TypeAlias

from layoutopt.ir.types import Attribute, Op
from layoutopt.ops.base import rule_of

Pads: TypeAlias = dict[int, tuple[int, int]]
"""Numbers of elements added before and behind each axis; axes without pads are absent."""


class ZeroPadOp(ABC):
    """An op that may do nothing but pad its input with zeros."""

    @abstractmethod
    def zero_pads(self, op: Op) -> Pads | None:
        """The zeros added around the first input, on axes of known extent; None if the op does anything else."""


class PadFolding(ABC):
    """An op whose attributes can pad its first input with zeros."""

    @abstractmethod
    def fold_pads(self, op: Op, pads: Pads) -> dict[str, Attribute] | None:
        """The attributes with which the op pads with these zeros too; None if there are none."""


def zero_pads_of(op: Op) -> Pads | None:
    """The zeros that an op adds around its first input; None if it does anything else."""
    rule = rule_of(op)
    return rule.zero_pads(op) if isinstance(rule, ZeroPadOp) else None


def folded_pads(op: Op, pads: Pads) -> dict[str, Attribute] | None:
    """The attributes with which an op pads its first input with these zeros too; None if it cannot."""
    rule = rule_of(op)
    return rule.fold_pads(op, pads) if isinstance(rule, PadFolding) else None


__all__ = ["PadFolding", "Pads", "ZeroPadOp", "folded_pads", "zero_pads_of"]
