"""On which inputs are two models compared? Sizes of symbolic dimensions, and random values of those sizes.

A rewritten model has to be right at every size, so some are tried that it was not planned for: odd ones, height and width
that differ, no multiples of anything. A model need not run at all of them, so there are more than are wanted.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from layoutopt.errors import LayoutoptError
from layoutopt.ir.types import Array, DType
from layoutopt.sizes import Range, Symbol, usual_size

ENOUGH = 3  # sizes at which a comparison is made

_SMALL = 2  # of a dimension where nothing else works: names that differ may have to be one number
_ROUND = 32  # what the extents of images are usually multiples of
_USUAL = {"float": "float32", "double": "float64"}  # onnxruntime's own names
_INDICES = (0, 2)
_RANGES = {
    DType.INT8: (-100, 100),
    DType.UINT8: (0, 200),
    DType.INT4: (-8, 8),
    DType.UINT4: (0, 16),
    DType.INT2: (-2, 2),
    DType.UINT2: (0, 4),
}
"""Of types that hold numbers rather than indices."""


def symbols_of(session: Any) -> list[Symbol]:
    """The symbolic dimensions of the inputs of a session of onnxruntime, or of anything that describes them likewise."""
    found: dict[str, Symbol] = {}
    for each in session.get_inputs():
        is_fraction = any(kind in each.type for kind in ("float", "double"))
        for axis, dim in enumerate(each.shape or ()):
            if not isinstance(dim, int):
                name = _name(each.name, axis, dim)
                found.setdefault(name, Symbol(name, name, usual_size(name, axis, len(each.shape), is_fraction)))
    return list(found.values())


def trials(symbols: Sequence[Symbol], given: Mapping[str, Range]) -> list[Mapping[str, int]]:
    """Sizes to try, those that are planned for first; nothing to say but one empty trial for a model without symbols."""
    ranges = {each.name: given.get(each.name, (each.usual, each.usual)) for each in symbols}
    low = {name: range[0] for name, range in ranges.items()}
    high = {name: range[1] for name, range in ranges.items()}
    uneven = {name: _uneven(range, place) for place, (name, range) in enumerate(ranges.items())}
    even = {name: _even(range, place) for place, (name, range) in enumerate(ranges.items())}
    small = {name: range[0] if name in given else _SMALL for name, range in ranges.items()}
    found: list[Mapping[str, int]] = []
    for sizes in (low, uneven, high, even, small):
        if sizes not in found:
            found.append(sizes)
    return found


def _uneven(range: Range, place: int) -> int:
    """An odd number, for every dimension another one."""
    low, high = range
    if low < high:
        middle = (low + high) // 2 + place
        return min(max(middle - (middle % 2 == 0), low), high)
    return low + 2 if low < _ROUND else (low - low // 8 - 4 * place) | 1


def _even(range: Range, place: int) -> int:
    """A multiple of what images are usually multiples of."""
    low, high = range
    if low < high:
        middle = (low + high) // 2 // _ROUND * _ROUND
        return middle if low <= middle <= high else high
    if low < 2 * _ROUND:
        return low + 1
    return low // _ROUND * _ROUND + (_ROUND if place % 2 else -_ROUND)


def draw(session: Any, seed: int, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
    """Random inputs: normal for fractions, small indices for integers, coin tosses for booleans.

    Args:
        session: a session of onnxruntime, or what describes inputs likewise.
        seed: of the values.
        sizes: of symbolic dimensions, by name, or by `input[axis]` where they have none; 2 if nothing is said.
    """
    generator = np.random.default_rng(seed)
    known = sizes or {}
    feeds: dict[str, Array] = {}
    for each in session.get_inputs():
        dims = [
            dim if isinstance(dim, int) else known.get(_name(each.name, axis, dim), _SMALL)
            for axis, dim in enumerate(each.shape)
        ]
        feeds[each.name] = _random(each.type, dims, generator, each.name)
    return feeds


def spelled(sizes: Mapping[str, int], names: Collection[str] = ()) -> str:
    """Sizes in words; of some dimensions only, if names are given."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items() if not names or name in names)


def _name(input: str, axis: int, dim: Any) -> str:
    return dim if isinstance(dim, str) and dim else f"{input}[{axis}]"


def _random(type: str, shape: Sequence[int], generator: np.random.Generator, name: str) -> Array:
    kind = type.removeprefix("tensor(").removesuffix(")")
    dtype = next((each for each in DType if each.label == _USUAL.get(kind, kind)), None)
    if dtype is DType.STRING:
        return np.full(shape, "a", dtype=object)
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype is DType.FLOAT8E8M0:  # it has powers of two only
        return np.exp2(generator.integers(-2, 3, shape)).astype(dtype.numpy)
    if dtype is not None and dtype.is_float and dtype not in (DType.COMPLEX64, DType.COMPLEX128):
        return np.asarray(generator.normal(size=shape)).astype(dtype.numpy)
    if dtype is not None and "int" in dtype.label:
        return np.asarray(generator.integers(*_RANGES.get(dtype, _INDICES), shape)).astype(dtype.numpy)
    raise LayoutoptError(f"no random values for the type {type}", where=name)
