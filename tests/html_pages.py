"""Pages in tests: the parts of an HTML page, and generated graphs."""

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from layoutopt.ir.types import Op
from layoutopt.page.graphs import Node, Operand, PageGraph

BLOCK = ("Conv", "Relu", "Conv", "Relu", "Conv", "Add", "Relu")


@dataclass
class Page(HTMLParser):
    """An HTML page: its scripts, the cells of rows by the id of the table, attributes (tag, name, value), and other text."""

    source: str
    scripts: list[str] = field(default_factory=list)
    rows: dict[str, list[list[str]]] = field(default_factory=dict)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._open = ""
        self._table = ""
        self.feed(self.source)

    @property
    def data(self) -> dict[str, Any]:
        """The data of the page."""
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found

    @property
    def names(self) -> set[str]:
        """All names, types, formats and reasons in the data."""
        return set(self.data["texts"])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "script":
            self.scripts.append("")
        if tag == "table":
            self._table = dict(attrs).get("id") or ""
        if tag == "tr":
            self.rows.setdefault(self._table, []).append([])
        if tag in ("td", "th"):
            self.rows[self._table][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open in ("td", "th"):
            self.rows[self._table][-1][-1] += data.strip()
        if self._open not in ("script", "style"):
            self.text += data


def residual_network(ops: int) -> PageGraph:
    """A graph of residual blocks without module names: seven ops each, of which the sixth also reads the input of the block."""
    operand = Operand("t", "float32[1,64,56,56]", "NCHW")
    found, block = PageGraph([Node("input", "x", "input", (), (operand,))], [None]), 0
    for number in range(ops):
        position = number % len(BLOCK)
        found.ops.append(Op(BLOCK[position], (), ()))
        found.nodes.append(Node("op", f"op_{number}", BLOCK[position], (operand,), (operand,), "NHWC", 1e-6, 100))
        found.edges.append((number, number + 1, operand))
        if BLOCK[position] == "Add":
            found.edges.append((block, number + 1, operand))
        block = number + 1 if position == len(BLOCK) - 1 else block
    found.nodes.append(Node("output", "y", "output", (operand,), ()))
    found.ops.append(None)
    found.edges.append((ops, ops + 1, operand))
    return found
