"""`layoutopt optimize`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Mode(StrEnum):
    """What the model is for."""

    INFERENCE = "inference"
    TRAINING = "training"


def optimize(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX file.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT", help="The file to write; may be MODEL itself.")
    ] = None,
    target: Annotated[
        str,
        typer.Option("--target", "-t", metavar="T", help="The hardware: see `layoutopt targets`; or a file T.toml."),
    ] = "cpu",
    dialect: Annotated[
        str | None,
        typer.Option("--dialect", metavar="D", help="How to write formats in ONNX: see `layoutopt dialects`."),
    ] = None,
    mode: Annotated[
        Mode, typer.Option("--mode", help="In training, weights and their casts stay in the graph.")
    ] = Mode.INFERENCE,
    pin: Annotated[
        list[str] | None,
        typer.Option("--pin", metavar="NAME=FORMAT", help="The format a tensor must have; can be repeated."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare with the original on random inputs.")
    ] = True,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", metavar="S", help="Seconds for the planner; then the best plan so far."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write all that is known as JSON; `-` for stdout.")
    ] = None,
    external_data: Annotated[
        str | None,
        typer.Option("--external-data", metavar="NAME", help="Put weights into this file, next to OUT."),
    ] = None,
    dump_ir: Annotated[
        list[str] | None,
        typer.Option(
            "--dump-ir", metavar="WHAT", help="Show the graph before:PASS, after:PASS or all, on stderr or in all=FOLDER."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write no model.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing unless something is wrong.")] = False,
) -> None:
    """Rewrite a model for a target, checked against the original."""
    if output is None and report is None and not dry_run:
        raise typer.BadParameter("say where to write: -o OUT; or --report FILE or --dry-run")
    if time_limit is not None and not time_limit > 0:
        raise typer.BadParameter(f"--time-limit must be above 0, it is {time_limit:g}")
    pins = _pins(pin or [])

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
                verify=verify,
                time_limit=time_limit,
                watch=watch,
                progress=steps,
            )
            steps("writing")
            outputs.write(result)
        if not quiet and not outputs.prints_report:
            summarize(result, outputs)


def _pins(requests: list[str]) -> dict[str, str]:
    """NAME=FORMAT; names may hold equals signs, formats do not."""
    pins: dict[str, str] = {}
    for request in requests:
        name, _, format = request.rpartition("=")
        if not name or not format:
            raise typer.BadParameter(f"--pin {request}: not of the form NAME=FORMAT")
        if pins.setdefault(name, format) != format:
            raise typer.BadParameter(f"--pin {request}: {name} is pinned to {pins[name]} too")
    return pins
