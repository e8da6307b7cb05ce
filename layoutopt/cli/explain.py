"""`layoutopt explain`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from layoutopt.cli.options import assignments
from layoutopt.cli.options.config_file import ConfigFile, NoConfig, configured, requested_config
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.plan import Dims, Pins, Runtime
from layoutopt.cli.options.strict import Strict
from layoutopt.cli.options.target_names import complete_target


def explain(
    context: Context,
    model: Annotated[Path, Argument(metavar="MODEL", help="The ONNX file.")],
    item: Annotated[
        str | None,
        Argument(metavar="TENSOR|NODE", help="A tensor or node; by default all conversions.", show_default=False),
    ] = None,
    target: Annotated[
        str,
        Option(
            "--target",
            "-t",
            metavar="T",
            help="The hardware to plan for; by default this machine.",
            autocompletion=complete_target,
            show_default=False,
        ),
    ] = "cpu",
    runtime: Runtime = None,
    pin: Pins = None,
    dim: Dims = None,
    limit: Annotated[
        int,
        Option("--limit", metavar="N", min=0, help="Conversions, or candidates of a tensor or node, that are priced."),
    ] = 10,
    time_limit: Annotated[
        float | None,
        Option("--time-limit", metavar="S", help="Seconds for planning and for the prices of alternatives."),
    ] = None,
    calibrate: Annotated[
        bool, Option("--calibrate", help="Plan with kernels timed on this machine, as `optimize` does.")
    ] = False,
    profile: Annotated[
        Path | None, Option("--profile", metavar="FILE", help="Plan with the kernel times in this file.")
    ] = None,
    strict: Strict = False,
    custom_ops: CustomOps = None,
    force: Force = False,
    json: JsonFile = None,
    config: ConfigFile = None,
    no_config: NoConfig = False,
) -> None:
    """Explain the layout conversions of a plan.

    Why the plan has each conversion, and what would remove it. Alternatives are priced by the integer program of the
    plan, by default at the prices of the target. With a tensor or node: its formats, its candidates, and the best plan
    with each of them. No model is written.
    """
    from layoutopt import explanation
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.files.read_files import read_files
    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.rendering.explain import print_explained
    from layoutopt.cli.rendering.progress import ProgressLine
    from layoutopt.cli.rendering.warnings import warn_of_repairs
    from layoutopt.report.warnings import repairs_of

    values = {
        "target": target,
        "runtime": runtime,
        "pin": pin,
        "dim": dim,
        "time_limit": time_limit,
        "profile": profile,
        "strict": strict,
        "custom_ops": custom_ops,
    }
    configuration = requested_config(config, no_config)
    options = configured(context, configuration, model, values)
    record = JsonRecord("explain", json, model, reads=read_files(options, configuration), kind="the model", force=force)
    with ProgressLine() as progress:
        found = explanation.explain(
            model,
            item,
            options["target"],
            runtime=options["runtime"],
            pins=assignments.parse_pins(options["pin"] or []),
            dims=assignments.parse_dim_ranges(options["dim"] or []),
            limit=limit,
            time_limit=options["time_limit"],
            strict=options["strict"],
            custom_ops=custom_ops or (),
            calibrate=calibrate,
            profile=options["profile"],
            progress=progress,
        )
    warn_of_repairs(repairs_of(found.notes))
    with reporting_written_files(record.files):
        print_explained(found, record)
