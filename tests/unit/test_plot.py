"""The figures agree with formats and plans, as read back from the SVG."""

from xml.etree import ElementTree

import drawsvg
import numpy as np
import pytest

from layoutopt.errors import FormatError
from layoutopt.formats import Layout, lookup
from layoutopt.plot import draw_memory

SVG = "{http://www.w3.org/2000/svg}"
TENSORS = [
    ("NCHW4c", (1, 6, 3, 4), None),
    ("NHWC", (2, 3, 3, 4), None),
    ("FRACTAL_NZ", (20, 33), "float16"),
    ("NC1HWC0", (1, 17, 2, 2), "float16"),
    ("RowMajorInterleaved<4>", (7, 6), None),
    ("CHWN4", (3, 5, 2, 2), None),
    ("W", (7,), None),
]


def read(figure: drawsvg.Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(figure.as_svg())


def texts(figure: drawsvg.Drawing) -> list[str]:
    return ["".join(each.itertext()) for each in read(figure).iter(f"{SVG}text")]


@pytest.mark.parametrize(("name", "shape", "dtype"), TENSORS)
def test_every_offset_and_every_element_is_there(name: str, shape: tuple[int, ...], dtype: str | None) -> None:
    layout = Layout.packed(lookup(name, dtype), shape)
    figure = draw_memory(layout, name)
    cells = [each for each in read(figure).iter(f"{SVG}rect") if each.get("width") == each.get("height") == "30.0"]
    assert len(cells) == layout.size + layout.capacity
    lanes = [each for each in cells if each.get("fill") == "#e8e8e8"]
    assert len(lanes) == layout.capacity - layout.size
    offsets = np.asarray(layout.offset(*np.meshgrid(*map(np.arange, shape), indexing="ij"))).reshape(-1)
    found = texts(figure)
    assert all(str(offset) in found for offset in offsets)
    used = [axis for axis, dim in enumerate(shape) if dim > 1]
    separator = "" if max(shape) <= 10 else ","
    for index in np.ndindex(*shape):
        assert separator.join(str(index[axis]) for axis in used) in found


@pytest.mark.parametrize("shape", [(1, 64, 64, 64), (0, 1, 1, 1)])
def test_what_cannot_be_drawn(shape: tuple[int, ...]) -> None:
    with pytest.raises(FormatError, match="cannot be drawn"):
        draw_memory(Layout.packed(lookup("NHWC"), shape))
