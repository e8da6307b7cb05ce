"""Proofs of Winograd's minimal filtering, for the matrices that the pass `winograd` uses.

    A^T ((G g) * (B^T d)) = the correlation of d with g, for all real d and g

Both sides are linear in the products g[k] * d[j], so the claim is proven for any numbers in their place. In two dimensions such
a number is the sum of products along the other axis, which is the same claim again; `two_dimensions` proves both at once.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

import z3
from prover import Obligation, Real, proof

from layoutopt.dialects.onnxruntime.winograd import Algorithm, minimal_filtering

SIZES = ((2, 3), (4, 3), (2, 5))
"""The outputs and taps of all algorithms that the pass has: tiles of 2 and 4 outputs, at most five finite points."""


def _number(value: Fraction) -> Real:
    return z3.Q(value.numerator, value.denominator)


def _dot(row: Sequence[Fraction], values: Sequence[Real]) -> Real:
    return z3.Sum([_number(coefficient) * each for coefficient, each in zip(row, values, strict=True) if coefficient])


def _algorithm(outputs: int, taps: int, k: int) -> Algorithm:
    """F(outputs, taps), with the first coefficient of the filter transform multiplied by `k`."""
    found = minimal_filtering(outputs, taps)
    assert found is not None
    first, *rest = found.filter_rows
    changed = (first[0] * k, *first[1:])
    return Algorithm(found.outputs, found.taps, found.pairs, found.input_rows, (changed, *rest), found.output_rows)


def _products(algorithm: Algorithm, atom: dict[tuple[int, int], Real]) -> list[Real]:
    """The element-wise product (G g) * (B^T d), where atom[k, j] is g[k] * d[j]."""
    found = []
    for filter_row, input_row in zip(algorithm.filter_rows, algorithm.input_rows, strict=True):
        pairs = [(a * b, atom[tap, at]) for tap, a in enumerate(filter_row) for at, b in enumerate(input_row) if a * b]
        found.append(z3.Sum([_number(coefficient) * each for coefficient, each in pairs]))
    return found


@proof("winograd")
def winograd(k: int) -> Iterator[Obligation]:
    """Every output of a tile, along one axis, for any numbers in place of the products g[k] * d[j]."""
    for outputs, taps in SIZES:
        algorithm = _algorithm(outputs, taps, k)
        extents = range(taps), range(algorithm.num_components)
        atom = {at: z3.Real(f"g{at[0]} d{at[1]}") for at in product(*extents)}
        products = _products(algorithm, atom)
        for output, row in enumerate(algorithm.output_rows):
            direct = z3.Sum([atom[tap, output + tap] for tap in range(taps)])
            yield Obligation(f"F({outputs}, {taps}), output {output}", _dot(row, products) == direct)


def two_dimensions(outputs: tuple[int, int], taps: int, k: int) -> Iterator[Obligation]:
    """F(outputs x outputs, taps x taps): transforms along rows and columns, in one claim for each output of a tile."""
    rows, columns = _algorithm(outputs[0], taps, k), _algorithm(outputs[1], taps, 1)
    height, width = rows.num_components, columns.num_components
    g = {at: z3.Real(f"g{at}") for at in product(range(taps), repeat=2)}
    d = {at: z3.Real(f"d{at}") for at in product(range(height), range(width))}
    products = {}
    for row, column in product(range(height), range(width)):
        filter = z3.Sum(
            [_number(rows.filter_rows[row][i] * columns.filter_rows[column][j]) * each for (i, j), each in g.items()]
        )
        image = z3.Sum(
            [_number(rows.input_rows[row][i] * columns.input_rows[column][j]) * each for (i, j), each in d.items()]
        )
        products[row, column] = filter * image
    for first, second in product(range(outputs[0]), range(outputs[1])):
        terms = [
            _number(rows.output_rows[first][i] * columns.output_rows[second][j]) * each
            for (i, j), each in products.items()
        ]
        direct = z3.Sum([each * d[first + i, second + j] for (i, j), each in g.items()])
        yield Obligation(f"output {first}, {second}", z3.Sum(terms) == direct)
