"""The output of `passes`."""

from collections.abc import Sequence
from typing import get_args

from rich.table import Table

from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import footnote, indented, show, styled_line, table, text
from layoutopt.dialects import DIALECTS
from layoutopt.driver.job import lowering_passes
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode, Pass


def print_passes(json: JsonRecord) -> None:
    """Print the passes of every mode, and the passes of every dialect that follow."""
    modes = {mode: _records(default_pipeline(mode).passes) for mode in get_args(Mode)}
    dialects = {name: _records(lowering_passes(dialect)) for name, dialect in DIALECTS.items()}
    json.write({**modes, "dialects": dialects})
    if json.is_printed:
        return
    for mode, passes in modes.items():
        show(styled_line((mode, "bold")), indented(_table(passes)), styled_line())
    shown: list[list[dict[str, str]]] = []
    for passes in dialects.values():
        if passes not in shown:
            shown.append(passes)
            names = ", ".join(name for name, each in dialects.items() if each == passes)
            title = f"then, in the dialect{'s' if ',' in names else ''} {names}"
            show(styled_line((title, "bold")), indented(_table(passes)), styled_line())
    footnote("Print the graph after a pass with inspect --dump-ir after:PASS.")


def _records(passes: Sequence[Pass]) -> list[dict[str, str]]:
    """Name and first line of the docstring of every pass."""
    return [{"name": each.name, "does": (type(each).__doc__ or "").strip().split("\n")[0]} for each in passes]


def _table(passes: Sequence[dict[str, str]]) -> Table:
    rows = table(">", "=pass", "does")
    for number, each in enumerate(passes, 1):
        rows.add_row(text(number, "dim"), text(each["name"], "bold"), text(each["does"]))
    return rows
