"""What goes into the models: given values, or the same random ones wherever names, element types and shapes agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from layoutopt.errors import DimensionError, LayoutoptError
from layoutopt.ir.types import Array
from layoutopt.onnx_io.interface import Input, Interface
from layoutopt.onnx_io.session import is_foreign
from layoutopt.onnx_io.type_names import short_name, tensor_name
from layoutopt.trials import draw, symbols_of

Feed: TypeAlias = dict[str, Array]

LEAST = 2
"""Of a symbolic dimension that nobody has given an extent: with 1 it would be broadcast where it does not fit."""


class InputError(LayoutoptError, ValueError):
    """Given values that no model takes, or not like this."""


@dataclass(frozen=True, slots=True)
class Extents:
    """The symbolic dimensions of some models.

    Attributes:
        of: the extent of each.
        guessed: those of which nothing was said.
    """

    of: dict[str, int]
    guessed: tuple[str, ...]


def settle(interfaces: Sequence[Interface], dims: Mapping[str, int], given: Mapping[str, Array]) -> Extents:
    """An extent for every symbolic dimension: what was asked for, or that of the given values, or what is usual, at least 2.

    Raises:
        DimensionError: `dims` names one that is not there.
        InputError: there is no such input, or its type or shape is another.
    """
    inputs = [one for each in interfaces for one in each.inputs]
    symbols = {symbol.name: max(symbol.usual, LEAST) for each in interfaces for symbol in symbols_of(each)}
    for name in dims:
        if name not in symbols:
            hint = f"there are {', '.join(symbols)}" if symbols else "all extents are fixed"
            raise DimensionError("no such symbolic dimension", where=name, hint=hint)
    names = dict.fromkeys(one.name for one in inputs)
    known = dict(dims)
    for name, value in given.items():
        if name not in names:
            raise InputError("no such input", where=name, hint=f"there are {', '.join(names) or 'none'}")
        for one in inputs:
            if one.name == name:
                _bind(one, value, known)
    guessed = tuple(symbol for symbol in symbols if symbol not in known)
    return Extents({symbol: known.get(symbol, usual) for symbol, usual in symbols.items()}, guessed)


def _bind(one: Input, value: Array, known: dict[str, int]) -> None:
    """Take the extents of symbolic dimensions from a value, unless it does not fit."""
    type = tensor_name("string" if value.dtype.kind in "OU" else value.dtype.name)
    if type != one.type:
        raise InputError(
            f"the values are {short_name(type)}", where=one.name, hint=f"the input is {short_name(one.type)}"
        )
    if one.shape is None:
        return
    if len(one.shape) == value.ndim:
        for dim, size in zip(one.shape, value.shape, strict=True):
            if isinstance(dim, str):
                known.setdefault(dim, size)
    wanted = [known.get(dim, dim) if isinstance(dim, str) else dim for dim in one.shape]
    if wanted != list(value.shape):
        has, takes = ("x".join(map(str, shape)) or "a scalar" for shape in (value.shape, wanted))
        raise InputError(f"the values are {has}", where=one.name, hint=f"the input is {takes}")


def feeds(
    interfaces: Sequence[Interface], dims: Mapping[str, int], seed: int, given: Mapping[str, Array]
) -> list[Feed]:
    """Values for all models; those of the first go to all that take the like.

    Raises:
        LayoutoptError: there are no random values for some type, or no arrays.
    """
    for one in (one for each in interfaces for one in each.inputs if is_foreign(one.type)):
        raise LayoutoptError(f"the runtimes take no arrays of {short_name(one.type)}", where=one.name)
    drawn = [draw(each.resolved(dims), seed) for each in interfaces]
    return [
        {name: given[name] if name in given else _shared(drawn[0].get(name), value) for name, value in feed.items()}
        for feed in drawn
    ]


def _shared(first: Array | None, own: Array) -> Array:
    if first is None or (first.shape, first.dtype) != (own.shape, own.dtype):
        return own
    return first
