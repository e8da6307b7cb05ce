"""Einsum of two tensors as a matrix product, with Transposes and Reshapes that the planner may remove.

before: y = Einsum {equation = "bihd,bjhd->bhij"} (a, b)
after:  y = MatMul(Transpose(a) (b,h,i,d), Transpose(b) (b,h,d,j))

An axis has one of four roles: batches are axes of both operands and the result, rows of the left operand and the result,
columns of the right operand and the result, and the product sums over axes of both operands alone.
"""

from layoutopt.formats import Dim, product
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Value
from layoutopt.patterns.base import reshaped
from layoutopt.record import Record


class Term(Record, eq=False):
    """A tensor with a letter for each axis."""

    value: Value
    letters: str


def einsum_as_product(graph: Graph, op: Op) -> Value | None:
    """The result of an Einsum of two float32 tensors, by new ops; None unless every axis has one of the four roles."""
    operands = op.present_inputs
    if len(operands) != 2 or {value.dtype for value in operands} != {DType.FLOAT32}:
        return None
    left, right, result = _letters(str(op.attributes["equation"]))
    terms = [Term(value, letters) for value, letters in zip(operands, (left, right), strict=True)]
    extents: dict[str, Dim] = {}
    for each in terms:
        if not each.letters.isalpha() or len(set(each.letters)) != each.value.rank:
            return None
        for letter, dim in zip(each.letters, each.value.dims, strict=True):
            if extents.setdefault(letter, dim) != dim:
                return None
    if op.y.rank != len(result) or not _has_roles(left, right, result):
        return None
    first, second = terms
    plans = [_Product(*pair, result, extents) for pair in ((first, second), (second, first))]
    found = min(plans, key=lambda plan: plan.transposes)
    return found.write(graph, op) if found.is_writable else None


def _letters(equation: str) -> tuple[str, str, str]:
    """The letters of both operands and the result. By default the result has those that occur once, in alphabetical order."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    left, _, right = terms.partition(",")
    once = sorted(letter for letter in left + right if (left + right).count(letter) == 1)
    return left, right, result if arrow else "".join(once)


def _has_roles(left: str, right: str, result: str) -> bool:
    """Whether every letter occurs in two of the three terms or in all of them, and one is summed over."""
    counts = [sum(letter in term for term in (left, right, result)) for letter in left + right + result]
    return min(counts, default=0) > 1 and not {*left} & {*right} <= {*result}


class _Product(Record, eq=False):
    """A matrix product of two terms.

    Attributes:
        left, right: the operands.
        result: the letters of the result.
        extents: the extents by letter.
    """

    left: Term
    right: Term
    result: str
    extents: dict[str, Dim]

    @property
    def roles(self) -> tuple[str, str, str, str]:
        """The letters of batches, rows, columns and summed axes."""
        left, right, result = self.left.letters, self.right.letters, self.result
        return (
            "".join(letter for letter in result if letter in left and letter in right),
            "".join(letter for letter in result if letter not in right),
            "".join(letter for letter in result if letter not in left),
            "".join(letter for letter in left if letter not in result),
        )

    @property
    def orders(self) -> tuple[str, str, str]:
        """The letters of both operands and of the result of the product, in order."""
        batches, rows, columns, summed = self.roles
        return batches + rows + summed, batches + summed + columns, batches + rows + columns

    @property
    def transposes(self) -> int:
        """The number of Transposes of tensors that are no constants."""
        moves = zip((self.left.letters, self.right.letters, self.result), self.orders, strict=True)
        is_constant = self.left.value.is_constant, self.right.value.is_constant, False
        return sum(one != other and not fixed for (one, other), fixed in zip(moves, is_constant, strict=True))

    @property
    def shapes(self) -> tuple[list[Dim], list[Dim], list[Dim]]:
        """The shapes of both operands and of the result of the product, with one axis for the axes of a role but batches."""
        batches, rows, columns, summed = ([self.extents[letter] for letter in role] for role in self.roles)
        joined = rows if rows and not batches else [product(rows)]
        depth, width = product(summed), product(columns)
        return [*batches, *joined, depth], [*batches, depth, width], [*batches, *joined, width]

    @property
    def is_writable(self) -> bool:
        """Whether every Reshape has a target of numbers, but for one."""
        wholes = [[self.extents[letter] for letter in order] for order in self.orders]
        targets = [(shape, whole) for shape, whole in zip(self.shapes, wholes, strict=True) if shape != whole]
        return all(sum(not isinstance(dim, int) for dim in dims) < 2 for pair in targets for dims in pair)

    def write(self, graph: Graph, op: Op) -> Value:
        """The result of the product, by new ops behind `op`."""
        shapes, orders = self.shapes, self.orders
        left, right = (
            reshaped(graph, op, _transposed(graph, op, term, order), shape)
            for term, order, shape in zip((self.left, self.right), orders, shapes, strict=False)
        )
        stem, type = f"{op.y.name}__product", op.y.type_with(tuple(shapes[2]))
        value = graph.new_result("MatMul", (left, right), type, stem, op, name=op.name)
        value = reshaped(graph, op, value, [self.extents[letter] for letter in orders[2]])
        return _transposed(graph, op, Term(value, orders[2]), self.result)


def _transposed(graph: Graph, op: Op, term: Term, order: str) -> Value:
    """A term with its axes in another order."""
    value, perm = term.value, tuple(term.letters.index(letter) for letter in order)
    if perm == tuple(range(len(perm))):
        return value
    type, attributes = value.type_with(tuple(value.dims[axis] for axis in perm)), {"perm": perm}
    return graph.new_result("Transpose", (value,), type, f"{value.name}__moved", op, attributes=attributes)
