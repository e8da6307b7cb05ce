"""Symbolic extents that can be computed at run time: from shapes of operands, and from operands that contain extents.

Reshape(x[N, H*W, C], target = [N, H, W, -1])         N and C are extents of x, H and W elements of the target
Flatten(x[N, C, H, W])                                H*W*C is the product of three extents of x
"""

from collections.abc import Collection

from layoutopt.formats import Dim, Extent, Shape
from layoutopt.formats.extent import Atom
from layoutopt.ir.types import Op


def operand_extents(op: Op) -> frozenset[Extent]:
    """The symbolic extents that shapes or elements of the operands of an op contain."""
    shapes = (value.shape or () for value in op.inputs if value is not None)
    elements = (value.elements or () for value in op.inputs if value is not None)
    return frozenset(dim for dims in (*shapes, *elements) for dim in dims if isinstance(dim, Extent))


def is_computable(dim: Dim, known: Collection[Extent]) -> bool:
    """Whether an extent can be computed from extents that are known when the op runs."""
    if isinstance(dim, int) or dim in known:
        return True
    return all(_is_atom_computable(factor, known) for factors, _ in dim.terms for factor in factors)


def _is_atom_computable(atom: Atom, known: Collection[Extent]) -> bool:
    if isinstance(atom, str):
        return Extent.of_atom(atom) in known
    if isinstance(atom, Extent):
        return is_computable(atom, known)
    if Extent.of_atom(atom) in known:
        return True
    low = atom.dividend.low()
    whole = low is not None and low >= 0  # integer division at run time truncates towards zero
    return whole and is_computable(atom.dividend.dim, known) and is_computable(atom.divisor.dim, known)


def unresolved(op: Op, shape: Shape) -> list[Dim]:
    """The extents of a shape that cannot be computed at run time."""
    known = operand_extents(op)
    return [dim for dim in shape if not is_computable(dim, known)]
