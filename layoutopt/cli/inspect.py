"""`layoutopt inspect`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from layoutopt.cli.options import assignments
from layoutopt.cli.options.config_file import NAMES_OUTPUT, ConfigFile, NoConfig, configured, requested_config
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.pages import PAGE_HELP
from layoutopt.cli.options.plan import Dims, Runtime
from layoutopt.cli.options.strict import Strict
from layoutopt.cli.options.target_names import complete_target

_TARGET = "The hardware to plan for; by default this machine."


def inspect(
    context: Context,
    model: Annotated[Path, Argument(metavar="MODEL", help="The ONNX file.")],
    target: Annotated[
        str | None, Option("--target", "-t", metavar="T", help=_TARGET, autocompletion=complete_target)
    ] = None,
    runtime: Runtime = None,
    dim: Dims = None,
    show_all: Annotated[bool, Option("--all", help="Print one row per op, not per op type.")] = False,
    html: Annotated[Path | None, Option("--html", metavar="FILE", help=PAGE_HELP), NAMES_OUTPUT] = None,
    force: Force = False,
    strict: Strict = False,
    custom_ops: CustomOps = None,
    json: JsonFile = None,
    config: ConfigFile = None,
    no_config: NoConfig = False,
) -> None:
    """Show formats and layout conversions, before and after planning.

    No model is written. For a model that layoutopt wrote, the target and the formats stored in the model are
    printed, unless --target or the configuration names a target.
    """
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.files.pages import require_pages
    from layoutopt.cli.files.read_files import read_files
    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.inspection import PlannedModel, inspect_model, write_inspected_page
    from layoutopt.cli.rendering.inspect import print_inspected
    from layoutopt.cli.rendering.warnings import warn_of_repairs
    from layoutopt.files import FileKind, Overwrite
    from layoutopt.report.warnings import repairs_of

    values = {"target": target, "runtime": runtime, "dim": dim, "strict": strict, "custom_ops": custom_ops}
    configuration = requested_config(config, no_config)
    options = configured(context, configuration, model, values)
    reads = read_files(options, configuration)
    overwrite = Overwrite((model,), None, force, reads, "inspect")
    if html is not None:
        overwrite.check(html, FileKind.PAGE)
        require_pages()
    pages = [html] if html is not None else []
    record = JsonRecord("inspect", json, model, others=pages, reads=reads, kind="the model or the page", force=force)
    dims = assignments.parse_dim_ranges(options["dim"] or [])
    found = inspect_model(
        model,
        options["target"],
        options["runtime"],
        dims,
        strict=options["strict"],
        custom_ops=custom_ops or (),
        records=html is not None,
    )
    if isinstance(found, PlannedModel):
        warn_of_repairs(repairs_of(found.report.notes))
    if html is not None:
        write_inspected_page(found, html, overwrite)
    with reporting_written_files(pages):
        print_inspected(found, show_all, record)
