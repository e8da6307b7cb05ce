"""Draw the figures of docs/formats.md again: the offset of each element of a tensor, and the element at each offset.

python docs/figures/draw.py

The upper half of a figure shows one matrix of the last two axes per index of the other axes. Each cell shows the offset of its
element. The lower half shows memory, one row per run of the innermost physical dimensions. Each cell shows the indices of its
element; padding is grey. Cells of one row of memory have one colour.
"""

import colorsys
from collections.abc import Iterable
from math import prod
from pathlib import Path

import drawsvg
import numpy as np

from layoutopt.errors import FormatError
from layoutopt.formats import Format, Layout, lookup
from layoutopt.report.printable import printable

FOLDER = Path(__file__).parent
FIGURES = {
    "nchw": ("NCHW", (1, 3, 3, 4), "", "NCHW"),
    "nhwc": ("NHWC", (1, 3, 3, 4), "", "NCHW"),
    "nchw4c": ("NCHW4", (1, 6, 3, 4), "", "NCHW"),
    "chwn4": ("CHWN4", (4, 4, 2, 2), "", "NCHW"),
    "nc1hwc0": ("NC1HWC0", (1, 17, 2, 2), "float16", "NCHW"),
    "nhwcd4": ("NHWCD4", (1, 6, 3, 3), "", "NCHW"),
    "row_major": ("RowMajor", (6, 8), "", "MN"),
    "column_major": ("ColumnMajor", (6, 8), "", "MN"),
    "row_major_interleaved": ("RowMajorInterleaved<4>", (8, 6), "", "MN"),
    "column_major_interleaved": ("ColumnMajorInterleaved<4>", (6, 8), "", "MN"),
    # Fractals of 4 x 4 in the place of 16 x 16, which would not fit on a page.
    "fractal_nz": ("NM4m4n", (7, 12), "", "MN"),
    "fractal_zz": ("MN4m4n", (8, 12), "", "MN"),
    "fractal_zn": ("MN4n4m", (8, 12), "", "MN"),
    "oihw4i4o": ("KCRSc4k4", (4, 8, 2, 2), "", "KCRS"),
}


TITLES = {"fractal_nz": "FRACTAL_NZ", "fractal_zz": "FRACTAL_ZZ", "fractal_zn": "FRACTAL_ZN"}

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
    notation = layout.format.name(axes) if axes else str(layout.format)
    figure = _Figure(layout)
    figure.text(name or notation, _MARGIN, _MARGIN + 12, 20, font_weight="bold")
    padding = layout.capacity - layout.size
    facts = f"{notation}   logical {layout.shape}   physical {layout.physical_shape}   {padding} padding elements"
    figure.text(facts, _MARGIN, _MARGIN + 32, 13, fill=_FAINT)
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

    def matrices(self, letters: str, top: float) -> float:
        """Draw the matrices of the last two axes, as many per line as fit; returns the lower end."""
        shape = (1, 1, *self.layout.shape)[-max(2, self.layout.rank) :]
        grid = np.meshgrid(*map(np.arange, self.layout.shape), indexing="ij")
        offsets = np.asarray(self.layout.offset(*grid) if grid else 0).reshape(shape)
        height, width = shape[-2] * _CELL + 1.5 * _GAP, shape[-1] * _CELL + _GAP
        per_line = max(1, int(_WIDTH // width))
        for number, at in enumerate(np.ndindex(shape[:-2])):
            left, y = _MARGIN + number % per_line * width, top + number // per_line * height
            caption = (f"{letter}={index}" for letter, index, dim in zip(letters, at, shape, strict=False) if dim > 1)
            self.text("  ".join(caption), left, y + 11, 11, fill=_FAINT)
            for row, line in enumerate(offsets[at]):
                self.cells([(int(offset), str(offset)) for offset in line], left, y + _GAP + row * _CELL)
        return top + -(-prod(shape[:-2]) // per_line) * height

    def memory(self, top: float) -> float:
        """Draw the rows of memory, in several columns if they are short; returns the lower end."""
        self.text("memory", _MARGIN, top, 13, font_weight="bold")
        cells = list(enumerate(self._labels()))
        rows = [cells[first : first + self.row_length] for first in range(0, len(cells), self.row_length)]
        width = self.row_length * _CELL + 60
        height = -(-len(rows) // max(1, min(len(rows), int(_WIDTH // width))))
        for number, row in enumerate(rows):
            x, y = _MARGIN + 40 + number // height * width, top + 10 + number % height * (_CELL + 3)
            self.text(str(row[0][0]), x - 6, y + _CELL / 2 + 4, 11, fill=_FAINT, text_anchor="end")
            self.cells(row, x, y)
        return top + 10 + height * (_CELL + 3)

    def _labels(self) -> list[str]:
        """The indices of the element at each offset, without axes of extent 1; empty for padding."""
        layout = self.layout
        offsets = np.arange(layout.capacity)
        coords, is_element = layout.decode(offsets)
        used = [axis for axis, dim in enumerate(layout.shape) if dim > 1] or [0]
        indices = np.stack([each[is_element] for each in coords] or [np.zeros(1, int)], 1)
        labels = [""] * layout.capacity
        separator = "" if max(layout.shape, default=1) <= 10 else ","
        for offset, index in zip(offsets[is_element], indices, strict=True):
            labels[offset] = separator.join(str(index[axis]) for axis in used)
        return labels

    def cells(self, row: Iterable[tuple[int, str]], left: float, y: float) -> None:
        """Draw cells from left to right, each given by its offset and its label, in the colours of the rows of memory."""
        for number, (offset, label) in enumerate(row):
            x = left + number * _CELL
            hue = (0.58 + offset // self.row_length * 0.381966) % 1  # steps of the golden angle
            colour = "#" + "".join(f"{round(255 * each):02x}" for each in colorsys.hls_to_rgb(hue, 0.81, 0.7))
            fill = colour if label else _PADDING
            self.elements.append(drawsvg.Rectangle(x, y, _CELL, _CELL, fill=fill, stroke=_PAPER, stroke_width=1.5))
            size = min(12, (_CELL - 4) / (0.6 * max(1, len(label))))  # 0.6 times the size per character
            self.text(label, x + _CELL / 2, y + _CELL / 2 + size * 0.36, size, text_anchor="middle")
            self.right = max(self.right, x + _CELL)

    def text(self, text: str, x: float, y: float, size: float, **style: object) -> None:
        """Draw a text."""
        self.elements.append(drawsvg.Text(printable(text), round(size, 1), x, y, **{"fill": _INK, **style}))
        if not style.get("text_anchor"):
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


def svg(name: str) -> str:
    """One figure."""
    format, shape, dtype, axes = FIGURES[name]
    figure = draw_memory(Layout(lookup(format, dtype or None), shape), TITLES.get(name, format), axes)
    return str(figure.as_svg()) + "\n"


def main() -> None:
    """Draw all."""
    for name in FIGURES:
        (FOLDER / f"{name}.svg").write_text(svg(name))


if __name__ == "__main__":
    main()
