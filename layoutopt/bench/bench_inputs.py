"""Inputs of the benchmark: given values, or random values, which models share if name, element type and shape agree."""

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

MIN_SIZE = 2
"""The smallest default size of a symbolic dimension: size 1 would broadcast where other sizes are an error."""


@dataclass(frozen=True, slots=True)
class DimensionSizes:
    """The sizes of the symbolic dimensions of all models.

    Attributes:
        sizes: by name.
        inferred: the names of dimensions without a given size.
    """

    sizes: dict[str, int]
    inferred: tuple[str, ...]


def resolve_dimension_sizes(
    interfaces: Sequence[Interface],
    dims: Mapping[str, int],
    given: Mapping[str, Array],
    inferred: Mapping[str, int] | None = None,
) -> DimensionSizes:
    """A size for every symbolic dimension: given by name or by arrays; otherwise inferred; otherwise the default, at least 2.

    Args:
        interfaces: the inputs of all models.
        dims: sizes that are given by name.
        given: given arrays by the name of the input.
        inferred: sizes that are inferred from the graph of a model.

    Raises:
        DimensionError: no model has a dimension in `dims`.
        InputError: no model has an input in `given`, or its type or shape differs.
    """
    inputs = [one for each in interfaces for one in each.inputs]
    symbols = {symbol.name: max(symbol.default, MIN_SIZE) for each in interfaces for symbol in symbols_of(each)}
    for name in dims:
        if name not in symbols:
            hint = f"there are {', '.join(symbols)}" if symbols else "all extents are fixed"
            raise DimensionError("no such symbolic dimension", where=name, hint=hint)
    known = bound_sizes(inputs, given, dims)
    defaults = symbols | {name: size for name, size in (inferred or {}).items() if name in symbols}
    without_size = tuple(symbol for symbol in symbols if symbol not in known)
    return DimensionSizes({symbol: known.get(symbol, size) for symbol, size in defaults.items()}, without_size)


def feeds(
    interfaces: Sequence[Interface],
    dims: Mapping[str, int],
    seed: int,
    given: Mapping[str, Array],
    samples: SampleInputs | None = None,
) -> list[Feed]:
    """The inputs of all models: given arrays, else those of the first model where type and shape agree, else its own.

    Raises:
        LayoutoptError: an input has a type without random values, or without numpy arrays.
    """
    for one in (one for each in interfaces for one in each.inputs if needs_ort_value(one.type)):
        raise LayoutoptError(f"the runtimes accept no arrays of {short_name(one.type)}", where=one.name)
    generator = samples or SampleInputs()
    drawn = [generator.draw(each, seed, dims, is_first=True) for each in interfaces]
    return [
        {name: given[name] if name in given else _shared(drawn[0].get(name), value) for name, value in feed.items()}
        for feed in drawn
    ]


def _shared(first: Array | None, own: Array) -> Array:
    if first is None or (first.shape, first.dtype) != (own.shape, own.dtype):
        return own
    return first
