"""`layoutopt optimize`."""

from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import assignments
from layoutopt.cli.options.assignments import DIM_HELP, INPUTS_HELP
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.pages import NODE_DATA_HELP, PAGE_HELP
from layoutopt.cli.options.strict import Strict


class Mode(StrEnum):
    """The use of the optimised model."""

    INFERENCE = "inference"
    TRAINING = "training"


class Sessions(StrEnum):
    """The preference for session creation or runs."""

    BALANCED = "balanced"
    FAST = "fast"


_SESSIONS = "fast: sessions of onnxruntime are created faster, runs take longer; best with --external-data."
_PIN = "A format that a tensor must have, with the letters that `inspect` prints. Can be repeated."
_TUNE = "Measure further plans and rewrites for this time, and write the fastest; Ctrl-C ends the search."
_DUMP = "Print the graph before:PASS, after:PASS or after all passes, on stderr; or to files: all=FOLDER."


def optimize(
    model: Annotated[Path, Argument(metavar="MODEL", help="The ONNX file.")],
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="OUT", help="The file to write; OUT may be MODEL.")
    ] = None,
    target: Annotated[
        str,
        Option("--target", "-t", metavar="T", help="The hardware: a name from `layoutopt targets`, or a file T.toml."),
    ] = "cpu",
    runtime: Annotated[
        str | None, Option("--runtime", metavar="R", help="The program that runs OUT: see `layoutopt runtimes`.")
    ] = None,
    dialect: Annotated[
        str | None, Option("--dialect", metavar="D", help="The form of the result: see `layoutopt dialects`.")
    ] = None,
    mode: Annotated[
        Mode, Option("--mode", help="In training mode, weights and their layout conversions stay in the graph.")
    ] = Mode.INFERENCE,
    pin: Annotated[list[str] | None, Option("--pin", metavar="NAME=FORMAT", help=_PIN)] = None,
    dim: Annotated[list[str] | None, Option("--dim", metavar="NAME=SIZE", help=DIM_HELP)] = None,
    inputs: Annotated[list[Path] | None, Option("--inputs", metavar="FILE.npz", help=INPUTS_HELP)] = None,
    verify: Annotated[
        bool, Option("--verify/--no-verify", help="Compare the result with the original on random inputs.")
    ] = True,
    allow_unverified: Annotated[
        bool,
        Option(
            "--allow-unverified",
            help="Write the result even if it cannot be compared with the original on this machine.",
        ),
    ] = False,
    measure: Annotated[
        bool, Option("--measure/--no-measure", help="Run both models in turns, and keep MODEL if OUT is not faster.")
    ] = True,
    tune: Annotated[float | None, Option("--tune", metavar="SECONDS", help=_TUNE)] = None,
    threads: Annotated[int, Option("--threads", metavar="N", help="Threads of the sessions that are measured.")] = 1,
    calibrate: Annotated[
        bool,
        Option("--calibrate/--no-calibrate", help="Plan with kernels timed on this machine, for up to 5 s."),
    ] = True,
    profile: Annotated[
        Path | None,
        Option("--profile", metavar="FILE", help="Plan with these kernel times, and time none."),
    ] = None,
    time_limit: Annotated[
        float | None,
        Option("--time-limit", metavar="S", help="Seconds for the planner; then the best plan found so far is used."),
    ] = None,
    max_growth: Annotated[
        float | None,
        Option("--max-growth", metavar="X", help="The size limit of all constants, relative to MODEL; by default 2.2."),
    ] = None,
    portable: Annotated[
        bool,
        Option(
            "--portable", help="Write a file for all machines: native kernels where they fit, else standard operators."
        ),
    ] = False,
    sessions: Annotated[Sessions, Option("--sessions", help=_SESSIONS)] = Sessions.BALANCED,
    least: Annotated[
        bool, Option("--least", help="Compute the minimum number of layout conversions and transposes over all plans.")
    ] = False,
    report: Annotated[
        Path | None, Option("--report", metavar="FILE", help="Write a full report as JSON; `-` for stdout.")
    ] = None,
    html: Annotated[Path | None, Option("--html", metavar="FILE", help=PAGE_HELP)] = None,
    model_explorer: Annotated[Path | None, Option("--model-explorer", metavar="FILE", help=NODE_DATA_HELP)] = None,
    strict: Strict = False,
    custom_ops: CustomOps = None,
    external_data: Annotated[
        str | None, Option("--external-data", metavar="NAME", help="Store weights in this file next to OUT.")
    ] = None,
    dump_ir: Annotated[list[str] | None, Option("--dump-ir", metavar="WHAT", help=_DUMP)] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Plan and verify, but write no model.")] = False,
    force: Force = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
) -> None:
    """Rewrite a model for a target.

    Both models are run in onnxruntime. A result whose outputs differ from those of the original is not written, nor is
    a result that cannot be compared. If no plan is estimated to be faster, OUT is a copy of MODEL.
    """
    if all(each is None for each in (output, report, html, model_explorer)) and not dry_run:
        raise UsageError("nothing to write", hint="add -o OUT, --report FILE or --dry-run")
    if time_limit is not None and not time_limit > 0:
        raise UsageError("not a time", where=f"--time-limit {time_limit:g}", hint="give a number above 0")
    if tune is not None and not 0 < tune < inf:
        raise UsageError("not a time", where=f"--tune {tune:g}", hint="give seconds above 0")
    if tune is not None and not measure:
        raise UsageError("tuning needs measurements", where="--tune", hint="leave out --no-measure")
    if max_growth is not None and not max_growth >= 1:
        raise UsageError("not a growth factor", where=f"--max-growth {max_growth:g}", hint="give 1 or more")
    pins, dims = assignments.parse_pins(pin or []), assignments.parse_dim_ranges(dim or [])

    from layoutopt import api
    from layoutopt.cli.files.dump import parse_dumps
    from layoutopt.cli.files.outputs import Outputs
    from layoutopt.cli.files.pages import PageOptions
    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.rendering.optimize import print_summary
    from layoutopt.cli.rendering.progress import ProgressLine
    from layoutopt.cli.rendering.warnings import repairs_of, warn, warn_of_repairs, warnings_of
    from layoutopt.cost.size_growth import MAX_GROWTH
    from layoutopt.driver.pipeline import pipeline_for
    from layoutopt.files import Overwrite
    from layoutopt.sample_inputs import read_inputs

    given = [read_inputs(path) for path in inputs or []]
    pages = PageOptions(html, model_explorer, target, runtime, dialect)
    outputs = Outputs(model, None if dry_run else output, report, external_data, pages.outputs, force=force)
    outputs.check()
    pipeline = pipeline_for(mode.value, target, runtime, dialect)
    watch = parse_dumps(dump_ir or [], pipeline, Overwrite((model, *(inputs or [])), output, force))
    with ProgressLine(is_silent=quiet or watch.uses_stderr) as progress:
        result = api.optimize(
            model,
            target,
            runtime=runtime,
            dialect=dialect,
            mode=mode.value,
            pins=pins,
            dims=dims,
            inputs=given,
            verify=verify,
            allow_unverified=allow_unverified,
            time_limit=time_limit,
            max_growth=MAX_GROWTH if max_growth is None else max_growth,
            sessions=sessions.value,
            count_moves=least,
            portable=portable,
            measure=measure,
            tune=tune,
            threads=threads,
            calibrate=calibrate,
            profile=profile,
            strict=strict,
            custom_ops=custom_ops or (),
            watch=pages.watching(watch),
            progress=progress,
            sizes_found=pages.sizes_found,
        )
        progress("writing")
        outputs.write(result)
    warn_of_repairs(repairs_of(result.report))
    for text in warnings_of(result.report):
        warn(text)
    if not quiet and not outputs.prints_report:
        with reporting_written_files(outputs.files):
            print_summary(result, outputs)
