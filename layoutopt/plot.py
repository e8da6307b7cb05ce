"""Figures of formats as SVG: the offset of each element of a tensor, and the element at each offset.

    draw_memory(Layout.packed(lookup("NCHW4c"), (1, 6, 3, 4))).save_svg("nchw4c.svg")

The upper half shows one matrix of the last two axes per index of the other axes. Each cell shows the offset of its element;
lines connect neighbours in memory within a matrix. The lower half shows memory, one row per run of the innermost physical
dimensions. Each cell shows the indices of its element; padding is grey. Cells of one row of memory have one colour.

The library is installed by the extra `layoutopt[plot]`; without it the import raises a LayoutoptError.
"""

import colorsys
from collections.abc import Iterator
from math import prod

import numpy as np

from layoutopt.errors import FormatError, LayoutoptError
from layoutopt.formats import Format, Layout
from layoutopt.report.printable import printable

try:
    import drawsvg
except ModuleNotFoundError as error:
    if error.name != "drawsvg":
        raise
    raise LayoutoptError(
        "figures need the package drawsvg", hint="install it with: pip install 'layoutopt[plot]'"
    ) from error

_FONT, _INK, _FAINT, _PAPER, _PADDING = "Helvetica, Arial, sans-serif", "#22303c", "#8a97a3", "#ffffff", "#e8e8e8"
_CELL, _GAP, _MARGIN = 30.0, 16.0, 28.0
_WIDTH = 1200  # of a line of matrices, and of the columns of memory
_MAX_CELLS = 4096
_MAX_ROW_CELLS = 24


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
    figure = _Figure(layout)
    figure.title(name, layout.format.name(axes) if axes else str(layout.format))
    below = figure.matrices(axes or Format.canonical(layout.rank).name(), _MARGIN + 36 + _GAP)
    below = figure.memory(below + 2 * _GAP)
    width, height = figure.right + _MARGIN, below + _MARGIN
    drawing = drawsvg.Drawing(width, height, font_family=_FONT)
    drawing.append(drawsvg.Rectangle(0, 0, width, height, fill=_PAPER))
    drawing.extend(figure.elements)
    return drawing


class _Figure:
    """The elements of a figure, and the right end of the widest one."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.row_length = _row_length(layout)
        self.elements: list[drawsvg.DrawingElement] = []
        self.right = 0.0

    def title(self, name: str, notation: str) -> None:
        layout, padding = self.layout, prod(self.layout.physical_shape) - self.layout.size
        self._text(name or notation, _MARGIN, _MARGIN + 12, 20, font_weight="bold")
        facts = [
            *([notation] if name not in ("", notation) else []),
            f"logical {_extents(layout.shape)}",
            f"physical {_extents(layout.physical_shape)}",
            *([f"{padding} padding element{'s' if padding > 1 else ''}"] if padding else []),
        ]
        self._text("   ".join(facts), _MARGIN, _MARGIN + 32, 13, fill=_FAINT)

    def matrices(self, letters: str, top: float) -> float:
        """Draw the matrices, as many per line as fit and have one index of the outer axes; returns the lower end."""
        shape = (1, 1, *self.layout.shape)[-max(2, self.layout.rank) :]
        grid = np.meshgrid(*map(np.arange, self.layout.shape), indexing="ij")
        offsets = np.asarray(self.layout.offset(*grid) if grid else 0).reshape(shape)
        (rows, columns), leading = shape[-2:], shape[:-2]
        per_line = max(1, int(_WIDTH // (columns * _CELL + _GAP)))
        for at in np.ndindex(leading):
            number = at[-1] if at else 0
            if number % per_line == 0 and any(at):
                top += rows * _CELL + 1.5 * _GAP
            x = _MARGIN + number % per_line * (columns * _CELL + _GAP)
            caption = (f"{letter}={index}" for letter, index, dim in zip(letters, at, shape, strict=False) if dim > 1)
            self._text("  ".join(caption), x, top + 11, 11, fill=_FAINT)
            self._matrix(offsets[at], x, top + _GAP)
        return top + rows * _CELL + 1.5 * _GAP

    def _matrix(self, offsets: np.ndarray, left: float, top: float) -> None:
        corners = {
            int(offset): (left + column * _CELL, top + row * _CELL) for (row, column), offset in np.ndenumerate(offsets)
        }
        for offset, corner in corners.items():
            self._cell(*corner, self._colour(offset))
        for offset, (x, y) in corners.items():
            if (offset + 1) % self.row_length and offset + 1 in corners:
                ends = (each + _CELL / 2 for each in (x, y, *corners[offset + 1]))
                self.elements.append(drawsvg.Line(*ends, stroke=_INK, stroke_width=1.6, opacity=0.5))
        for offset, corner in corners.items():
            self._label(str(offset), *corner, 12)

    def memory(self, top: float) -> float:
        """Draw the rows of memory, in several columns if they are short; returns the lower end."""
        self._text("memory", _MARGIN, top, 13, font_weight="bold")
        rows = list(self._rows())
        width = self.row_length * _CELL + 60
        height = -(-len(rows) // max(1, min(len(rows), int(_WIDTH // width))))
        for number, labels in enumerate(rows):
            x, y = _MARGIN + 40 + number // height * width, top + 10 + number % height * (_CELL + 3)
            first = number * self.row_length
            self._text(str(first), x - 6, y + _CELL / 2 + 4, 11, fill=_FAINT, text_anchor="end")
            for position, label in enumerate(labels):
                cell = x + position * _CELL
                self._cell(cell, y, _PADDING if label is None else self._colour(first + position))
                self._label(label or "", cell, y, 11)
        return top + 10 + height * (_CELL + 3)

    def _rows(self) -> Iterator[list[str | None]]:
        """The labels of the elements in each row of memory; None for padding."""
        layout = self.layout
        offsets = np.arange(layout.capacity)
        is_element = layout.holds(offsets)
        used = [axis for axis, dim in enumerate(layout.shape) if dim > 1] or [0]
        indices = np.stack([*layout.inverse(offsets[is_element])] or [np.zeros(1, int)], 1)
        labels: list[str | None] = [None] * layout.capacity
        separator = "" if max(layout.shape, default=1) <= 10 else ","
        for offset, index in zip(offsets[is_element], indices, strict=True):
            labels[offset] = separator.join(str(index[axis]) for axis in used)
        return (labels[first : first + self.row_length] for first in range(0, len(labels), self.row_length))

    def _colour(self, offset: int) -> str:
        """The colour of a row of memory: distinct from its neighbours for up to 12 rows, else from blue to red."""
        count = -(-self.layout.capacity // self.row_length)
        hue = (0.58 + offset // self.row_length * 0.381966) % 1  # steps of the golden angle
        if count > 12:
            hue = 0.62 * (1 - offset / self.layout.capacity)
        return "#" + "".join(f"{round(255 * each):02x}" for each in colorsys.hls_to_rgb(hue, 0.81, 0.7))

    def _cell(self, x: float, y: float, colour: str) -> None:
        self.elements.append(drawsvg.Rectangle(x, y, _CELL, _CELL, fill=colour, stroke=_PAPER, stroke_width=1.5))
        self.right = max(self.right, x + _CELL)

    def _label(self, text: str, x: float, y: float, largest: float) -> None:
        """A text in the middle of a cell, in a size that fits at 0.6 times the size per character."""
        size = min(largest, (_CELL - 4) / (0.6 * max(1, len(text))))
        self._text(text, x + _CELL / 2, y + _CELL / 2 + size * 0.36, size, text_anchor="middle")

    def _text(self, text: str, x: float, y: float, size: float, **style: object) -> None:
        self.elements.append(drawsvg.Text(printable(text), round(size, 1), x, y, **{"fill": _INK, **style}))
        if style.get("text_anchor") != "middle":
            self.right = max(self.right, x + 0.55 * size * len(text))


def _row_length(layout: Layout) -> int:
    """The number of offsets per row of memory: the product of as many innermost dimensions as fit into a row."""
    length = 1
    for extent, stride in reversed(list(zip(layout.physical_shape, layout.strides, strict=True))):
        if stride == length and length * extent <= _MAX_ROW_CELLS:
            length *= extent
        elif extent != 1:
            break
    return length if length > 1 else min(16, layout.capacity)


def _extents(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


__all__ = ["draw_memory"]
