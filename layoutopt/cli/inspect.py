"""`layoutopt inspect`."""

from pathlib import Path
from typing import Annotated

import typer


def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX file.")],
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", metavar="T", help="Plan for this hardware; by default for this machine."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="One line per op, not per kind of op.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, every op in it.")] = False,
) -> None:
    """Show the formats and casts of a model before and after, and why each cast remains; nothing is written.

    A model that layoutopt has written says itself what it was made for; without --target that is shown.
    """
    from layoutopt.cli.survey import print_survey, survey

    print_survey(survey(model, target), everything, as_json)
