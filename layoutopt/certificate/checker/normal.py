"""Normal forms: constructors of terms that move views outwards and apply the lemmas. Sums keep their order."""

from collections.abc import Sequence
from typing import Any

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.index_map import Axes
from layoutopt.certificate.checker.terms import (
    COMMUTATIVE,
    CONSTANT,
    NARY,
    PREDICATES,
    REDUCTIONS,
    UNARY,
    VIEW,
    Shape,
    Term,
    UnprovableError,
    apply,
    constant,
    evaluated,
    inferred,
)

USED: set[str] = set()
"""The names of the lemmas that were applied since `prove` cleared it."""

BOOL = 9
LARGEST_CONSTANT = 2**28  # elements that are computed


def make(op: str, *args: Term | None, **attributes: Any) -> Term:
    """The normal form of an operator on operands in normal form."""
    if op in UNARY or op in NARY:
        term = _elementwise(op, args, attributes)
    elif op in REDUCTIONS:
        term = _reduction(op, present(args), attributes)
    elif op == "Softmax":
        term = _along_axis(op, present(args), attributes)
    elif op == "MatMul":
        term = _product(present(args), present(args, 1))
    else:
        term = general(op, args, attributes)
    return _rewritten(term)


def general(op: str, args: Sequence[Term | None], attributes: dict[str, Any]) -> Term:
    """The operator itself, on these operands; its shape and type are those that onnx infers."""
    shape, dtype = inferred(op, args, attributes)
    return apply(op, tuple(args), shape, dtype, **attributes)


def _rewritten(term: Term) -> Term:
    from layoutopt.certificate.checker.lemmas import BY_OP

    for lemma in BY_OP.get(term.op, ()):
        if (other := lemma.rewrite(term)) is not None:
            USED.add(lemma.name)
            return other
    return term


def present(args: Sequence[Term | None], index: int = 0) -> Term:
    """The operand at a position."""
    if len(args) <= index or (term := args[index]) is None:
        raise UnprovableError(f"operand {index} is missing")
    return term


# Views


def view(term: Term, axes: Axes) -> Term:
    """The tensor whose elements are those of `term` at the coordinates of the map."""
    core, inner = split_view(term)
    composed = maps.compose(axes, inner)
    if composed is None:
        core, composed = term, axes
    shape = maps.shape_of(axes)
    if core.op == CONSTANT:
        elements = maps.rearranged(core.elements, composed, shape)
        bound = None if core.bound is None else maps.rearranged(core.bound, composed, shape)
        return constant(elements, core.dtype, bound)
    if composed == maps.identity(core.shape) and shape == core.shape:
        return core
    return apply(VIEW, (core,), shape, core.dtype, axes=composed)


def split_view(term: Term) -> tuple[Term, Axes]:
    """The core of a term, and its map to it."""
    if term.op == VIEW:
        return present(term.args), term["axes"]
    return term, maps.identity(term.shape)


def transposed(term: Term, order: Sequence[int]) -> Term:
    """The term with its axes in that order."""
    own = maps.identity(term.shape)
    return view(term, tuple(own[axis] for axis in order))


def reshaped(term: Term, shape: Shape) -> Term:
    """The term in another shape of the same volume."""
    if maps.volume(shape) != maps.volume(term.shape):
        raise UnprovableError(f"a reshape of {term.shape} to {shape} is not proven for all sizes")
    if shape == term.shape:
        return term
    if term.op == CONSTANT:
        numbers = [int(extent) for extent in shape]
        bound = None if term.bound is None else term.bound.reshape(numbers)
        return constant(term.elements.reshape(numbers), term.dtype, bound)
    core, inner = split_view(term)
    axes = maps.reshape(inner, shape)
    if axes is None or maps.shape_of(axes) != shape:
        raise UnprovableError(f"a reshape of {term.shape} to {shape} across the order of axes")
    return view(core, axes)


def _laid_out(term: Term, axes: Axes, core_shape: Shape, shape: Shape) -> Term | None:
    """An operand of `view(f(..))` as an operand of f, whose result has `core_shape` and the view `axes`, of shape `shape`.

    An operand that is broadcast along an axis has extent 1 there, before and after.
    """
    own = (1,) * (len(shape) - len(term.shape)) + term.shape
    back = maps.inverse(axes, core_shape)
    if back is None:
        return None
    if any(len({own[digit[0]] == 1 for digit in group}) > 1 for group in back):
        return None  # some digits of an axis are broadcast, and some are not
    if len(own) != len(term.shape):
        term = reshaped(term, own)
    kept = tuple(tuple(digit for digit in group if own[digit[0]] != 1) for group in back)
    return view(term, kept)


# Element-wise operators


def _elementwise(op: str, given: Sequence[Term | None], attributes: dict[str, Any]) -> Term:
    args = list(given)
    full = broadcast([arg.shape for arg in args if arg is not None and arg.op != CONSTANT])
    args = [_trimmed(arg, len(full)) if arg is not None and arg.op == CONSTANT else arg for arg in args]
    if op in COMMUTATIVE:
        args.sort(key=lambda arg: (arg is None or arg.op == CONSTANT, "" if arg is None else split_view(arg)[0].key))
    terms = [arg for arg in args if arg is not None]
    shape = broadcast([arg.shape for arg in terms])
    pivot = next((arg for arg in terms if arg.shape == shape and arg.op != CONSTANT), None)
    if pivot is not None and pivot.op == VIEW:
        core, axes = split_view(pivot)
        inside = [None if arg is None else _laid_out(arg, axes, core.shape, shape) for arg in args]
        if all(new is not None or old is None for new, old in zip(inside, args, strict=True)):
            return view(make(op, *inside, **attributes), axes)
    operand = present(args, 1) if op == "Where" else present(args)
    if any(term.dtype != operand.dtype for term in terms[op == "Where" :]) and op != "Pow":
        raise UnprovableError(f"{op} of two element types")
    dtype = BOOL if op in PREDICATES else attributes["to"] if op == "Cast" else operand.dtype
    size = maps.volume(shape)
    if isinstance(size, int) and size < LARGEST_CONSTANT and (elements := evaluated(op, args, dtype)) is not None:
        return constant(elements, dtype)
    return apply(op, tuple(args), shape, dtype, **attributes)


def _trimmed(term: Term, rank: int) -> Term:
    """A constant without leading axes of extent 1, if other operands have as many axes."""
    shape = term.shape
    while len(shape) <= rank and shape and shape[0] == 1:
        shape = shape[1:]
    return term if shape == term.shape or len(term.shape) > rank else reshaped(term, shape)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that operands of these shapes are broadcast to, for all sizes."""
    rank = max((len(shape) for shape in shapes), default=0)
    found = []
    for extents in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {extent for extent in extents if extent != 1}
        if len(wide) > 1:
            raise UnprovableError(f"extents {sorted(map(str, wide))} are not broadcast for all sizes")
        found.append(wide.pop() if wide else 1)
    return tuple(found)


# Operators with axes


def _reduction(op: str, term: Term, attributes: dict[str, Any]) -> Term:
    """A reduction with keepdims = 1, on the core of a view if whole axes of the core are reduced."""
    core, outer = split_view(term)
    axes: tuple[int, ...] = attributes["axes"]
    digits = [digit for axis in axes for digit in outer[axis]]
    whole = [
        axis
        for axis in {digit[0] for digit in digits}
        if core.shape[axis] == maps.volume([d[2] for d in digits if d[0] == axis])
    ]
    kept = {digit[0] for axis, group in enumerate(outer) if axis not in axes for digit in group}
    if {digit[0] for digit in digits} != set(whole) or kept & set(whole):
        core, outer, whole = term, maps.identity(term.shape), list(axes)
    shape = tuple(1 if axis in whole else extent for axis, extent in enumerate(core.shape))
    reduced = core if not whole else apply(op, (core,), shape, core.dtype, axes=tuple(sorted(whole)))
    return view(_rewritten(reduced), tuple(() if axis in axes else group for axis, group in enumerate(outer)))


def _along_axis(op: str, term: Term, attributes: dict[str, Any]) -> Term:
    """An operator along one axis, on the core of a view if that axis is one axis of the core."""
    core, outer = split_view(term)
    group = outer[attributes["axis"]]
    if len(group) == 1 and group[0][1:] == (1, core.shape[group[0][0]]):
        return view(apply(op, (core,), core.shape, core.dtype, axis=group[0][0]), outer)
    return apply(op, (term,), term.shape, term.dtype, axis=attributes["axis"])


def _product(x: Term, y: Term) -> Term:
    """A matrix product: the rows of x are one axis where y is a matrix, and batch axes are one axis."""
    rank = len(x.shape)
    if CONSTANT == x.op == y.op or min(rank, len(y.shape)) < 2:
        return general("MatMul", (x, y), {})
    if len(y.shape) == 2 and rank > 2:
        inner = make("MatMul", reshaped(x, (maps.volume(x.shape[:-1]), x.shape[-1])), y)
        return reshaped(inner, (*x.shape[:-1], y.shape[-1]))
    if rank == len(y.shape) > 3 and x.shape[:-2] == y.shape[:-2]:
        batch = maps.volume(x.shape[:-2])
        inner = make("MatMul", *(reshaped(each, (batch, *each.shape[-2:])) for each in (x, y)))
        return reshaped(inner, (*x.shape[:-1], y.shape[-1]))
    return general("MatMul", (x, y), {})
