"""`layoutopt optimize`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli import assignments
from layoutopt.cli.assignments import DIM_HELP
from layoutopt.cli.exit_codes import UsageError


class Mode(StrEnum):
    """What the model is for."""

    INFERENCE = "inference"
    TRAINING = "training"


_DUMP = "Show the graph before:PASS, after:PASS or all; on stderr, or in files: all=FOLDER."


def optimize(
    model: Annotated[Path, Argument(metavar="MODEL", help="The ONNX file.")],
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="OUT", help="The file to write; may be MODEL itself.")
    ] = None,
    target: Annotated[
        str, Option("--target", "-t", metavar="T", help="The hardware: see `targets`; or a file T.toml.")
    ] = "cpu",
    dialect: Annotated[
        str | None, Option("--dialect", metavar="D", help="How formats are written in ONNX: see `dialects`.")
    ] = None,
    mode: Annotated[
        Mode, Option("--mode", help="In training, weights and their casts stay in the graph.")
    ] = Mode.INFERENCE,
    pin: Annotated[
        list[str] | None,
        Option("--pin", metavar="NAME=FORMAT", help="The format a tensor must have; can be repeated."),
    ] = None,
    dim: Annotated[list[str] | None, Option("--dim", metavar="NAME=SIZE", help=DIM_HELP)] = None,
    verify: Annotated[bool, Option("--verify/--no-verify", help="Compare with the original on random inputs.")] = True,
    time_limit: Annotated[
        float | None,
        Option("--time-limit", metavar="S", help="Seconds for the planner; then the best plan so far."),
    ] = None,
    least: Annotated[
        bool, Option("--least", help="Say how few casts and transposes any plan of these formats has.")
    ] = False,
    report: Annotated[
        Path | None, Option("--report", metavar="FILE", help="All that is known, as JSON; `-` for stdout.")
    ] = None,
    external_data: Annotated[
        str | None, Option("--external-data", metavar="NAME", help="Put weights into this file next to OUT.")
    ] = None,
    dump_ir: Annotated[list[str] | None, Option("--dump-ir", metavar="WHAT", help=_DUMP)] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Write no model.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Say nothing unless something is wrong.")] = False,
) -> None:
    """Rewrite a model for a target.

    The result is compared with the original in onnxruntime; one that computes something else is not written.
    A model that would not get faster is left alone, and OUT is a copy of it.
    """
    if output is None and report is None and not dry_run:
        raise UsageError("nothing to write", hint="say -o OUT; or --report FILE or --dry-run")
    if time_limit is not None and not time_limit > 0:
        raise UsageError("no seconds", where=f"--time-limit {time_limit:g}", hint="give a number above 0")
    pins, dims = assignments.pins(pin or []), assignments.dims(dim or [])

    from layoutopt import api
    from layoutopt.cli.dump import dumps
    from layoutopt.cli.outputs import Outputs
    from layoutopt.cli.progress import Steps
    from layoutopt.cli.summary import summarize

    watch = dumps(dump_ir or [], mode.value)
    with Outputs(model, None if dry_run else output, report, external_data) as outputs:
        with Steps(is_silent=quiet or watch.uses_stderr) as steps:
            result = api.optimize(
                model,
                target,
                dialect=dialect,
                mode=mode.value,
                pins=pins,
                dims=dims,
                verify=verify,
                time_limit=time_limit,
                count_moves=least,
                watch=watch,
                progress=steps,
            )
            steps("writing")
            outputs.write(result)
        if not quiet and not outputs.prints_report:
            summarize(result, outputs)
