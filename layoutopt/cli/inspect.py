"""`layoutopt inspect`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli import assignments
from layoutopt.cli.assignments import DIM_HELP


def inspect(
    model: Annotated[Path, Argument(metavar="MODEL", help="The ONNX file.")],
    target: Annotated[
        str | None, Option("--target", "-t", metavar="T", help="The hardware; by default this machine.")
    ] = None,
    dim: Annotated[list[str] | None, Option("--dim", metavar="NAME=SIZE", help=DIM_HELP)] = None,
    everything: Annotated[bool, Option("--all", help="One line per op, not per kind of op.")] = False,
    plot: Annotated[Path | None, Option("--plot", metavar="OUT.svg", help="Draw the plan, as SVG.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, with every op.")] = False,
) -> None:
    """Show formats and casts, before and after.

    Nothing is written. A model that layoutopt has written says itself what it was made for; that is shown
    unless a target is named.
    """
    from layoutopt.cli.findings import print_survey
    from layoutopt.cli.survey import draw_survey, survey

    found = survey(model, target, assignments.dims(dim or []))
    if plot is not None:
        draw_survey(found, plot)
    print_survey(found, everything, as_json)
