"""Lemmas of matrix products."""

from layoutopt.certificate.checker.arithmetic import scalar
from layoutopt.certificate.checker.lemma import Lemma
from layoutopt.certificate.checker.normal import make, reshaped
from layoutopt.certificate.checker.terms import CONSTANT, Term


def _scale_into_matrix(term: Term) -> Term | None:
    """Mul(MatMul(x, W), s) = MatMul(x, Mul(W, s)), W constant, s over columns."""
    *others, factor = term.args
    if factor is None or factor.op != CONSTANT:
        return None
    for place, product in enumerate(others):
        if product is None or product.op != "MatMul" or product.shape != term.shape:
            continue
        matrix = product.args[1]
        if matrix is None or matrix.op != CONSTANT or len(matrix.shape) != 2:
            continue
        if any(extent != 1 for extent in factor.shape[:-1]) or len(factor.shape) > len(term.shape):
            return None
        columns = factor.shape[-1] if factor.shape else 1
        scaled = make("MatMul", product.args[0], make("Mul", matrix, reshaped(factor, (1, columns))))
        return make("Mul", scaled, *others[:place], *others[place + 1 :])
    return None


def _scale_of_operand(term: Term) -> Term | None:
    """MatMul(Mul(x, c), y) = Mul(MatMul(x, y), c), c one number."""
    for place, operand in enumerate(term.args):
        if operand is not None and operand.op == "Mul" and operand.args[-1] is not None and scalar(operand.args[-1]):
            rest = make("Mul", *operand.args[:-1])
            if rest.shape != operand.shape:
                continue
            args = (rest, term.args[1]) if place == 0 else (term.args[0], rest)
            return make("Mul", make("MatMul", *args), reshaped(operand.args[-1], ()))
    return None


def _scale_of_viewed_operand(term: Term) -> Term | None:
    """The same for an operand that is a view of a product."""
    from layoutopt.certificate.checker.normal import split_view, view

    for place, operand in enumerate(term.args):
        if operand is None:
            continue
        core, axes = split_view(operand)
        if core.op != "Mul" or core is operand or core.args[-1] is None or not scalar(core.args[-1]):
            continue
        rest = make("Mul", *core.args[:-1])
        if rest.shape == core.shape:
            args = (view(rest, axes), term.args[1]) if place == 0 else (term.args[0], view(rest, axes))
            return make("Mul", make("MatMul", *args), reshaped(core.args[-1], ()))
    return None


_MATMUL = frozenset({"MatMul"})
LEMMAS = (
    Lemma(
        "scale-of-operand",
        _MATMUL,
        "(c x) y = c (x y), c one number",
        "all shapes",
        lambda t: _scale_of_operand(t) or _scale_of_viewed_operand(t),
    ),
    Lemma(
        "scale-into-matrix", frozenset({"Mul"}), "s (x W) = x (s W), s over columns", "all shapes", _scale_into_matrix
    ),
)
