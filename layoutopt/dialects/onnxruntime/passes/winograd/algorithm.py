"""Winograd's minimal filtering F(m, r) along one axis, in rational arithmetic.

m outputs of a correlation with r taps take m + r - 1 products where the definition takes m * r:

    y = A^T ((G g) * (B^T d))        y: m outputs, g: r taps, d: m + r - 1 inputs, *: element-wise product

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv 1509.09308); the
construction from evaluation points is the Toom-Cook algorithm.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

Row = tuple[Fraction, ...]

_PAIRS = (Fraction(1), Fraction(2))
"""The evaluation points, as pairs a, -a, whose products have common sums for even and differences for odd outputs. Each further
point costs a digit in float32, so F(6, 3) is not supported."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """F(outputs, taps).

    A component is one element of the element-wise product, for one evaluation point: the first for the point 0, two for each
    pair a, -a, and the last for infinity.

    Attributes:
        outputs: m.
        taps: r.
        pairs: the points a; components 1 + 2 * p and 2 + 2 * p are those of a = pairs[p] and -a.
        input_rows: B^T, m + r - 1 rows of m + r - 1.
        filter_rows: G, m + r - 1 rows of r.
        output_rows: A^T, m rows of m + r - 1.
    """

    outputs: int
    taps: int
    pairs: tuple[Fraction, ...]
    input_rows: tuple[Row, ...]
    filter_rows: tuple[Row, ...]
    output_rows: tuple[Row, ...]

    @property
    def num_components(self) -> int:
        """The number of components of a tile: m + r - 1."""
        return self.outputs + self.taps - 1

    @property
    def error_growth(self) -> float:
        """The rounding error of the least exact output of a tile, as root mean square, relative to that of the definition."""
        components = zip(self.input_rows, self.filter_rows, strict=True)
        squares = [sum(b * b for b in inputs) * sum(g * g for g in filters) for inputs, filters in components]
        errors = (sum(a * a * square for a, square in zip(row, squares, strict=True)) for row in self.output_rows)
        return math.sqrt(max(errors) / self.taps)

    def window(self, component: int) -> tuple[int, Row]:
        """The index of the first input of a tile that a component reads, and the coefficients from that input on."""
        transform_row = self.input_rows[component]
        used = [position for position, coefficient in enumerate(transform_row) if coefficient]
        return used[0], transform_row[used[0] : used[-1] + 1]


@cache
def minimal_filtering(outputs: int, taps: int) -> Algorithm | None:
    """F(outputs, taps) at the points 0, 1, -1, 2, -2 and infinity; None for sizes with another number of points."""
    pairs = _PAIRS[: (outputs + taps - 3) // 2]
    points = [Fraction(0), *(point for pair in pairs for point in (pair, -pair))]
    if outputs < 2 or taps < 2 or len(points) + 1 != outputs + taps - 1:
        return None
    inputs, filters = [], []
    for point in points:
        others = [other for other in points if other != point]
        scale = Fraction(1)
        for other in others:
            scale *= point - other
        inputs.append((*_polynomial(others), Fraction(0)))
        filters.append(tuple(point**power / scale for power in range(taps)))
    inputs.append(_polynomial(points))
    filters.append(_unit(taps - 1, taps))
    columns = [tuple(point**power for power in range(outputs)) for point in points]
    columns.append(_unit(outputs - 1, outputs))
    rows = tuple(tuple(column[index] for column in columns) for index in range(outputs))
    return Algorithm(outputs, taps, pairs, tuple(inputs), tuple(filters), rows)


def _polynomial(roots: list[Fraction]) -> Row:
    """The coefficients of the product of all (x - root), lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        pairs = zip([Fraction(0), *coefficients], [*coefficients, Fraction(0)], strict=True)
        coefficients = [high - root * low for high, low in pairs]
    return tuple(coefficients)


def _unit(position: int, length: int) -> Row:
    return tuple(Fraction(int(index == position)) for index in range(length))
