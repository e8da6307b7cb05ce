"""The output of `passes`."""

from typing import get_args

from layoutopt.cli.rendering.terminal import footnote, indented, show, show_json, styled_line, table, text
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode, Pass


def print_passes(as_json: bool) -> None:
    """Print the pipeline of every mode."""
    pipelines = {
        mode: [{"name": each.name, "does": _description(each)} for each in default_pipeline(mode).passes]
        for mode in get_args(Mode)
    }
    if as_json:
        show_json(pipelines)
        return
    for mode, passes in pipelines.items():
        rows = table(">", "=pass", "does")
        for number, each in enumerate(passes, 1):
            rows.add_row(text(number, "dim"), text(each["name"], "bold"), text(each["does"]))
        show(styled_line((mode, "bold")), indented(rows), styled_line())
    footnote("Print the graph after a pass with optimize --dump-ir after:PASS.")


def _description(each: Pass) -> str:
    """The first line of the docstring of the pass."""
    return (type(each).__doc__ or "").strip().split("\n")[0]
