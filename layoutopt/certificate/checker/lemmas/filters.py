"""Lemmas that compose convolutions.

Winograd's algorithm is a use of them: its constants are multiplied out, and compared with the filter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.equality import difference
from layoutopt.certificate.checker.lemma import Lemma
from layoutopt.certificate.checker.normal import NARY, UNARY, make, split_view, view
from layoutopt.certificate.checker.terms import CONSTANT, Array, Extent, Term, constant

Join = Callable[[Sequence[Term], int], Term | None]


@dataclass(frozen=True, slots=True)
class Filter:
    """A constant filter of a convolution without dilations, whose tap k reads element k - front of x for row 0 of the result.

    Attributes:
        elements: of shape (O, I / group, *taps).
        bound: the bound of the elements.
        front: the pads in front, by spatial axis.
        slack: pads minus taps, by spatial axis: the number of rows is (extent + slack) // stride + 1.
    """

    elements: Array
    bound: Array
    front: tuple[int, ...]
    slack: tuple[int, ...]

    @property
    def taps(self) -> tuple[int, ...]:
        """The extents of the spatial axes."""
        return tuple(self.elements.shape[2:])

    @classmethod
    def of(cls, conv: Term) -> "Filter | None":
        """The filter of a term; None if that is no convolution, or its filter is computed."""
        w = conv.args[1] if conv.op == "Conv" else None
        if w is None or w.op != CONSTANT:
            return None
        pads, rank = conv["pads"], len(conv["strides"])
        taps = [(extent - 1) * step + 1 for extent, step in zip(w.elements.shape[2:], conv["dilations"], strict=True)]
        elements, bound = w.elements, w.magnitudes
        if set(conv["dilations"]) != {1}:
            places = (..., *(slice(None, None, step) for step in conv["dilations"]))
            elements, bound = np.zeros((2, *w.elements.shape[:2], *taps))
            elements[places], bound[places] = w.elements, w.magnitudes
        return cls(elements, bound, pads[:rank], tuple(pads[k] + pads[rank + k] - taps[k] for k in range(rank)))

    def widened(self, front: Sequence[int], taps: Sequence[int]) -> "Filter":
        """The filter with taps of zero around it."""
        added = [f - g for f, g in zip(front, self.front, strict=True)]
        widths = [(0, 0), (0, 0), *((a, t - a - own) for a, t, own in zip(added, taps, self.taps, strict=True))]
        if not np.any(widths):
            return self
        return Filter(np.pad(self.elements, widths), np.pad(self.bound, widths), tuple(front), self.slack)

    def term(self, like: Term, strides: Sequence[int]) -> Term | None:
        """The convolution of the image of `like` with this filter; None if it would crop the image."""
        behind = tuple(s + t - f for s, t, f in zip(self.slack, self.taps, self.front, strict=True))
        if min(*self.front, *behind) < 0:
            return None
        x, w = _operands(like)
        filter = constant(self.elements, like.dtype, self.bound, w.lemmas)
        ones = (1,) * len(strides)
        attributes = {
            "group": like["group"],
            "strides": tuple(strides),
            "pads": (*self.front, *behind),
            "dilations": ones,
        }
        return make("Conv", x, filter, lemmas=like.lemmas, **attributes)


def _operands(conv: Term) -> tuple[Term, Term]:
    x, w = conv.args
    assert x is not None and w is not None
    return x, w


def _aligned(filters: Sequence[Filter]) -> list[Filter]:
    """The filters with the same front and the same number of taps."""
    front = tuple(map(max, zip(*(each.front for each in filters), strict=True)))
    behind = map(max, zip(*(map(int.__sub__, each.taps, each.front) for each in filters), strict=True))
    taps = [f + b for f, b in zip(front, behind, strict=True)]
    return [each.widened(front, taps) for each in filters]


def _noting(conv: Term, others: Sequence[Term]) -> Term:
    """The convolution, with the lemmas of the others."""
    return replace(conv, lemmas=conv.lemmas.union(*(other.lemmas for other in others)))


# Conv of Conv


def _conv_of_conv(term: Term) -> Term | None:
    """Conv(Conv(x, V), W) = Conv(x, V W): V is one filter for all channels, or both are pointwise."""
    inner = term.args[0]
    if inner is None or inner.op != "Conv" or term["group"] != 1:
        return None
    first, second = Filter.of(inner), Filter.of(term)
    if first is None or second is None:
        return None
    x, channels, rank = _operands(inner)[0], inner.shape[1], len(first.taps)
    is_shared = inner["group"] == channels == x.shape[1] and bool((first.elements == first.elements[:1]).all())
    is_pointwise = (
        inner["group"] == 1 and {*first.taps, *second.taps} == {1} and not any((*inner["pads"], *term["pads"]))
    )
    strides = inner["strides"]
    for k in range(rank):
        is_padded = bool(term["pads"][k] or term["pads"][rank + k])
        if is_padded and (first.taps[k] != 1 or strides[k] != 1 or inner["pads"][k] or inner["pads"][rank + k]):
            return None
    if not isinstance(x.shape[1], int) or not (is_shared or is_pointwise):
        return None
    taps = tuple((b - 1) * s + a for a, b, s in zip(first.taps, second.taps, strides, strict=True))
    elements, bound = np.zeros((2, len(second.elements), x.shape[1], *taps))
    for place in product(*map(range, second.taps)):
        area: Any = (..., *(slice(at * s, at * s + a) for at, s, a in zip(place, strides, first.taps, strict=True)))
        for target, one, other in ((elements, first.elements, second.elements), (bound, first.bound, second.bound)):
            at_place: Any = (..., *place)
            tap: Array = other[at_place]
            target[area] += (
                np.tensordot(tap, one, 1) if is_pointwise else tap.reshape((*tap.shape, *(1,) * rank)) * one[0, 0]
            )
    front = tuple(s * f + c for s, f, c in zip(strides, second.front, first.front, strict=True))
    slack = tuple(s * (b + 1) + a for s, b, a in zip(strides, second.slack, first.slack, strict=True))
    outer = _noting(replace(term, args=(x, term.args[1])), [inner])
    found = Filter(elements, bound, front, slack).term(
        outer, [s * q for s, q in zip(strides, term["strides"], strict=True)]
    )
    return found if found is not None and found.shape == term.shape else None


# Sum of Convs


def _sum_of_convs(term: Term) -> Term | None:
    """Add(Conv(x, V), Conv(x, W), ..) = Add(Conv(x, V + W), ..)."""
    convs = [arg for arg in term.operands if arg.op == "Conv" and arg.shape == term.shape]
    for place, conv in enumerate(convs):
        same = [each for each in convs[place:] if _is_alike(each, conv)]
        found = [filter for each in same if (filter := Filter.of(each)) is not None] if len(same) > 1 else []
        if not found or len(found) < len(same):
            continue
        filters = _aligned(found)
        elements, bound = filters[0].elements, filters[0].bound
        for each in filters[1:]:
            elements, bound = elements + each.elements, bound + each.bound
        whole = Filter(elements, bound, filters[0].front, found[0].slack).term(_noting(conv, same), conv["strides"])
        used = {id(each) for each in same}
        rest = [arg for arg in term.operands if id(arg) not in used]
        return None if whole is None else make("Add", whole, *rest) if rest else whole
    return None


def _is_alike(one: Term, other: Term) -> bool:
    """Whether two convolutions differ in their filters and pads only."""
    kinds = ((each["group"], each["strides"]) for each in (one, other))
    return len(set(kinds)) == 1 and not difference(_operands(one)[0], _operands(other)[0])


# Phases of rows


def _phases(term: Term) -> Term | None:
    """Concat(Conv(x, W_0), .., Conv(x, W_m-1)) = view(Conv(x, W)), where part j has the rows j, j + m, .. of the whole."""
    parts = [split_view(arg) for arg in term.operands]
    first, axes = parts[0]
    if len(parts) < 2 or any(each != axes for _, each in parts):
        return None
    for axis in range(len(first.shape) - 1, 1, -1):
        whole = _joined([core for core, _ in parts], axis - len(first.shape), first.shape[axis], _interleaved)
        if whole is not None:
            digits = [[(a, s * len(parts) if a == axis else s, e) for a, s, e in group] for group in axes]
            digits[term["axis"]].insert(0, (axis, 1, len(parts)))
            found = view(whole, maps.canonical(digits))
            return found if found.shape == term.shape else None
    return None


def _joined(parts: Sequence[Term], axis: int, rows: Extent, join: Join) -> Term | None:
    """The whole of element-wise terms of convolutions, where `join` makes the whole of convolutions; the axis is negative."""
    first = parts[0]
    if any((part.op, part.shape, len(part.args)) != (first.op, first.shape, len(first.args)) for part in parts):
        return None
    if first.op != CONSTANT and (len(first.shape) < -axis or first.shape[axis] != rows):
        return None  # one row that is broadcast is no phase of the rows
    if first.op == "Conv":
        return join(parts, len(first.shape) + axis)
    if any(part.attributes != first.attributes for part in parts):
        return None
    if first.op == CONSTANT:
        is_alike = all(not difference(part, first) for part in parts)
        return first if is_alike and (1, *first.shape)[max(axis, -1 - len(first.shape))] == 1 else None
    if first.op not in UNARY | NARY or any(arg is None for part in parts for arg in part.args):
        return None
    args = [
        _joined([arg for part in parts if (arg := part.args[k]) is not None], axis, rows, join)
        for k in range(len(first.args))
    ]
    return None if any(arg is None for arg in args) else make(first.op, *args, **dict(first.attributes))


def _interleaved(convs: Sequence[Term], axis: int) -> Term | None:
    """The convolution whose rows j, j + m, .. along an axis are those of `convs[j]`."""
    conv, place, count = convs[0], axis - 2, len(convs)
    if conv["strides"][place] % count or conv.shape[axis] == 1 or not all(_is_alike(each, conv) for each in convs):
        return None
    filters = [filter for each in convs if (filter := Filter.of(each)) is not None]
    if len(filters) < count:
        return None
    strides = [s // count if k == place else s for k, s in enumerate(conv["strides"])]
    fronts = [
        tuple(f + j * strides[k] * (k == place) for k, f in enumerate(each.front)) for j, each in enumerate(filters)
    ]
    same = _aligned([replace(each, front=front) for each, front in zip(filters, fronts, strict=True)])
    terms = [constant(each.elements, conv.dtype, each.bound) for each in same]
    if any(difference(each, terms[0]) for each in terms):
        return None
    bound = np.max([each.bound for each in same], axis=0)
    whole = _trimmed(Filter(same[0].elements, bound, same[0].front, filters[0].slack), place, conv.dtype)
    return _with_rows(_noting(conv, convs), whole, strides, axis, conv.shape[axis], count)


def _with_rows(
    conv: Term, filter: Filter, strides: Sequence[int], axis: int, rows: int | str, times: int = 1
) -> Term | None:
    """The convolution with `rows * times` rows along an axis; None if that would crop the image."""
    extent = _operands(conv)[0].shape[axis]
    if not isinstance(rows, int) or not isinstance(extent, int):
        return None
    slack = (rows * times - 1) * strides[axis - 2] - extent
    return replace(filter, slack=tuple(slack if k == axis - 2 else own for k, own in enumerate(filter.slack))).term(
        conv, strides
    )


def _trimmed(filter: Filter, place: int, dtype: int) -> Filter:
    """The filter without the taps at the ends of an axis that are zero within rounding."""
    used = []
    for tap in range(filter.taps[place]):
        elements, bound = (np.take(each, tap, place + 2) for each in (filter.elements, filter.bound))
        zeros = constant(np.zeros(elements.shape), dtype, np.minimum(bound, np.abs(filter.elements).max()))
        if difference(constant(elements, dtype, bound), zeros):
            used.append(tap)
    if not used:
        return filter
    start, stop = min(used[0], filter.front[place]), used[-1] + 1
    area = (slice(None),) * (place + 2) + (slice(start, stop),)
    front = tuple(f - start * (k == place) for k, f in enumerate(filter.front))
    return Filter(filter.elements[area], filter.bound[area], front, filter.slack)


def _fewer_rows(term: Term) -> Term | None:
    """Slice(view(Conv(x, W))) = view(Conv(x, W, fewer pads)), if the last rows are left out."""
    operand = term.args[0]
    if operand is None or term["starts"] != (0,) or term["steps"] != (1,):
        return None
    core, axes = split_view(operand)
    (place,), (rows,) = term["axes"], term["ends"]
    if len(axes[place]) != 1 or rows <= 0:
        return None
    axis, _, extent = axes[place][0]
    if axis < 2 or axes[place][0] != (axis, 1, core.shape[axis]) or not isinstance(extent, int) or rows > extent:
        return None

    def cropped(convs: Sequence[Term], axis: int) -> Term | None:
        filter = Filter.of(convs[0]) if convs[0].shape[axis] == extent else None
        return None if filter is None else _with_rows(convs[0], filter, convs[0]["strides"], axis, rows)

    whole = _joined([core], axis - len(core.shape), core.shape[axis], cropped)
    digits = [((axis, 1, rows),) if k == place else group for k, group in enumerate(axes)]
    return None if whole is None else view(whole, tuple(digits))


LEMMAS = (
    Lemma(
        "conv-of-conv",
        frozenset({"Conv"}),
        "Conv(Conv(x, V), W) = Conv(x, V W), V is one filter for all channels, or both are pointwise",
        "all shapes",
        _conv_of_conv,
    ),
    Lemma("sum-of-convs", frozenset({"Add"}), "Conv(x, V) + Conv(x, W) = Conv(x, V + W)", "all shapes", _sum_of_convs),
    Lemma(
        "rows-as-phases",
        frozenset({"Concat"}),
        "rows j, j + m, .. of a convolution are one with stride m and a shifted filter",
        "all shapes",
        _phases,
    ),
    Lemma(
        "fewer-rows",
        frozenset({"Slice"}),
        "the first rows of a convolution are one with fewer pads",
        "all shapes",
        _fewer_rows,
    ),
)
