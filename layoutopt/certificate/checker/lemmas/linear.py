"""Lemmas of convolutions and matrix products."""

import numpy as np

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.index_map import Axes
from layoutopt.certificate.checker.lemma import ALGEBRAIC, Lemma, is_factor, operands, product
from layoutopt.certificate.checker.normal import make, present, reshaped, split_view, transposed, view
from layoutopt.certificate.checker.tables import RANDOM
from layoutopt.certificate.checker.terms import CONSTANT, Term, constant


def _scaled(weights: Term, factor: Term) -> Term | None:
    """Weights times numbers or a gate; None if a product of constants is beyond the range."""
    if weights.op != CONSTANT or factor.op != CONSTANT:
        return make("Mul", weights, factor)
    elements = product(weights, factor) if is_factor(factor) else None
    return None if elements is None else constant(elements, weights.dtype)


def _scale_into_filters(term: Term) -> Term | None:
    """Mul(Conv(x, W), s) = Conv(x, Mul(W, s)), s over output channels."""
    conv, factor = operands(term)
    if conv.op != "Conv" or conv.shape != term.shape or not is_factor(factor):
        return None
    rank = len(conv.shape)
    extents = (1,) * (rank - len(factor.shape)) + factor.shape
    if any(extent != 1 for axis, extent in enumerate(extents) if axis != 1):
        return None
    filters = _scaled(operands(conv)[1], reshaped(factor, (extents[1], *(1,) * (rank - 1))))
    return None if filters is None else make("Conv", conv.args[0], filters, **dict(conv.attributes))


def _pad_into_convolution(term: Term) -> Term | None:
    """Conv(Pad(x)) = Conv(x) with larger pads, if Pad adds zeros to spatial axes."""
    core, axes = split_view(operands(term)[0])
    places = maps.permutation(axes, core.shape)
    if core.op != "Pad" or len(core.args) != 1 or core["mode"] != "constant" or places is None:
        return None
    rank = len(places)
    before, after = [core["pads"][axis] for axis in places], [core["pads"][rank + axis] for axis in places]
    if any(before[:2]) or any(after[:2]) or min(*before, *after) < 0:
        return None
    pads = tuple(old + new for old, new in zip(term["pads"], (*before[2:], *after[2:]), strict=True))
    return make("Conv", transposed(present(core.args), places), term.args[1], **{**dict(term.attributes), "pads": pads})


def _zero_filter(term: Term) -> Term | None:
    """Conv(x, 0) = 0, for random x, which is finite."""
    x, filters = operands(term)
    if split_view(x)[0].op not in RANDOM or filters.op != CONSTANT or np.any(filters.elements) or not term.is_static:
        return None
    return constant(np.zeros([int(extent) for extent in term.shape]), term.dtype)


def _gate_into_filter(term: Term) -> Term | None:
    """Conv(Mul(x, g), W) = Conv(x, Mul(W, g)), g over channels and for one sample."""
    x, filters = operands(term)
    core, axes = split_view(x)
    if core.op != "Mul" or maps.permutation(axes, core.shape) is None or maps.inverse(axes, core.shape) is None:
        return None
    group, channels, rank = term["group"], x.shape[1], len(x.shape)
    if term.dtype not in ALGEBRAIC or group not in (1, channels) or (group != 1 and filters.shape[0] != channels):
        return None
    for place in (1, 0):
        gate = _as_operand(operands(core)[place], axes, core)
        if gate is None or operands(core)[1 - place].shape != core.shape:
            continue
        if all(extent == 1 for axis, extent in enumerate(gate.shape) if axis != 1):
            shape = (gate.shape[1], 1) if group != 1 else (1, gate.shape[1])
            scaled = _scaled(filters, reshaped(gate, (*shape, *(1,) * (rank - 2))))
            kept = view(operands(core)[1 - place], axes)
            return None if scaled is None else make("Conv", kept, scaled, **dict(term.attributes))
    return None


def _as_operand(factor: Term, axes: Axes, core: Term) -> Term | None:
    """A factor of `core` as a factor of its view by `axes`; None if it has the full shape."""
    if factor.shape == core.shape:
        return None
    own = (1,) * (len(core.shape) - len(factor.shape)) + factor.shape
    return view(reshaped(factor, own), tuple(tuple(digit for digit in group if own[digit[0]] != 1) for group in axes))


def _depthwise_as_product(term: Term) -> Term | None:
    """Conv(x, W) = Mul(x, W), if every channel has its own filter of one element."""
    x, filters = operands(term)
    channels, rank = x.shape[1], len(x.shape)
    if term["group"] != channels or filters.shape != (channels, *(1,) * (rank - 1)):
        return None
    if any(term["pads"]) or set(term["strides"]) != {1}:
        return None
    return make("Mul", x, reshaped(filters, (1, channels, *(1,) * (rank - 2))))


def _pointwise_as_product(term: Term) -> Term | None:
    """Conv(x, W) = view(MatMul(view(x), W)), channels last, if W has one tap, and there are no pads."""
    x, w = operands(term)
    if w.op != CONSTANT or term["group"] != 1 or w.elements[0, 0].size != 1:
        return None
    if any(term["pads"]) or set(term["strides"]) != {1}:
        return None
    matrix, rank = transposed(reshaped(w, w.shape[:2]), (1, 0)), len(x.shape)
    rows = make("MatMul", transposed(x, (0, *range(2, rank), 1)), matrix)
    return transposed(rows, (0, rank - 1, *range(1, rank - 1)))


def _scale_into_matrix(term: Term) -> Term | None:
    """Mul(MatMul(x, W), s) = MatMul(x, Mul(W, s)), W constant, s over columns."""
    rows, factor = operands(term)
    if rows.op != "MatMul" or rows.shape != term.shape or not is_factor(factor):
        return None
    matrix = operands(rows)[1]
    if matrix.op != CONSTANT or len(matrix.shape) != 2 or any(extent != 1 for extent in factor.shape[:-1]):
        return None
    columns = factor.shape[-1] if factor.shape else 1
    scaled = _scaled(matrix, reshaped(factor, (1, columns)))
    return None if scaled is None else make("MatMul", rows.args[0], scaled)


def _scale_into_rows(term: Term) -> Term | None:
    """MatMul(Mul(x, g), W) = MatMul(x, Mul(W, g)), W and g constant, g along the summed axis."""
    x, matrix = operands(term)
    core, axes = split_view(x)
    if core.op != "Mul" or matrix.op != CONSTANT or len(matrix.shape) != 2 or operands(core)[0].shape != core.shape:
        return None
    gate = _as_operand(operands(core)[1], axes, core)
    if gate is None or gate.op != CONSTANT or any(extent != 1 for extent in gate.shape[:-1]):
        return None
    scaled = _scaled(matrix, reshaped(gate, (gate.shape[-1], 1)))
    return None if scaled is None else make("MatMul", view(operands(core)[0], axes), scaled)


_CONV, _MUL = frozenset({"Conv"}), frozenset({"Mul"})
LEMMAS = (
    Lemma("depthwise-as-product", _CONV, "Conv(x, W) = x W, one filter of one tap per channel", _depthwise_as_product),
    Lemma("pad-into-convolution", _CONV, "Conv(Pad(x), pads = p) = Conv(x, pads = p + q)", _pad_into_convolution),
    Lemma("zero-filter", _CONV, "Conv(x, 0) = 0, for random x", _zero_filter),
    Lemma("gate-into-filter", _CONV, "Conv(g x, W) = Conv(x, g W), g over channels, one sample", _gate_into_filter),
    Lemma("scale-into-filters", _MUL, "s Conv(x, W) = Conv(x, s W), s over output channels", _scale_into_filters),
    Lemma("pointwise-as-product", _CONV, "a convolution of one tap is a matrix product", _pointwise_as_product),
    Lemma("scale-into-rows", frozenset({"MatMul"}), "(g x) W = x (g W), g along the summed axis", _scale_into_rows),
    Lemma("scale-into-matrix", _MUL, "s (x W) = x (s W), s over columns", _scale_into_matrix),
)
