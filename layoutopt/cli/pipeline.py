"""Passes and dialects as tables."""

import sys
from typing import get_args

from layoutopt.cli.terminal import line, show, show_json, table, text
from layoutopt.cost_models import load_target, target_names
from layoutopt.dialects import DIALECTS
from layoutopt.pass_base import Mode
from layoutopt.passes import default_pipeline


def print_passes(as_json: bool) -> None:
    """The pipeline of every mode."""
    pipelines = {mode: default_pipeline(mode).passes for mode in get_args(Mode)}
    if as_json:
        show_json({mode: [{"name": step.name, "does": _first_line(step)} for step in steps] for mode, steps in pipelines.items()})
        return
    for number, (mode, steps) in enumerate(pipelines.items()):
        rows = table(">", "=", "")
        for place, step in enumerate(steps, 1):
            rows.add_row(text(f"  {place}", "dim"), text(step.name, "bold"), text(_first_line(step)))
        show(line("\n" if number else "", (mode, "bold")), rows)
    show(line("\n", ("See the graph between them with optimize --dump-ir after:PASS.", "dim")))


def print_dialects(as_json: bool) -> None:
    """The dialects, and which targets use them unless told otherwise."""
    users: dict[str, list[str]] = {name: [] for name in DIALECTS}
    for target in target_names():
        users.setdefault(load_target(target).dialect, []).append(target)
    if as_json:
        records = [
            {"name": name, "does": _module_line(dialect), "targets": users[name]} for name, dialect in DIALECTS.items()
        ]
        show_json(records)
        return
    rows = table("=name", "what it writes", "default of")
    for name, dialect in DIALECTS.items():
        rows.add_row(text(name, "bold"), text(_module_line(dialect)), text(", ".join(users[name]), "dim"))
    show(rows)


def _first_line(thing: object) -> str:
    return (type(thing).__doc__ or "").strip().split("\n")[0]


def _module_line(thing: object) -> str:
    """What the module of a dialect says of it, without the name."""
    first = (sys.modules[type(thing).__module__].__doc__ or "").strip().split("\n\n")[0]
    return " ".join(first.split()).partition(": ")[2] or _first_line(thing)
