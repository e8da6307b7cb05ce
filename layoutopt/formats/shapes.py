"""Shapes, and arithmetic on their extents."""

from collections.abc import Iterable

from layoutopt.formats.extent import Atom, Dim, Extent, Product, ordered
from layoutopt.formats.extent_notation import parse_extent

Shape = tuple[Dim, ...]
"""The extents of a tensor, one per axis."""

Volume = tuple[int, Product]
"""A product of extents: the integer factor, and the symbolic factors, none of them a product."""


def as_shape(dims: Iterable[Dim | str]) -> Shape:
    """A shape from numbers, extents and texts of extents: as_shape(("N", 3, "H//2", "W//2")).

    Raises:
        FormatError: a text is not an expression.
    """
    extents = [parse_extent(dim) if isinstance(dim, str) else dim for dim in dims]
    return tuple([dim.dim if isinstance(dim, Extent) else dim for dim in extents])


def volume(dims: Iterable[Dim]) -> Volume:
    """The product of extents; without symbols if a factor is 0."""
    number = 1
    symbols: list[Atom] = []
    for dim in dims:
        times, found = (dim, ()) if isinstance(dim, int) else dim.factors
        number *= times
        symbols += found
    return number, ordered(symbols) if number else ()


def static_shape(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Extents as integers.

    Raises:
        FormatError: an extent is symbolic.
    """
    return tuple(map(int, dims))


def quotient(dim: Dim, block: int) -> Dim:
    """The extent divided by `block`, rounded down; a symbolic extent is returned unchanged."""
    return dim if isinstance(dim, Extent) else dim // block


def round_up(dim: Dim, block: int) -> Dim:
    """The extent rounded up to a multiple of `block`; a symbolic extent is returned unchanged."""
    return dim if isinstance(dim, Extent) else -(-dim // block) * block


__all__ = ["Shape", "Volume", "as_shape", "quotient", "round_up", "static_shape", "volume"]
