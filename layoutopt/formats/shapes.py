"""Shapes, and arithmetic on their extents."""

from collections.abc import Iterable

from layoutopt.errors import FormatError
from layoutopt.formats.extent import Dim, factors

Shape = tuple[Dim, ...]
"""The extents of a tensor, one per axis."""

Volume = tuple[int, tuple[str, ...]]
"""A product of extents: the integer factor, and the symbolic factors in alphabetical order, none of them a product."""


def volume(dims: Iterable[Dim]) -> Volume:
    """The product of extents; without symbols if a factor is 0."""
    number = 1
    symbols: list[str] = []
    for dim in dims:
        if isinstance(dim, str):
            times, found = factors(dim)
            symbols += found
        else:
            times = dim
        number *= times
    return number, tuple(sorted(symbols)) if number else ()


def static_shape(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Extents as integers.

    Raises:
        FormatError: an extent is symbolic.
    """
    dims = tuple(dims)
    if any(isinstance(dim, str) for dim in dims):
        raise FormatError(f"the extents {dims} are not all static", hint="give the symbolic ones a value")
    return tuple(int(dim) for dim in dims)


def quotient(dim: Dim, block: int) -> Dim:
    """The extent divided by `block`, rounded down; a symbolic extent is returned unchanged."""
    return dim if isinstance(dim, str) else dim // block


def round_up(dim: Dim, block: int) -> Dim:
    """The extent rounded up to a multiple of `block`; a symbolic extent is returned unchanged."""
    return dim if isinstance(dim, str) else -(-dim // block) * block


__all__ = ["Shape", "Volume", "quotient", "round_up", "static_shape", "volume"]
