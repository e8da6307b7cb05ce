"""Lemmas of convolutions."""

import numpy as np

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.lemma import Lemma
from layoutopt.certificate.checker.normal import RANDOM, make, reshaped, split_view, transposed, view
from layoutopt.certificate.checker.terms import CONSTANT, Term, constant


def _scale_into_filters(term: Term) -> Term | None:
    """Mul(Conv(x, W), s) = Conv(x, Mul(W, s)), s over output channels."""
    *others, factor = term.args
    if factor is None or factor.op != CONSTANT:
        return None
    for place, conv in enumerate(others):
        if conv is None or conv.op != "Conv" or conv.args[1] is None or conv.shape != term.shape:
            continue
        rank = len(conv.shape)
        extents = (1,) * (rank - len(factor.shape)) + factor.shape
        if rank < len(factor.shape) or any(extent != 1 for axis, extent in enumerate(extents) if axis != 1):
            return None
        scale = reshaped(factor, (extents[1], *(1,) * (rank - 1)))
        scaled = make("Conv", conv.args[0], make("Mul", conv.args[1], scale), **dict(conv.attributes))
        return make("Mul", scaled, *others[:place], *others[place + 1 :])
    return None


def _pad_into_convolution(term: Term) -> Term | None:
    """Conv(Pad(x)) = Conv(x) with larger pads, if Pad adds zeros to spatial axes."""
    x, filters = term.args
    assert x is not None
    core, axes = split_view(x)
    places = maps.permutation(axes, core.shape)
    if core.op != "Pad" or len(core.args) != 1 or core["mode"] != "constant" or places is None:
        return None
    rank = len(places)
    before, after = [core["pads"][axis] for axis in places], [core["pads"][rank + axis] for axis in places]
    if any(before[:2]) or any(after[:2]) or min(*before, *after) < 0:
        return None
    added = (*before[2:], *after[2:])
    pads = tuple(old + new for old, new in zip(term["pads"], added, strict=True))
    inside = core.args[0]
    assert inside is not None
    return make("Conv", transposed(inside, places), filters, **{**dict(term.attributes), "pads": pads})


def _zero_filter(term: Term) -> Term | None:
    """Conv(x, 0) = 0, for random x, which is finite."""
    x, filters = term.args
    if x is None or split_view(x)[0].op not in RANDOM:
        return None
    if filters is None or filters.op != CONSTANT or np.any(filters.elements) or not term.is_static:
        return None
    zeros = np.zeros([int(extent) for extent in term.shape])
    return constant(zeros, term.dtype, None, term.lemmas)


def _gate_into_filter(term: Term) -> Term | None:
    """Conv(Mul(x, g), W) = Conv(x, Mul(W, g)), g over channels and for one sample."""
    x, filters = term.args
    assert x is not None and filters is not None
    core, axes = split_view(x)
    if core.op != "Mul" or maps.permutation(axes, core.shape) is None or maps.inverse(axes, core.shape) is None:
        return None
    group, channels = term["group"], x.shape[1]
    kept, gates = [], []
    for factor in core.operands:
        outer = as_operand(factor, axes, core, x)
        if outer is not None and all(extent == 1 for axis, extent in enumerate(outer.shape) if axis != 1):
            gates.append(outer)
        else:
            kept.append(factor)
    if not gates or not kept:
        return None
    rest = make("Mul", *kept)
    if rest.shape != core.shape or (group != 1 and group != channels):
        return None
    if group != 1 and filters.shape[0] != channels:
        return None
    for gate in gates:
        shape = (gate.shape[1], 1) if group != 1 else (1, gate.shape[1])
        filters = make("Mul", filters, reshaped(gate, (*shape, *(1,) * (len(x.shape) - 2))))
    return make("Conv", view(rest, axes), filters, **dict(term.attributes))


def as_operand(factor: Term, axes: maps.Axes, core: Term, x: Term) -> Term | None:
    """A factor of the core of `x = view(core)` as a factor of x; None if it has the full shape."""
    if factor.shape == core.shape:
        return None
    own = (1,) * (len(core.shape) - len(factor.shape)) + factor.shape
    factor = reshaped(factor, own)
    kept = tuple(tuple(digit for digit in group if own[digit[0]] != 1) for group in axes)
    return view(factor, kept)


def _depthwise_as_product(term: Term) -> Term | None:
    """Conv(x, W) = Mul(x, W), if every channel has its own filter of one element."""
    x, filters = term.args
    assert x is not None and filters is not None
    channels, rank = x.shape[1], len(x.shape)
    if term["group"] != channels or filters.shape != (channels, *(1,) * (rank - 1)):
        return None
    if any(term["pads"]) or set(term["strides"]) != {1}:
        return None
    return make("Mul", x, reshaped(filters, (1, channels, *(1,) * (rank - 2))))


_CONV = frozenset({"Conv"})
LEMMAS = (
    Lemma(
        "depthwise-as-product",
        _CONV,
        "Conv(x, W) = x W, a filter of one element for every channel",
        "all shapes",
        _depthwise_as_product,
    ),
    Lemma(
        "pad-into-convolution",
        _CONV,
        "Conv(Pad(x), pads = p) = Conv(x, pads = p + q), zeros on spatial axes",
        "all shapes",
        _pad_into_convolution,
    ),
    Lemma("zero-filter", _CONV, "Conv(x, 0) = 0, for random x", "all shapes", _zero_filter),
    Lemma(
        "gate-into-filter",
        _CONV,
        "Conv(g x, W) = Conv(x, g W), g over channels, one sample",
        "all shapes",
        _gate_into_filter,
    ),
    Lemma(
        "scale-into-filters",
        frozenset({"Mul"}),
        "s Conv(x, W) = Conv(x, s W), s over output channels",
        "all shapes",
        _scale_into_filters,
    ),
)
