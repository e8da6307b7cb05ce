"""`layoutopt inspect`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.options import assignments
from layoutopt.cli.options.assignments import DIM_HELP
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.pages import PAGE_HELP
from layoutopt.cli.options.strict import Strict


def inspect(
    model: Annotated[Path, Argument(metavar="MODEL", help="The ONNX file.")],
    target: Annotated[
        str | None, Option("--target", "-t", metavar="T", help="The hardware to plan for; by default this machine.")
    ] = None,
    runtime: Annotated[
        str | None,
        Option("--runtime", metavar="R", help="The program that runs the model: see `layoutopt runtimes`."),
    ] = None,
    dim: Annotated[list[str] | None, Option("--dim", metavar="NAME=SIZE", help=DIM_HELP)] = None,
    show_all: Annotated[bool, Option("--all", help="Print one row per op, not per op type.")] = False,
    plot: Annotated[Path | None, Option("--plot", metavar="OUT.svg", help="Draw the plan as SVG.")] = None,
    html: Annotated[Path | None, Option("--html", metavar="FILE", help=PAGE_HELP)] = None,
    force: Force = False,
    strict: Strict = False,
    custom_ops: CustomOps = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, with one record per op.")] = False,
) -> None:
    """Show formats and layout conversions, before and after planning.

    No model is written. For a model that layoutopt wrote, the target and the formats stored in the model are
    printed, unless --target is given.
    """
    from layoutopt.cli.exit_codes import UsageError
    from layoutopt.cli.files.pages import require_pages
    from layoutopt.cli.files.pictures import require_drawing
    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.inspection import PlannedModel, draw_inspected, inspect_model, write_inspected_page
    from layoutopt.cli.rendering.inspect import print_inspected
    from layoutopt.cli.rendering.warnings import repairs_of, warn_of_repairs
    from layoutopt.files import FileKind, Overwrite, is_same_file, path_text

    overwrite = Overwrite((model,), None, force)
    if plot is not None:
        overwrite.check(plot, FileKind.PICTURE)
        require_drawing()
    if html is not None:
        if plot is not None and is_same_file(html, plot):
            raise UsageError("that is the file of --plot", where=f"--html {path_text(html)}", hint="name another file")
        overwrite.check(html, FileKind.PAGE)
        require_pages()
    dims = assignments.parse_dim_ranges(dim or [])
    found = inspect_model(
        model, target, runtime, dims, strict=strict, custom_ops=custom_ops or (), records=html is not None
    )
    if isinstance(found, PlannedModel):
        warn_of_repairs(repairs_of(found.report))
    if plot is not None:
        draw_inspected(found, plot, overwrite)
    if html is not None:
        write_inspected_page(found, html, overwrite)
    with reporting_written_files([path for path in (plot, html) if path is not None]):
        print_inspected(found, show_all, as_json)
