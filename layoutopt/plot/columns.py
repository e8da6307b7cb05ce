"""Columns of a layered figure: a high figure is cut between layers, and the pieces are placed side by side.

A cut is where it divides the fewest edges, near the positions that give the figure the proportions of a page.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import sqrt

_PAGE = 1.4  # width divided by height
_GAP = 56.0  # between columns, for edges from column to column
_TOLERANCE = 0.2  # of the height of a column, for the choice of a cut


@dataclass(slots=True)
class Box:
    """A node: its size, and its centre, which the layout sets.

    Attributes:
        w: the width, under the name that grandalf reads.
        h: the height.
        xy: the centre.
        column: the number of its column.
        column_end: the right edge of its column.
    """

    w: float
    h: float
    xy: tuple[float, float] = (0.0, 0.0)
    column: int = 0
    column_end: float = 0.0


def arrange_in_columns(boxes: Sequence[Box], edges: Sequence[tuple[Box, Box]]) -> None:
    """Move boxes that are arranged in layers from top to bottom into columns; a figure that fits a page stays.

    Args:
        boxes: the boxes of a figure, whose centres are set.
        edges: the edges, from the upper to the lower box.
    """
    top, bottom = min(box.xy[1] - box.h / 2 for box in boxes), max(box.xy[1] + box.h / 2 for box in boxes)
    width = max(box.xy[0] + box.w / 2 for box in boxes) - min(box.xy[0] - box.w / 2 for box in boxes)
    count = round(sqrt(_PAGE * (bottom - top) / (width + _GAP)))
    if count < 2:
        return
    cuts = _cuts(boxes, edges, count)
    x = min(box.xy[0] - box.w / 2 for box in boxes)
    for box in boxes:
        box.column = bisect_right(cuts, box.xy[1])
    for number in range(len(cuts) + 1):
        column = [box for box in boxes if box.column == number]
        left, upper = min(box.xy[0] - box.w / 2 for box in column), min(box.xy[1] - box.h / 2 for box in column)
        for box in column:
            box.xy = (round(box.xy[0] - left + x, 1), round(box.xy[1] - upper + top, 1))
        end = max(box.xy[0] + box.w / 2 for box in column)
        for box in column:
            box.column_end = end
        x = end + _GAP


def _cuts(boxes: Sequence[Box], edges: Sequence[tuple[Box, Box]], count: int) -> list[float]:
    """The positions between layers at which the figure is cut into `count` columns, or fewer."""
    layers = sorted({box.xy[1] for box in boxes})
    changes = [0] * len(layers)
    position = {y: index for index, y in enumerate(layers)}
    for source, target in edges:
        changes[position[source.xy[1]]] += 1
        changes[position[target.xy[1]]] -= 1
    widths = list(accumulate(changes))  # edges behind each layer
    step = (layers[-1] - layers[0]) / count
    cuts: list[float] = []
    for number in range(1, count):
        ideal = layers[0] + number * step
        near = [index for index in range(len(layers) - 1) if abs(layers[index] - ideal) <= _TOLERANCE * step]
        if near:
            best = min(near, key=lambda index: (widths[index], abs(layers[index] - ideal)))
            cuts.append((layers[best] + layers[best + 1]) / 2)
    return cuts
