"""The figures agree with formats and plans, as read back from the SVG."""

from itertools import pairwise
from xml.etree import ElementTree

import drawsvg
import numpy as np
import pytest
from onnx import numpy_helper, parser

import layoutopt
from layoutopt.errors import FormatError
from layoutopt.formats import Layout, lookup
from layoutopt.ir.cast import is_cast
from layoutopt.plot import draw_memory, draw_plan
from layoutopt.plot.columns import Box, arrange_in_columns
from layoutopt.report.output_formats import count_output_formats

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


def test_a_plan_has_every_op_and_a_diamond_per_cast() -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,32,28,28] x) => (float[1,32,28,28] y) {'
        " a = Conv <pads = [1,1,1,1]> (x, w) b = Relu(a) c = Conv <pads = [1,1,1,1]> (b, w) y = Add(c, b) }"
    )
    weight = np.random.default_rng(0).normal(size=(32, 32, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    result = layoutopt.optimize(model, "ascend-910b", verify=False)
    graph = result.graph
    figure = draw_plan(graph, "<a & b>")
    found = texts(figure)
    assert {f"{name}  {count}" for name, count in count_output_formats(result.report.ops)} <= set(found)
    assert "<a & b>" in found
    casts = sum(map(is_cast, graph.ops))
    assert casts and f"layout conversions  {casts}" in found
    assert [found.count(kind) for kind in ("Conv", "Relu", "Add")] == [2, 1, 1]
    tips = ["".join(each.itertext()) for each in read(figure).iter(f"{SVG}title")]
    assert sum(tip.startswith("CastData: ") for tip in tips) == casts


@pytest.mark.parametrize("layers", [1, 4, 60, 400])
def test_a_high_drawing_is_cut_into_columns(layers: int) -> None:
    boxes = [Box(132.0, 34.0, (0.0, 60.0 * number)) for number in range(layers)]
    arrange_in_columns(boxes, list(pairwise(boxes)))
    assert len({box.xy for box in boxes}) == layers
    assert all(first.column <= second.column for first, second in pairwise(boxes))
    assert all(first.xy[1] < second.xy[1] for first, second in pairwise(boxes) if first.column == second.column)
    width, height = (max(box.xy[axis] for box in boxes) - min(box.xy[axis] for box in boxes) for axis in (0, 1))
    assert layers < 10 or 0.4 < width / height < 2.5
    assert all(abs(box.xy[0] - box.column_end) <= 66 for box in boxes if boxes[-1].column)
