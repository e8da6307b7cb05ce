"""Ops whose result has the elements of their input, in the same or in another type."""

from layoutopt.ir.types import Op


def is_copy(op: Op) -> bool:
    """Whether the output of an op is its input."""
    return op.kind == "Identity"


def is_type_conversion(op: Op) -> bool:
    """Whether an op only changes the element type."""
    return op.kind in ("Cast", "CastLike")


__all__ = ["is_copy", "is_type_conversion"]
