"""A lemma: a rewrite of terms whose conditions bound its effect on rounding."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.normal import make, present, reshaped, split_view, transposed, view
from layoutopt.certificate.checker.terms import CONSTANT, Array, Term, constant

ALGEBRAIC = (1, 11)  # float32 and double; values of narrower types overflow too easily
SMALLEST_FACTOR, LARGEST_FACTOR = 2.0**-64, 2.0**16


@dataclass(frozen=True, slots=True)
class Lemma:
    """A named identity of terms.

    Attributes:
        name: its name in certificates and in the documentation.
        ops: the operators of the terms it is tried on.
        statement: the identity, in one line.
        rewrite: the other side of the identity, or None if the term is not one side of it. Every condition of the lemma,
            also those on magnitudes, is tested here. The result is normalised again by the caller.
    """

    name: str
    ops: frozenset[str]
    statement: str
    rewrite: Callable[[Term], Term | None]


def operands(term: Term) -> tuple[Term, Term]:
    """The two operands of a term."""
    first, second = term.args
    assert first is not None and second is not None
    return first, second


def is_factor(term: Term | None) -> bool:
    """Whether a term is a constant whose elements are 0 or in the range in which products are reordered."""
    if term is None or term.op != CONSTANT or term.dtype not in ALGEBRAIC:
        return False
    sizes = np.abs(term.elements)
    return bool(np.all((sizes == 0) | ((sizes >= SMALLEST_FACTOR) & (sizes <= LARGEST_FACTOR))))


def product(first: Term, second: Term) -> Array | None:
    """The elements of the product of two constants; None if one is beyond the range, or smaller than normal numbers."""
    with np.errstate(all="ignore"):
        elements = first.elements * second.elements
    is_zero = (first.elements == 0) | (second.elements == 0)
    is_normal = (np.abs(elements) >= 2.0**-120) & (np.abs(elements) <= 2.0**32)
    return elements if np.all(is_zero & np.isfinite(elements) | is_normal) else None


LARGEST_CANCELLATION = 16.0


def _product_with_one(term: Term) -> Term | None:
    x, factor = operands(term)
    is_one = factor.op == CONSTANT and x.shape == term.shape and bool(np.all(factor.elements == 1))
    return x if is_one else None


def _factor_of_shift(term: Term) -> Term | None:
    """Mul(Add(x, d), c) = Add(Mul(x, c), d c)."""
    total, factor = operands(term)
    shift = total.args[1] if total.op == "Add" else None
    if shift is None or shift.op != CONSTANT or not is_factor(factor) or (elements := product(shift, factor)) is None:
        return None
    bound = None if shift.bound is None else shift.bound * np.abs(factor.elements)
    return make("Add", make("Mul", total.args[0], factor), constant(elements, term.dtype, bound))


def _sum_of_shifts(term: Term) -> Term | None:
    """Add(Add(x, d), c) = Add(x, d + c), if the sum of |d| and |c| is at most 16 times |d + c| or the weights of x."""
    total, shift = operands(term)
    other = total.args[1] if total.op == "Add" else None
    x = total.args[0] if total.args else None
    if x is None or other is None or other.op != CONSTANT or shift.op != CONSTANT or term.dtype not in ALGEBRAIC:
        return None
    with np.errstate(all="ignore"):
        elements, bound = other.elements + shift.elements, other.magnitudes + shift.magnitudes
        allowed = LARGEST_CANCELLATION * np.maximum(np.abs(elements), _size(x))
    if not np.all(np.isfinite(bound) & (bound <= allowed) & (bound < 2.0**64)):
        return None
    return make("Add", x, constant(elements, term.dtype, bound))


def _size(x: Term) -> Array:
    """The sums of the absolute values of the weights of x, 0 if it has none."""
    weights = x.args[1] if x.op in ("Conv", "MatMul") else None
    if weights is None or weights.op != CONSTANT:
        return np.zeros(())
    sizes = np.abs(weights.elements)
    if x.op == "MatMul":
        return np.asarray(sizes.sum(axis=-2))
    return np.asarray(sizes.sum(axis=tuple(range(1, sizes.ndim)))).reshape(-1, *(1,) * (sizes.ndim - 2))


def _zero_shift(term: Term) -> Term | None:
    """Add(W x, 0) = W x, which is no -0."""
    x, shift = operands(term)
    is_zero = shift.op == CONSTANT and (x.op in ("Conv", "MatMul") or x["is_sum"]) and not np.any(shift.magnitudes)
    return x if is_zero and x.shape == term.shape else None


def _quotient_by_constant(term: Term) -> Term | None:
    """Div(x, c) = Mul(x, 1 / c)."""
    x, divisor = operands(term)
    if not is_factor(divisor) or not np.all(divisor.elements):
        return None
    factor = constant(1 / divisor.elements, term.dtype)
    return make("Mul", x, factor) if is_factor(factor) else None


def _scaled(weights: Term, factor: Term) -> Term | None:
    """Constant weights times numbers; None if a product is beyond the range."""
    is_product = weights.op == CONSTANT and is_factor(factor)
    elements = product(weights, factor) if is_product else None
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
    if core.op != "Pad" or len(core.args) != 1 or core["mode"] != "constant" or maps.inverse(axes, core.shape) is None:
        return None
    if any(group and group != maps.identity(core.shape)[group[0][0]] for group in axes):
        return None  # no order of axes
    source, rank = present(core.args), len(core.shape)
    pads = [(core["pads"][group[0][0]], core["pads"][rank + group[0][0]]) if group else (0, 0) for group in axes]
    if any(map(any, pads[:2])) or min(core["pads"]) < 0:  # of axes of extent 1, too, which have no group
        return None
    added = [before for before, _ in pads[2:]] + [after for _, after in pads[2:]]
    image = view(source, tuple(maps.identity(source.shape)[group[0][0]] if group else () for group in axes))
    window = {**dict(term.attributes), "pads": tuple(old + new for old, new in zip(term["pads"], added, strict=True))}
    return make("Conv", image, term.args[1], **window)


def _zero_filter(term: Term) -> Term | None:
    """Conv(x, 0) = 0, for a constant x that is finite."""
    x, filters = operands(term)
    source = split_view(x)[0]
    if not (source.op == filters.op == CONSTANT and term.is_static):
        return None
    if not np.isfinite(source.elements).all() or np.any(filters.elements):
        return None
    return constant(np.zeros([int(extent) for extent in term.shape]), term.dtype)


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
    gate = operands(core)[1]
    own = (1,) * (len(core.shape) - len(gate.shape)) + gate.shape
    if gate.op != CONSTANT or own == core.shape:
        return None
    gate = view(reshaped(gate, own), tuple(tuple(digit for digit in group if own[digit[0]] != 1) for group in axes))
    if any(extent != 1 for extent in gate.shape[:-1]):
        return None
    scaled = _scaled(matrix, reshaped(gate, (gate.shape[-1], 1)))
    return None if scaled is None else make("MatMul", view(operands(core)[0], axes), scaled)


_CONV, _MUL, _ADD = frozenset({"Conv"}), frozenset({"Mul"}), frozenset({"Add"})

LEMMAS = (
    Lemma("product-with-one", _MUL, "x 1 = x", _product_with_one),
    Lemma("factor-of-shift", _MUL, "(x + d) c = x c + d c, d and c constant", _factor_of_shift),
    Lemma("sum-of-shifts", _ADD, "(x + d) + c = x + (d + c), d and c constant, without cancellation", _sum_of_shifts),
    Lemma("zero-shift", _ADD, "W x + 0 = W x", _zero_shift),
    Lemma("quotient-by-constant", frozenset({"Div"}), "x / c = x (1 / c), c constant", _quotient_by_constant),
    Lemma("depthwise-as-product", _CONV, "Conv(x, W) = x W, one filter of one tap per channel", _depthwise_as_product),
    Lemma("pad-into-convolution", _CONV, "Conv(Pad(x), pads = p) = Conv(x, pads = p + q)", _pad_into_convolution),
    Lemma("zero-filter", _CONV, "Conv(x, 0) = 0, for constant x", _zero_filter),
    Lemma("scale-into-filters", _MUL, "s Conv(x, W) = Conv(x, s W), s over output channels", _scale_into_filters),
    Lemma("pointwise-as-product", _CONV, "a convolution of one tap is a matrix product", _pointwise_as_product),
    Lemma("scale-into-rows", frozenset({"MatMul"}), "(g x) W = x (g W), g along the summed axis", _scale_into_rows),
    Lemma("scale-into-matrix", _MUL, "s (x W) = x (s W), s over columns", _scale_into_matrix),
)
BY_NAME: dict[str, Lemma] = {lemma.name: lemma for lemma in LEMMAS}
BY_OP: dict[str, list[Lemma]] = {}
for _lemma in LEMMAS:
    for _op in _lemma.ops:
        BY_OP.setdefault(_op, []).append(_lemma)
