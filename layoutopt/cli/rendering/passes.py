"""Passes and dialects as tables."""

import sys
from typing import get_args

from layoutopt.cli.rendering.terminal import indented, line, remark, show, show_json, table, text
from layoutopt.cost_models import load_target, target_names
from layoutopt.dialects import DIALECTS
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode


def print_passes(as_json: bool) -> None:
    """The pipeline of every mode."""
    pipelines = {
        mode: [{"name": step.name, "does": _first_line(step)} for step in default_pipeline(mode).passes]
        for mode in get_args(Mode)
    }
    if as_json:
        show_json(pipelines)
        return
    for mode, steps in pipelines.items():
        rows = table(">", "=", "")
        for place, step in enumerate(steps, 1):
            rows.add_row(text(place, "dim"), text(step["name"], "bold"), text(step["does"]))
        show(line((mode, "bold")), indented(rows), line())
    show(text("See the graph between two of them with optimize --dump-ir after:PASS.", "dim"))


def print_dialects(as_json: bool) -> None:
    """The dialects, and which targets use them unless told otherwise."""
    users: dict[str, list[str]] = {name: [] for name in DIALECTS}
    for target in target_names():
        users.setdefault(load_target(target).dialect, []).append(target)
    records = [
        {"name": name, "writes": _module_line(dialect), "default_of": users[name]} for name, dialect in DIALECTS.items()
    ]
    if as_json:
        show_json(records)
        return
    for record in records:
        used = line("default of ", ", ".join(record["default_of"])) if record["default_of"] else line()
        used.stylize("dim")
        show(line((str(record["name"]), "bold"), "  ", used), indented(text(record["writes"])))
    remark("Choose one with optimize --dialect.")


def _first_line(thing: object) -> str:
    return (type(thing).__doc__ or "").strip().split("\n")[0]


def _module_line(thing: object) -> str:
    """What the module of a dialect says of it, without the name."""
    first = (sys.modules[type(thing).__module__].__doc__ or "").strip().split("\n\n")[0]
    return " ".join(first.split()).partition(": ")[2] or _first_line(thing)
