"""The figure of a tensor in a format: the offset of each element, and the element at each offset.

The upper half shows one matrix of the last two axes per index of the other axes. Each cell shows the offset of its element. A
line connects the cells in memory order: it is solid within a row of memory, and dashed between rows. If the line would
alternate between matrices, only its beginning is drawn. The lower half shows memory, one row per run of the innermost physical
dimensions. Each cell shows the indices of its element; padding is grey.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import hypot, prod

import drawsvg
import numpy as np

from layoutopt.errors import FormatError
from layoutopt.formats import Format, Layout
from layoutopt.plot.style import FAINT, FONT, INK, PADDING, PAPER, hue, ramp, size_for
from layoutopt.report.printable import printable

_CELL = 30.0
_GAP = 16.0
_MARGIN = 28.0
_MAX_CELLS = 4096
_MAX_ROW_CELLS = 24  # cells of a row
_CAPTION_HEIGHT = 15.0
_LINE_MULTIPLE = 4  # if a line of matrices is broken, it has a multiple of this number of matrices


def draw_memory(layout: Layout, name: str = "", axes: str = "") -> drawsvg.Drawing:
    """Draw a layout of a small tensor.

    Args:
        layout: the layout to draw, of at most 4096 elements including padding.
        name: a name for the format; its notation by default.
        axes: the letters of the logical axes, such as `"NCHW"`; by default those of a feature map.

    Raises:
        FormatError: the tensor is too large for a figure, or empty.
    """
    if not 0 < layout.capacity <= _MAX_CELLS:
        raise FormatError(
            f"{layout.capacity} elements cannot be drawn", where=str(layout.format), hint=f"1 to {_MAX_CELLS} can"
        )
    return _MemoryFigure(layout, name, axes).draw()


class _MemoryFigure:
    def __init__(self, layout: Layout, name: str, axes: str) -> None:
        self.layout = layout
        self.name = name
        self.notation = layout.format.name(axes) if axes else str(layout.format)
        self.letters = axes or Format.canonical(layout.rank).name()
        self.shape = layout.shape if layout.rank > 1 else (1, *layout.shape) if layout.rank else (1, 1)
        grid = np.meshgrid(*(np.arange(dim) for dim in layout.shape), indexing="ij")
        offsets = layout.offset(*grid) if layout.rank else np.zeros((), np.int64)
        self.offsets = np.asarray(offsets).reshape(self.shape)
        self.row_length = self._row_length()
        self.elements: list[drawsvg.DrawingElement] = []
        self.right = 0.0

    def _row_length(self) -> int:
        """The number of offsets per row of memory: the product of as many innermost dimensions as fit into a row."""
        length = 1
        for extent, stride in reversed(list(zip(self.layout.physical_shape, self.layout.strides, strict=True))):
            if stride == length and length * extent <= _MAX_ROW_CELLS:
                length *= extent
            elif extent != 1:
                break
        return length if length > 1 else min(16, self.layout.capacity)

    def draw(self) -> drawsvg.Drawing:
        """Draw title, matrices and memory."""
        below = self._title(_MARGIN)
        below = self._matrices(below + _GAP)
        below = self._memory(below + 2 * _GAP)
        width, height = self.right + _MARGIN, below + _MARGIN
        figure = drawsvg.Drawing(width, height, font_family=FONT)
        figure.append(drawsvg.Rectangle(0, 0, width, height, fill=PAPER))
        figure.extend(self.elements)
        return figure

    def _text(self, text: str, x: float, y: float, size: float, **style: object) -> None:
        self.elements.append(drawsvg.Text(printable(text), round(size, 1), x, y, **{"fill": INK, **style}))
        if style.get("text_anchor") != "middle":
            self.right = max(self.right, x + 0.55 * size * len(text))

    def _title(self, top: float) -> float:
        layout, notation = self.layout, self.notation
        self._text(self.name or notation, _MARGIN, top + 12, 20, font_weight="bold")
        padding = prod(layout.physical_shape) - layout.size
        facts = [
            *([notation] if self.name not in ("", notation) else []),
            f"logical {_extents(layout.shape)}",
            f"physical {_extents(layout.physical_shape)}",
            *([f"{padding} padding element{'s' if padding > 1 else ''}"] if padding else []),
        ]
        self._text("   ".join(facts), _MARGIN, top + 32, 13, fill=FAINT)
        return top + 36

    # --- the matrices ----------------------------------------------------------------------------------------------

    def _matrices(self, top: float) -> float:
        rows, columns = self.shape[-2:]
        leading = self.shape[:-2]
        across = leading[-1] if leading else 1
        per_line = max(1, min(across, int(1200 // (columns * _CELL + _GAP))))
        if per_line < across and per_line > _LINE_MULTIPLE:
            per_line -= per_line % _LINE_MULTIPLE
        centres: dict[int, tuple[float, float]] = {}
        y = top
        for outer in np.ndindex(*leading[:-1]):
            for start in range(0, across, per_line):
                y += _CAPTION_HEIGHT
                for position, inner in enumerate(range(start, min(start + per_line, across))):
                    at = (*outer, inner) if leading else ()
                    x = _MARGIN + position * (columns * _CELL + _GAP)
                    if leading:
                        self._text(self._caption(at), x, y - 4, 11, fill=FAINT)
                    centres |= self._matrix(self.offsets[at], x, y)
                y += rows * _CELL + _GAP / 2
        self._path(centres)
        for offset, (x, y_centre) in centres.items():
            self._centred(str(offset), x, y_centre, 12)
        return y

    def _caption(self, at: tuple[int, ...]) -> str:
        several = (
            f"{letter}={index}" for letter, index, dim in zip(self.letters, at, self.shape, strict=False) if dim > 1
        )
        return "  ".join(several)

    def _matrix(self, offsets: np.ndarray, x: float, y: float) -> dict[int, tuple[float, float]]:
        """Draw one matrix, and return the centres of its cells by offset."""
        centres = {}
        for (row, column), offset in np.ndenumerate(offsets):
            left, top = x + column * _CELL, y + row * _CELL
            self._cell(left, top, self._colour(int(offset)))
            centres[int(offset)] = (left + _CELL / 2, top + _CELL / 2)
        return centres

    def _path(self, centres: dict[int, tuple[float, float]]) -> None:
        """Draw the line through the cells in memory order."""
        for before, after in pairwise(self._line_offsets()):
            near = before // self.row_length == after // self.row_length
            (x1, y1), (x2, y2) = centres[before], centres[after]
            style = {"stroke_width": 1.6, "opacity": 0.5} if near else {"stroke_dasharray": "3 3", "opacity": 0.35}
            # A step across other cells is an arc, since a straight line would hide the steps below it.
            distance = hypot(x2 - x1, y2 - y1)
            bulge = 0.0 if distance < 1.5 * _CELL else min(0.12 * distance, 0.45 * _CELL)
            bend = (x1 + x2) / 2 + bulge * (y2 - y1) / distance, (y1 + y2) / 2 - bulge * (x2 - x1) / distance
            arc = drawsvg.Path(stroke=INK, fill="none", **style)
            arc.M(x1, y1).Q(*(round(each, 1) for each in (*bend, x2, y2)))
            self.elements.append(arc)
            if not near:
                self.elements.append(_head(x1, y1, x2, y2))

    def _line_offsets(self) -> list[int]:
        """The offsets on the line: all, or the first ones if the line would alternate between matrices."""
        flat = self.offsets.reshape(-1, self.shape[-2] * self.shape[-1])
        order = np.argsort(flat, axis=None)
        ordered: list[int] = np.sort(flat, axis=None).tolist()
        matrices = order // flat.shape[1]
        if np.count_nonzero(np.diff(matrices)) <= len(flat):
            return ordered
        returns = np.flatnonzero((matrices[1:] == matrices[0]) & (matrices[:-1] != matrices[0])) + 1
        return ordered[: int(returns[1]) if len(returns) > 1 else len(ordered)]

    # --- memory ----------------------------------------------------------------------------------------------------

    def _memory(self, top: float) -> float:
        left = _MARGIN + 40
        self._text("memory", _MARGIN, top, 13, font_weight="bold")
        rows = list(self._rows())
        columns = max(1, min(len(rows), int(1100 // (self.row_length * _CELL + 60))))
        height = -(-len(rows) // columns)
        for number, (first, labels) in enumerate(rows):
            x = left + number // height * (self.row_length * _CELL + 60)
            y = top + 10 + number % height * (_CELL + 3)
            self._text(str(first), x - 6, y + _CELL / 2 + 4, 11, fill=FAINT, text_anchor="end")
            for position, label in enumerate(labels):
                cell = x + position * _CELL
                self._cell(cell, y, PADDING if label is None else self._colour(first + position))
                if label is not None:
                    self._centred(label, cell + _CELL / 2, y + _CELL / 2, 11)
        return top + 10 + height * (_CELL + 3)

    def _rows(self) -> Iterator[tuple[int, list[str | None]]]:
        """The first offset of each row, and the labels of its elements; None for padding."""
        offsets = np.arange(self.layout.capacity)
        is_element = self.layout.holds(offsets)
        indices = np.stack(
            [np.asarray(axis) for axis in self.layout.inverse(offsets[is_element])] or [np.zeros(1, int)], 1
        )
        used = [axis for axis, dim in enumerate(self.layout.shape) if dim > 1] or [0]
        labels: list[str | None] = [None] * len(offsets)
        separator = "" if max(self.layout.shape, default=1) <= 10 else ","
        for offset, index in zip(offsets[is_element], indices, strict=True):
            labels[offset] = separator.join(str(index[axis]) for axis in used)
        for first in range(0, len(labels), self.row_length):
            yield first, labels[first : first + self.row_length]

    # --- cells -----------------------------------------------------------------------------------------------------

    def _colour(self, offset: int) -> str:
        """The colour of the row of memory that contains the offset: distinct colours for up to 12 rows, else a ramp."""
        count = -(-self.layout.capacity // self.row_length)
        return hue(offset // self.row_length) if count <= 12 else ramp(offset / self.layout.capacity)

    def _cell(self, x: float, y: float, colour: str) -> None:
        self.elements.append(drawsvg.Rectangle(x, y, _CELL, _CELL, fill=colour, stroke=PAPER, stroke_width=1.5))
        self.right = max(self.right, x + _CELL)

    def _centred(self, text: str, x: float, y: float, largest: float) -> None:
        size = size_for(text, _CELL - 4, largest)
        self._text(text, x, y + size * 0.36, size, text_anchor="middle")


def _head(x1: float, y1: float, x2: float, y2: float) -> drawsvg.DrawingElement:
    """An arrow head in the middle of a line."""
    direction = np.arctan2(y2 - y1, x2 - x1)
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    corners = [(x + 5 * np.cos(direction + turn), y + 5 * np.sin(direction + turn)) for turn in (0.0, 2.5, -2.5)]
    flat = [round(float(number), 1) for corner in corners for number in corner]
    return drawsvg.Lines(*flat, close=True, fill=INK, opacity=0.45)


def _extents(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"
