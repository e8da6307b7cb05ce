"""The HTML document: a jinja2 template with autoescape, whose scripts and styles are in the file.

A content security policy permits the scripts of the template by their hashes, and no address at all, so that no name of a model
can run as code or load anything. Names reach the scripts as JSON in which `<`, `>`, `&`, `'` and all characters beyond ASCII
are escaped, and reach the page as text nodes.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from layoutopt.page.encoding import encode, legend
from layoutopt.page.graphs import PageGraph
from layoutopt.page.libraries import libraries
from layoutopt.page.remaining import CONVERSION, SHAPE_ONLY, WEIGHT_CONVERSION, remaining_rows
from layoutopt.page.totals import op_type_totals
from layoutopt.report.printable import printable
from layoutopt.report.schema import Counts, Report
from layoutopt.report.units import seconds, size
from layoutopt.version import VERSION

_FOLDER = files("layoutopt.page") / "template"
_SCRIPTS = ("model.js", "layout.js", "shapes.js", "view.js", "details.js", "main.js")


def page_html(
    report: Report,
    before: PageGraph | None,
    after: PageGraph,
    *,
    is_plan: bool = False,
) -> str:
    """The page as HTML text.

    Args:
        report: the report of the run.
        before: the graph before planning; None if no pass has run.
        after: the graph after planning.
        is_plan: whether the run only planned, as `inspect` does.
    """
    scripts = [*(each.script for each in libraries()), _own_script()]
    style = (_FOLDER / "page.css").read_text("utf-8")
    return _template().render(
        mark=Markup(f'<meta name="generator" content="layoutopt {VERSION}">'),
        policy=_policy(scripts, style),
        scripts=[Markup(each) for each in scripts],
        style=Markup(style),
        data=encode(before, after),
        version=VERSION,
        report=report,
        is_plan=is_plan,
        model=PurePath(report.model).name,
        has_before=before is not None,
        after_title=_after_title(before, report),
        legend=_legend(before, after),
        movement=report.after if report.changed else _movement_counts(after),
        remaining=remaining_rows(after),
        totals=op_type_totals(before, after),
        libraries=libraries(),
    )


def _legend(before: PageGraph | None, after: PageGraph) -> list[tuple[str, str, int | None, int]]:
    """The rows of the legend: format, colour, number of ops before and after planning."""
    sides = [graph for graph in (before, after) if graph is not None]
    counts = [Counter(node.format for node in graph.nodes) for graph in sides]
    return [
        (name, colour, counts[0][name] if before is not None else None, counts[-1][name])
        for name, colour in legend(sides)
    ]


def _after_title(before: PageGraph | None, report: Report) -> str:
    """The title of the planned graph."""
    if before is None:
        return "The model"
    return "After planning" if report.changed else "The plan that was not used"


def _movement_counts(graph: PageGraph) -> Counts:
    """The numbers of casts and view ops of a plan that was not used: a report counts those of the original instead."""
    kinds = Counter(row.kind for row in remaining_rows(graph))
    casts, weights, _ = (kinds.pop(kind, 0) for kind in (CONVERSION, WEIGHT_CONVERSION, SHAPE_ONLY))
    return Counts(casts=casts, transposes=kinds.total(), weight_casts=weights)


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


__all__ = ["page_html"]
