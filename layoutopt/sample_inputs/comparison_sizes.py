"""Sizes of symbolic dimensions at which two models are compared.

A rewritten model must be correct at every size, so a comparison also uses sizes that the planner did not use: odd sizes, and
different heights and widths. A model need not run at all of them, so there are more proposals than a comparison needs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from layoutopt.ir.sizes import Range, Symbol, default_size
from layoutopt.onnx_io.interface import dimension_name
from layoutopt.sample_inputs.dimension_roles import Role
from layoutopt.sample_inputs.symbolic_dimensions import Dimensions

_SMALL = 2  # last resort: one size for all dimensions, because different names may have to be equal
_ROUND = 32  # usual divisor of the extents of images


def symbols_of(session: Any) -> list[Symbol]:
    """The symbolic dimensions of the inputs of a session, or of another object with `get_inputs`."""
    found: dict[str, Symbol] = {}
    for each in session.get_inputs():
        is_fraction = any(kind in each.type for kind in ("float", "double"))
        for axis, dim in enumerate(each.shape or ()):
            if not isinstance(dim, int):
                name = dimension_name(each.name, axis, dim)
                found.setdefault(name, Symbol(name, name, default_size(name, axis, len(each.shape), is_fraction)))
    return list(found.values())


def sizes_to_compare(
    symbols: Sequence[Symbol],
    given: Mapping[str, Range],
    planned: Mapping[str, int] | None = None,
    dimensions: Dimensions | None = None,
) -> list[Mapping[str, int]]:
    """Sizes at which models are compared, those of the planner first; one empty mapping without symbolic dimensions.

    Args:
        symbols: the dimensions.
        given: the given sizes.
        planned: the sizes that the planner uses for all other dimensions.
        dimensions: the symbolic dimensions of the graph, to whose relations sizes are adjusted.
    """
    defaults = {each.name: (planned or {}).get(each.name, each.default) for each in symbols}
    ranges = {name: given.get(name, (size, size)) for name, size in defaults.items()}
    low = {name: range[0] for name, range in ranges.items()}
    high = {name: range[1] for name, range in ranges.items()}
    uneven = {name: _uneven(range, index) for index, (name, range) in enumerate(ranges.items())}
    even = {name: _even(range, index) for index, (name, range) in enumerate(ranges.items())}
    small = {name: range[0] if name in given else _SMALL for name, range in ranges.items()}
    proposals = [low, uneven, high, even, small]
    if dimensions is not None:
        proposals = [low, *(_related(dimensions, proposed, given) for proposed in proposals), *proposals]
        proposals[3:3] = _without_past(dimensions, low)
    found: list[Mapping[str, int]] = []
    for sizes in proposals:
        if sizes not in found:
            found.append(sizes)
    return found


def _related(dimensions: Dimensions, proposed: Mapping[str, int], given: Mapping[str, Range]) -> dict[str, int]:
    """Sizes near the proposed ones that satisfy the relations, clamped to given ranges."""
    texts = {each.name: each.dim for each in dimensions.symbols}
    point = dimensions.solved({texts[name]: size for name, size in proposed.items() if name in texts})
    sizes = {**proposed, **dimensions.named(point)}
    return {
        name: min(max(size, given[name][0]), given[name][1]) if name in given else size for name, size in sizes.items()
    }


def _without_past(dimensions: Dimensions, proposed: Mapping[str, int]) -> list[dict[str, int]]:
    """The sizes with empty caches, as in the first step of a decoder; empty for a model without caches."""
    names = {each.name: each.dim for each in dimensions.symbols if each.name in proposed}
    past = [dim for dim in names.values() if dimensions.roles[dim].role is Role.PAST and dim not in dimensions.fixed]
    if not past:
        return []
    point = {dim: proposed[name] for name, dim in names.items()} | dict.fromkeys(past, 0)
    return [dimensions.named(dimensions.constraints.complete(point))]


def _uneven(range: Range, index: int) -> int:
    """An odd size in a range, different for every dimension."""
    low, high = range
    if low < high:
        middle = (low + high) // 2 + index
        return min(max(middle - (middle % 2 == 0), low), high)
    return low + 2 if low < _ROUND else (low - low // 8 - 4 * index) | 1


def _even(range: Range, index: int) -> int:
    """A size in or near a range that is a multiple of the usual divisor of image extents."""
    low, high = range
    if low < high:
        middle = (low + high) // 2 // _ROUND * _ROUND
        return middle if low <= middle <= high else high
    if low < 2 * _ROUND:
        return low + 1
    return low // _ROUND * _ROUND + (_ROUND if index % 2 else -_ROUND)


__all__ = ["sizes_to_compare", "symbols_of"]
