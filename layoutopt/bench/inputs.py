"""What goes into the models: given values, or the same random ones wherever names, element types and shapes agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from layoutopt.errors import DimensionError, LayoutoptError
from layoutopt.ir.types import Array
from layoutopt.onnx_io.interface import Interface
from layoutopt.runtime.session import needs_ort_value
from layoutopt.runtime.type_names import short_name
from layoutopt.sample_inputs import SampleInputs, bound_sizes, symbols_of

Feed: TypeAlias = dict[str, Array]

LEAST = 2
"""Of a symbolic dimension that nobody has given an extent: with 1 it would be broadcast where it does not fit."""


@dataclass(frozen=True, slots=True)
class Extents:
    """The symbolic dimensions of some models.

    Attributes:
        of: the extent of each.
        guessed: those of which nothing was said.
    """

    of: dict[str, int]
    guessed: tuple[str, ...]


def settle(
    interfaces: Sequence[Interface],
    dims: Mapping[str, int],
    given: Mapping[str, Array],
    inferred: Mapping[str, int] | None = None,
) -> Extents:
    """An extent for every symbolic dimension: as given by name or by arrays, or inferred, or what is usual, at least 2.

    Args:
        interfaces: the inputs of all models.
        dims: extents that are given by name.
        given: arrays that are given, by the name of the input.
        inferred: extents that follow from the graph of a model.

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
    known = bound_sizes(inputs, given, dims)
    usual = symbols | {name: size for name, size in (inferred or {}).items() if name in symbols}
    guessed = tuple(symbol for symbol in symbols if symbol not in known)
    return Extents({symbol: known.get(symbol, size) for symbol, size in usual.items()}, guessed)


def feeds(
    interfaces: Sequence[Interface],
    dims: Mapping[str, int],
    seed: int,
    given: Mapping[str, Array],
    samples: SampleInputs | None = None,
) -> list[Feed]:
    """Values for all models; those of the first go to all that take the like.

    Raises:
        LayoutoptError: there are no random values for some type, or no arrays.
    """
    for one in (one for each in interfaces for one in each.inputs if needs_ort_value(one.type)):
        raise LayoutoptError(f"the runtimes take no arrays of {short_name(one.type)}", where=one.name)
    made = samples or SampleInputs()
    drawn = [made.draw(each, seed, dims, is_first=True) for each in interfaces]
    return [
        {name: given[name] if name in given else _shared(drawn[0].get(name), value) for name, value in feed.items()}
        for feed in drawn
    ]


def _shared(first: Array | None, own: Array) -> Array:
    if first is None or (first.shape, first.dtype) != (own.shape, own.dtype):
        return own
    return first
