"""The figure of a plan: ops as boxes from top to bottom, coloured by output format; layout conversions as diamonds.

Grandalf's layered layout (Sugiyama) places the nodes; a high figure is cut into columns. Metadata-only ops are small and grey,
since they move no data. The legend counts the ops of the model as the summary of `optimize` does, those in bodies too.
"""

from collections import Counter

import drawsvg
from grandalf.graphs import Edge, Vertex
from grandalf.graphs import Graph as Hierarchy
from grandalf.layouts import SugiyamaLayout

from layoutopt.ir.cast import is_cast
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.ops import View, rule_of
from layoutopt.plot.columns import Box, arrange_in_columns
from layoutopt.plot.style import FAINT, FONT, INK, PAPER, hue, size_for
from layoutopt.report.builder import counts, moves_data, planned_ops
from layoutopt.report.output_formats import CANONICAL, UNKNOWN
from layoutopt.report.printable import printable

_WIDTH, _HEIGHT = 132.0, 34.0
_MARGIN = 28.0
_CAST = "#d6455d"
_PLAIN = "#e3e8ec"  # the colour of the canonical format
_MAX_LEGEND_FORMATS = 10  # formats in the legend


def draw_plan(graph: Graph, title: str = "") -> drawsvg.Drawing:
    """Draw a planned graph.

    Args:
        graph: the graph after planning, as in `Result.graph`.
        title: the title of the figure.
    """
    return _PlanFigure(graph, title).draw()


class _PlanFigure:
    def __init__(self, graph: Graph, title: str) -> None:
        self.graph = graph
        self.title = title
        self.ops = graph.ops
        self.nodes = {op: self._vertex(op) for op in self.ops}
        self.edges = self._edges()
        self.counts = Counter(_op_format(op) for op in planned_ops(graph))
        self.colours = self._colours()

    def _vertex(self, op: Op) -> Vertex:
        vertex = Vertex(op)
        vertex.view = (
            Box(18.0, 18.0) if is_cast(op) else Box(_WIDTH * 0.6 if _is_metadata_only(op) else _WIDTH, _HEIGHT)
        )
        return vertex

    def _edges(self) -> list[tuple[Op, Op, Value]]:
        found = []
        for op in self.ops:
            for value in dict.fromkeys(value for value in op.inputs if value is not None):
                producer = self.graph.producer(value)
                if producer is not None:
                    found.append((producer, op, value))
        return found

    def _colours(self) -> dict[str, str]:
        """A colour per format, in the order of frequency."""
        others = [name for name, _ in self.counts.most_common() if name not in (UNKNOWN, CANONICAL)]
        return {CANONICAL: _PLAIN} | {name: hue(index) for index, name in enumerate(others)}

    def draw(self) -> drawsvg.Drawing:
        """Draw legend, edges and nodes."""
        self._place()
        boxes = [vertex.view for vertex in self.nodes.values()]
        left = min((box.xy[0] - box.w / 2 for box in boxes), default=0.0) - _MARGIN
        top = min((box.xy[1] - box.h / 2 for box in boxes), default=0.0)
        right = max((box.xy[0] + box.w / 2 for box in boxes), default=0.0) + _MARGIN
        bottom = max((box.xy[1] + box.h / 2 for box in boxes), default=0.0) + _MARGIN
        self.top = top
        top -= _MARGIN
        legend = self._legend()
        height = 60.0 + 20.0 * len(legend)
        width = max(right - left, 320.0)
        figure = drawsvg.Drawing(width, bottom - top + height, origin=(left, top - height), font_family=FONT)
        figure.append(drawsvg.Rectangle(left, top - height, width, bottom - top + height, fill=PAPER))
        figure.append(
            drawsvg.Text(printable(self.title), 18, left + _MARGIN, top - height + 34, fill=INK, font_weight="bold")
        )
        for number, (fill, border, text) in enumerate(legend):
            x, y = left + _MARGIN, top - height + 50 + 20 * number
            figure.append(drawsvg.Rectangle(x, y, 14, 14, fill=fill, stroke=border, stroke_width=2, rx=3))
            figure.append(drawsvg.Text(printable(text), 12, x + 22, y + 11, fill=INK))
        for source, sink, value in self.edges:
            figure.append(self._line(source, sink, value))
        for op, vertex in self.nodes.items():
            figure.extend(self._node(op, vertex.view))
        return figure

    def _place(self) -> None:
        """Set the centre of every node; connected components are placed side by side."""
        vertices = list(self.nodes.values())
        edges = [Edge(self.nodes[source], self.nodes[sink]) for source, sink, _ in self.edges]
        x = 0.0
        for component in Hierarchy(vertices, edges).C:
            layout = SugiyamaLayout(component)
            layout.xspace, layout.yspace = 18, 26
            layout.init_all()
            layout.draw()
            boxes = [vertex.view for vertex in component.sV]
            arrange_in_columns(boxes, [(edge.v[0].view, edge.v[1].view) for edge in component.sE])
            shift = x - min(box.xy[0] - box.w / 2 for box in boxes)
            for box in boxes:
                box.xy = (round(box.xy[0] + shift, 1), round(box.xy[1], 1))
                box.column_end += shift
            x = max(box.xy[0] + box.w / 2 for box in boxes) + 3 * _MARGIN

    def _legend(self) -> list[tuple[str, str, str]]:
        """The rows of the legend: the colours of the box and of its border, and the text."""
        moved = counts(self.graph)
        names = [name for name in self.colours if name != CANONICAL]
        rest = names[_MAX_LEGEND_FORMATS:]
        undrawn = self.counts.total() - sum(not is_cast(op) for op in self.ops)
        rows = [(self.colours[name], f"{name}  {self.counts[name]}") for name in names[:_MAX_LEGEND_FORMATS]]
        rows.insert(0, (_PLAIN, f"{CANONICAL}  {self.counts[CANONICAL]}"))
        if rest:
            rows.append((PAPER, f"{sum(self.counts[name] for name in rest)} in {len(rest)} other formats"))
        if self.counts[UNKNOWN]:
            rows.append((PAPER, f"{UNKNOWN}  {self.counts[UNKNOWN]}"))
        if undrawn:
            rows.append((PAPER, f"{undrawn} of these ops are in bodies, which are not drawn"))
        return [
            *((colour, colour, text) for colour, text in rows),
            (_CAST, _CAST, f"layout conversions  {moved.casts}"),
            (PAPER, _CAST, f"Transposes that move bytes  {moved.transposes}"),
        ]

    def _line(self, source: Op, sink: Op, value: Value) -> drawsvg.DrawingElement:
        start, end = self.nodes[source].view, self.nodes[sink].view
        (x1, y1), (x2, y2) = start.xy, end.xy
        y1, y2 = y1 + start.h / 2, y2 - end.h / 2
        path = drawsvg.Path(stroke=_darker(self.colours.get(_format(value), FAINT)), stroke_width=1.6, fill="none")
        if start.column != end.column:
            return self._line_between_columns(path, (x1, y1), (x2, y2), start)
        bend = max(12.0, (y2 - y1) / 2)
        path.M(x1, y1).C(*(round(each, 1) for each in (x1, y1 + bend, x2, y2 - bend, x2, y2)))
        return path

    def _line_between_columns(
        self, path: drawsvg.Path, start: tuple[float, float], end: tuple[float, float], source: Box
    ) -> drawsvg.DrawingElement:
        """A line along the gap behind the column of its source and along the upper edge of the figure."""
        (x1, y1), (x2, y2) = start, end
        gap, upper = source.column_end + 14.0, self.top - 12.0
        path.M(x1, y1).C(*(round(each, 1) for each in (x1, y1 + 16, gap, y1 + 8, gap, y1 - 16)))
        path.L(gap, upper + 10).Q(gap, upper, gap + 10, upper).L(x2 - 10, upper).Q(x2, upper, x2, upper + 10).L(x2, y2)
        path.args["opacity"] = 0.6
        return path

    def _node(self, op: Op, box: Box) -> list[drawsvg.DrawingElement]:
        (x, y), result = box.xy, op.outputs[0] if op.outputs else None
        if is_cast(op):
            corners = (x, y - 9, x + 9, y, x, y + 9, x - 9, y)
            tip = f"CastData: {_storage(op.inputs[0])} -> {_storage(result)}"
            return [_with_tooltip(drawsvg.Lines(*corners, close=True, fill=_CAST), tip)]
        format = _format(result)
        free = _is_metadata_only(op)
        tip = f"{op.name or op.kind}: {result.type if result is not None else ''} {_storage(result)}"
        left, top = x - box.w / 2, y - box.h / 2
        border = {"stroke": _CAST, "stroke_width": 2.5} if not free and isinstance(rule_of(op), View) else {}
        fill = self.colours.get(format, PAPER)
        elements = [_with_tooltip(drawsvg.Rectangle(left, top, box.w, box.h, rx=6, fill=fill, **border), tip)]
        first = size_for(op.op_type, box.w - 10, 12)
        elements.append(
            drawsvg.Text(printable(op.op_type), first, x, y - 2, fill=FAINT if free else INK, text_anchor="middle")
        )
        shape = "?" if result is None or result.shape is None else "x".join(map(str, result.shape))
        second = f"{shape} {format}" if format not in ("", CANONICAL) else shape
        size = size_for(second, box.w - 10, 9)
        elements.append(drawsvg.Text(printable(second), round(size, 1), x, y + 11, fill=FAINT, text_anchor="middle"))
        return elements


def _with_tooltip(element: drawsvg.DrawingElement, text: str) -> drawsvg.DrawingElement:
    """The element with a tooltip."""
    element.append_title(printable(text))
    return element


def _is_metadata_only(op: Op) -> bool:
    """Whether the op is metadata-only: it moves no data."""
    return isinstance(rule_of(op), View) and not moves_data(op)


def _op_format(op: Op) -> str:
    """The format by which the legend counts an op: that of the first output that has one."""
    return next((_format(value) for value in op.outputs if _format(value)), UNKNOWN)


def _format(value: Value | None) -> str:
    """The format of a value with the letters of its axes, or that it is the canonical one; empty if unknown."""
    if value is None or value.storage is None:
        return ""
    return CANONICAL if value.storage.format.is_canonical else value.format_text(value.storage.format)


def _storage(value: Value | None) -> str:
    return "" if value is None or value.storage is None else value.format_text(value.storage.format)


def _darker(colour: str) -> str:
    parts = (int(colour[position : position + 2], 16) for position in (1, 3, 5))
    return "#" + "".join(f"{int(part * 0.72):02x}" for part in parts)
