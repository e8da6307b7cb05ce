"""Lemmas of linear maps along one axis: products with a constant matrix, and convolutions with a constant filter."""

from collections.abc import Sequence

import numpy as np

from layoutopt.certificate.checker.index_map import Axes
from layoutopt.certificate.checker.lemma import Lemma
from layoutopt.certificate.checker.lemmas.convolutions import as_operand
from layoutopt.certificate.checker.normal import make, reshaped, split_view, transposed, view
from layoutopt.certificate.checker.terms import CONSTANT, VIEW, Array, Term, constant


def _constant_operands(term: Term, op: str) -> tuple[Term, Term, list[Term]] | None:
    """The image or rows, without the constants along the mapped axis that op combines them with; the matrix; these constants.

    None unless the first operand of `term` is such a sum or product, and the second one is constant.
    """
    x, w = term.args
    axis = 1 if term.op == "Conv" else len(term.shape) - 1
    if x is None or w is None or w.op != CONSTANT:
        return None
    core, axes = split_view(x)
    if core.op != op:
        return None
    found: list[Term] = []
    kept: list[Term] = []
    for operand in core.operands:
        own = as_operand(operand, axes, core, x) if operand.op == CONSTANT else None
        is_along = own is not None and all(
            extent == 1 or (place == axis and extent == x.shape[axis]) for place, extent in enumerate(own.shape)
        )
        (found if is_along and own is not None else kept).append(operand if own is None or not is_along else own)
    rest = make(op, *kept) if found and kept else None
    return None if rest is None or rest.shape != core.shape else (view(rest, axes), w, found)


def _scale_into_rows(term: Term) -> Term | None:
    """MatMul(Mul(x, g), W) = MatMul(x, Mul(g, W)), g along the summed axis."""
    found = _constant_operands(term, "Mul") if len(term.shape) >= 2 else None
    if found is None or len(found[1].shape) != 2:
        return None
    x, w, gates = found
    for gate in gates:
        w = make("Mul", w, reshaped(gate, (gate.shape[-1], 1)))
    return make("MatMul", x, w)


def _shift_of_input(term: Term) -> Term | None:
    """Conv(Add(x, t), W) = Add(Conv(x, W), Conv(t, W)) without pads, and the same for MatMul."""
    found = _constant_operands(term, "Add")
    if found is None or (term.op == "Conv" and any(term["pads"])) or (term.op == "MatMul" and len(found[1].shape) != 2):
        return None
    x, w, shifts = found
    weights, bounds = _summed(w.elements, term.op), _summed(w.magnitudes, term.op)
    group = term["group"] or 1
    if group != 1 and (group != x.shape[1] or len(weights) != group):
        return None
    result = make(term.op, x, w, **dict(term.attributes))
    for shift in shifts:
        pairs = ((shift.elements.reshape(-1), weights), (shift.magnitudes.reshape(-1), bounds))
        numbers, bound = (_mapped(t, each, group, int(w.shape[1 if term.op == "Conv" else 0])) for t, each in pairs)
        added = constant(numbers, term.dtype, bound, shift.lemmas | w.lemmas)
        result = make(
            "Add",
            result,
            reshaped(added, (1, len(numbers), *(1,) * (len(term.shape) - 2))) if term.op == "Conv" else added,
        )
    return result


def _summed(elements: Array, op: str) -> Array:
    """The matrix (result, summed axis) of a filter, whose taps are added, or of a matrix of rows."""
    return elements.sum(axis=tuple(range(2, elements.ndim))) if op == "Conv" else elements.T


def _mapped(numbers: Array, matrix: Array, group: int, channels: int) -> Array:
    return numbers * matrix[:, 0] if group != 1 else matrix @ np.broadcast_to(numbers, (channels,))


def _product_of_products(term: Term) -> Term | None:
    """MatMul(MatMul(x, A), B) = MatMul(x, A B), A and B constant."""
    x, second = term.args
    if x is None or second is None or second.op != CONSTANT or len(second.shape) != 2:
        return None
    core, axes = split_view(x)
    if core.op != "MatMul" or len(core.shape) != 2 or not _is_last(axes, core, len(axes) - 1):
        return None
    source, first = core.args
    if source is None or first is None or first.op != CONSTANT:
        return None
    bound = first.magnitudes @ second.magnitudes
    matrix = constant(first.elements @ second.elements, term.dtype, bound, first.lemmas | second.lemmas)
    return view(make("MatMul", source, matrix), _with_last(axes, len(axes) - 1, core, int(second.shape[1])))


def _is_last(axes: Axes, core: Term, place: int) -> bool:
    """Whether an axis of a view is the whole last axis of its core."""
    last = len(core.shape) - 1
    others = (digit for position, group in enumerate(axes) if position != place for digit in group)
    return axes[place] == ((last, 1, core.shape[-1]),) and all(digit[0] != last for digit in others)


def _with_last(axes: Axes, place: int, core: Term, extent: int) -> Axes:
    digits = ((len(core.shape) - 1, 1, extent),) if extent != 1 else ()
    return tuple(digits if position == place else group for position, group in enumerate(axes))


def _pointwise_as_product(term: Term) -> Term | None:
    """Conv(x, W) = view(MatMul(view(x), W)), channels last, if W has one tap, and there are no pads."""
    x, w = term.args
    if x is None or w is None or w.op != CONSTANT or term["group"] != 1 or w.elements[0, 0].size != 1:
        return None
    if any(term["pads"]) or set(term["strides"]) != {1}:
        return None
    matrix, rank = transposed(reshaped(w, w.shape[:2]), (1, 0)), len(x.shape)
    product = make("MatMul", transposed(x, (0, *range(2, rank), 1)), matrix)
    return transposed(product, (0, rank - 1, *range(1, rank - 1)))


def _map_of_concat(term: Term) -> Term | None:
    """Conv(Concat(x, y), (V W)) = Add(Conv(x, V), Conv(y, W)), channels concatenated."""
    x, w = term.args
    if x is None or w is None or x.op != "Concat" or x["axis"] != 1 or w.op != CONSTANT or term["group"] != 1:
        return None
    parts: list[Term] = []
    start = 0
    for part in x.operands:
        channels = part.shape[1]
        if not isinstance(channels, int):
            return None
        area = (slice(None), slice(start, start + channels))
        own = constant(w.elements[area], w.dtype, w.magnitudes[area], w.lemmas)
        parts.append(make("Conv", part, own, **dict(term.attributes)))
        start += channels
    return make("Add", *parts)


_AVERAGES = ("ReduceMean", "Resize")


def _map_of_mean(term: Term) -> Term | None:
    """Conv(mean(x), W) = mean(Conv(x, W)), W of one tap; the mean is one along other axes, or an interpolation of them."""
    x, w = term.args
    if x is None or w is None or w.op != CONSTANT or x.op not in _AVERAGES or x.args[0] is None:
        return None
    source = x.args[0]
    if term["group"] != 1 or w.elements[0, 0].size != 1 or any(term["pads"]) or set(term["strides"]) != {1}:
        return None
    if source.shape[:2] != x.shape[:2] or len(source.shape) != len(x.shape) or not _is_average(x):
        return None
    return make(
        x.op, make("Conv", source, w, **dict(term.attributes)), *_resized(x.args[1:], source, w), **dict(x.attributes)
    )


def _resized(operands: Sequence[Term | None], source: Term, w: Term) -> Sequence[Term | None]:
    """Scales and sizes of a Resize, for another number of channels."""
    changed = []
    for operand in operands:
        if (
            operand is not None
            and operand.dtype == 7
            and operand.op == CONSTANT
            and len(operand.elements) == len(source.shape)
        ):
            sizes = operand.elements.copy()
            sizes[1] = w.shape[0]
            operand = constant(sizes, operand.dtype, None, operand.lemmas)
        changed.append(operand)
    return changed


_COORDINATES = frozenset({"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners"})


def _is_average(x: Term) -> bool:
    """Whether every element is a sum of elements along axes beyond the channels, with weights that add up to 1."""
    if x.op == "ReduceMean":
        return bool(min(x["axes"]) > 1)
    is_known = _text(x["coordinate_transformation_mode"]) in _COORDINATES and _text(x["mode"]) in (
        "nearest",
        "linear",
        "cubic",
    )
    is_in_order = not x["axes"] or len(x["axes"]) < len(x.shape)
    return is_known and is_in_order and _is_unscaled(x, (0, 1))


def _is_unscaled(resize: Term, axes: Sequence[int]) -> bool:
    """Whether the scale of axes that keep their extent is 1: sizes say so, and scales of 1; 3 times 1.2 is 3 as well."""
    _, _, scales, sizes = (*resize.args, None, None, None)[:4]
    if scales is None:
        return sizes is not None and _text(resize["keep_aspect_ratio_policy"] or "stretch") == "stretch"
    named = list(resize["axes"] or range(len(resize.shape)))
    if scales.op != CONSTANT or len(named) != scales.elements.size:
        return False
    return all(scales.elements[named.index(axis)] == 1 for axis in axes if axis in named)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _shift_of_mean(term: Term) -> Term | None:
    """mean(Add(x, t)) = Add(mean(x), t), t over channels."""
    x = term.args[0]
    core, axes = split_view(x) if x is not None else (None, ())
    if x is None or core is None or core.op != "Add" or not _is_average(term) or x.shape[:2] != term.shape[:2]:
        return None
    shift = core.args[-1]
    own = as_operand(shift, axes, core, x) if shift is not None and shift.op == CONSTANT else None
    if own is None or any(extent != 1 for axis, extent in enumerate(own.shape) if axis != 1):
        return None
    rest = make("Add", *core.args[:-1])
    if rest.shape != core.shape:
        return None
    return make("Add", make(term.op, view(rest, axes), *term.args[1:], **dict(term.attributes)), own)


def _resize_of_same_extent(term: Term) -> Term | None:
    """Resize(x) = x, if it has the extents of x."""
    x = term.args[0]
    is_kept = x is not None and x.shape == term.shape and _is_unscaled(term, range(len(term.shape)))
    return x if is_kept and _is_average(term) else None


def _concat_of_views(term: Term) -> Term | None:
    """Concat(view(x), view(y)) = view(Concat(x, y)), if the axis begins with the outermost digits of an axis of x and y."""
    parts, place = [split_view(arg) for arg in term.operands], term["axis"]
    core, axes = parts[0]
    if not axes[place] or all(each.op != VIEW for each in term.operands):
        return None
    axis, stride, _ = axes[place][0]
    rows = 0
    for other, own in parts:
        digits = own[place]
        if (
            not digits
            or digits[0][:2] != (axis, stride)
            or digits[1:] != axes[place][1:]
            or own[:place] + own[place + 1 :] != axes[:place] + axes[place + 1 :]
        ):
            return None
        extent = digits[0][2]
        if not isinstance(extent, int) or other.shape != (*core.shape[:axis], stride * extent, *core.shape[axis + 1 :]):
            return None
        rows += extent
    whole = make("Concat", *(other for other, _ in parts), axis=axis)
    digits = ((axis, stride, rows), *axes[place][1:])
    return view(whole, tuple(digits if position == place else group for position, group in enumerate(axes)))


_CONV, _MATMUL = frozenset({"Conv"}), frozenset({"MatMul"})
_MEANS, _RESIZE = frozenset({"ReduceMean", "Resize"}), frozenset({"Resize"})
LEMMAS = (
    Lemma(
        "resize-of-same-extent", _RESIZE, "Resize(x) = x, with the extents of x", "all shapes", _resize_of_same_extent
    ),
    Lemma(
        "shift-of-mean",
        _MEANS,
        "mean(x + t) = mean(x) + t, t over channels; also of interpolations",
        "all shapes",
        _shift_of_mean,
    ),
    Lemma(
        "concat-of-views",
        frozenset({"Concat"}),
        "Concat(view(x), view(y)) = view(Concat(x, y)), such as blocks of channels",
        "all shapes",
        _concat_of_views,
    ),
    Lemma(
        "shift-of-input",
        _CONV | _MATMUL,
        "W (x + t) = W x + W t, t along the summed axis; convolutions without pads",
        "all shapes",
        _shift_of_input,
    ),
    Lemma("scale-into-rows", _MATMUL, "(g x) W = x (g W), g along the summed axis", "all shapes", _scale_into_rows),
    Lemma("product-of-products", _MATMUL, "(x A) B = x (A B)", "all shapes", _product_of_products),
    Lemma("map-of-concat", _CONV, "Conv(Concat(x, y), (V W)) = Conv(x, V) + Conv(y, W)", "all shapes", _map_of_concat),
    Lemma(
        "map-of-mean",
        _CONV,
        "Conv(mean(x), W) = mean(Conv(x, W)), W of one tap; also of interpolations",
        "all shapes",
        _map_of_mean,
    ),
    Lemma(
        "pointwise-as-product",
        _CONV,
        "a convolution of one tap is a matrix product",
        "all shapes",
        _pointwise_as_product,
    ),
)
