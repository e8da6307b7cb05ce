"""`layoutopt inspect`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.options import assignments
from layoutopt.cli.options.assignments import DIM_HELP
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.strict import Strict


def inspect(
    model: Annotated[Path, Argument(metavar="MODEL", help="The ONNX file.")],
    target: Annotated[
        str | None, Option("--target", "-t", metavar="T", help="The hardware; by default this machine.")
    ] = None,
    dim: Annotated[list[str] | None, Option("--dim", metavar="NAME=SIZE", help=DIM_HELP)] = None,
    everything: Annotated[bool, Option("--all", help="One line per op, not per kind of op.")] = False,
    plot: Annotated[Path | None, Option("--plot", metavar="OUT.svg", help="Draw the plan, as SVG.")] = None,
    force: Force = False,
    strict: Strict = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON, with every op.")] = False,
) -> None:
    """Show formats and casts, before and after.

    Nothing is written. A model that layoutopt has written says itself what it was made for; that is shown
    unless a target is named.
    """
    from layoutopt.cli.files.after_writing import after_writing
    from layoutopt.cli.files.pictures import require_drawing
    from layoutopt.cli.inspection import Planned, draw_survey, survey
    from layoutopt.cli.rendering.inspect import print_survey
    from layoutopt.cli.rendering.warnings import repairs_of, warn_of_repairs
    from layoutopt.files import Kind, Overwrite

    rule = Overwrite((model,), None, force)
    if plot is not None:
        rule.check(plot, Kind.PICTURE)
        require_drawing()
    found = survey(model, target, assignments.dims(dim or []), strict=strict)
    if isinstance(found, Planned):
        warn_of_repairs(repairs_of(found.report))
    if plot is not None:
        draw_survey(found, plot, rule)
    with after_writing([plot] if plot is not None else []):
        print_survey(found, everything, as_json)
