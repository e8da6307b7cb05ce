"""The HTML document: a jinja2 template with autoescape, whose scripts and styles are in the file.

A content security policy permits the scripts of the template by their hashes, and no address at all, so that no name of a model
can run as code or load anything. Names reach the scripts as JSON in which `<`, `>`, `&`, `'` and all characters beyond ASCII
are escaped, and reach the page as text nodes.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from layoutopt.page.graphs import Node, PageGraph
from layoutopt.page.libraries import libraries
from layoutopt.page.tree import group_tree
from layoutopt.report.facts import CANONICAL, UNKNOWN
from layoutopt.report.printable import printable
from layoutopt.report.schema import Report
from layoutopt.report.units import seconds, size
from layoutopt.version import VERSION

_COLOURS = 10  # formats with a colour of their own
_OTHER = {"before": "after", "after": "before"}
_FOLDER = files("layoutopt.page") / "template"
_SCRIPTS = ("model.js", "layout.js", "shapes.js", "view.js", "details.js", "main.js")


def page_html(
    report: Report,
    before: PageGraph | None,
    after: PageGraph,
    *,
    is_plan: bool = False,
    prices: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """The page as HTML text.

    Args:
        report: the report of the run.
        before: the graph before planning; None if no pass has run.
        after: the graph after planning.
        is_plan: whether the run only planned, as `inspect` does.
        prices: lines about the alternatives of a conversion, by the name of its tensor.
    """
    graphs = {"before": before, "after": after} if before is not None else {"after": after}
    scripts = [*(each["script"] for each in libraries()), _own_script()]
    remaining = _remaining(after)
    of_casts = {each.name: prices[each.tensor] for each in report.casts if each.tensor in prices}
    style = (_FOLDER / "page.css").read_text("utf-8")
    return _template().render(
        policy=_policy(scripts, style),
        scripts=[Markup(each) for each in scripts],
        style=Markup(style),
        data=page_data(graphs, {**prices, **of_casts}),
        version=VERSION,
        report=report,
        is_plan=is_plan,
        model=PurePath(report.model).name,
        has_before=before is not None,
        legend=_legend(graphs),
        moving=Counter(kind for _, kind, _ in remaining),
        remaining=remaining,
        graphs=list(graphs.values()),
        libraries=libraries(),
    )


# --- the data of the graphs --------------------------------------------------------------------------------


def page_data(graphs: Mapping[str, PageGraph], prices: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The graphs, `before` and `after`, as lists of numbers and one list of texts: a text is its position there."""
    texts: dict[str, int] = {}

    def packed(value: Any) -> Any:
        if isinstance(value, str):
            return texts.setdefault(printable(value), len(texts))
        if isinstance(value, list | tuple):
            return [packed(each) for each in value]
        return float(f"{value:.4g}") if isinstance(value, float) else int(value)

    formats = [(name, colour) for name, colour, _, _ in _legend(graphs)]
    sides = {
        name: {
            "nodes": packed(graph.nodes),
            "edges": [packed((source, target, *operand[:3])) for source, target, operand in graph.edges],
            "regions": packed(graph.regions),
            "mates": graph.counterparts(graphs.get(_OTHER[name], PageGraph())),
            "tree": packed(group_tree(graph)),
        }
        for name, graph in graphs.items()
    }
    moving = [(number, node) for number, node in enumerate(graphs["after"].nodes) if node.kind in ("cast", "move")]
    lines = {number: prices.get(node.name) or prices.get(node.outputs[0].name) for number, node in moving}
    shown = {number: packed(each) for number, each in lines.items() if each}
    return {"formats": packed(formats), "sides": sides, "prices": shown, "texts": list(texts)}


def _legend(graphs: Mapping[str, PageGraph]) -> list[tuple[str, str, int, int]]:
    """The formats, those of the planned graph first, by frequency: format, colour, number of ops before and after planning."""
    counts = [Counter(node.format for node in graph.nodes if node.format) for graph in graphs.values()]
    ordered = dict.fromkeys(name for each in reversed(counts) for name, _ in each.most_common())
    others = [name for name in ordered if name not in (CANONICAL, UNKNOWN)]
    colours = {name: f"c{index}" if index < _COLOURS else "rest" for index, name in enumerate(others)}
    return [(name, colours.get(name, "canonical"), counts[0][name], counts[-1][name]) for name in ordered]


def _remaining(graph: PageGraph) -> list[tuple[int, str, Node]]:
    """The conversions and the view ops that move bytes, with number and kind, the longest estimated time first."""
    rows = []
    for number, node in enumerate(graph.nodes):
        kind = node.op_type
        if node.kind == "cast":
            is_weight = any(each.is_constant for each in node.inputs)
            kind = "weight conversion" if is_weight else "layout conversion" if node.nbytes else "shape only"
        if node.kind in ("cast", "move"):
            rows.append((number, kind, node))
    return sorted(rows, key=lambda row: (-row[2].seconds, -row[2].nbytes, row[0]))


# --- the text ----------------------------------------------------------------------------------------------


@cache
def _own_script() -> str:
    parts = [(_FOLDER / name).read_text("utf-8") for name in _SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def _policy(scripts: Sequence[str], style: str) -> str:
    """A content security policy that permits these scripts and this style, and nothing else."""
    allowed = " ".join(map(_source, scripts))
    return f"default-src 'none'; script-src {allowed}; style-src {_source(style)}; base-uri 'none'; form-action 'none'"


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters |= {"seconds": seconds, "size": size, "printable": printable}
    return environment.from_string((_FOLDER / "page.html.j2").read_text("utf-8"))
