"""`layoutopt optimize`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import assignments
from layoutopt.cli.options.assignments import DIM_HELP, INPUTS_HELP
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.strict import Strict
from layoutopt.cost.size_growth import MAX_GROWTH


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
    inputs: Annotated[list[Path] | None, Option("--inputs", metavar="FILE.npz", help=INPUTS_HELP)] = None,
    verify: Annotated[bool, Option("--verify/--no-verify", help="Compare with the original on random inputs.")] = True,
    allow_unverified: Annotated[
        bool,
        Option(
            "--allow-unverified", help="Write a result that cannot be compared, because the original cannot be run."
        ),
    ] = False,
    time_limit: Annotated[
        float | None,
        Option("--time-limit", metavar="S", help="Seconds for the planner; then the best plan so far."),
    ] = None,
    max_growth: Annotated[
        float,
        Option(
            "--max-growth", metavar="X", help="How many times as large all constants together may become, 1 MiB aside."
        ),
    ] = MAX_GROWTH,
    least: Annotated[
        bool, Option("--least", help="Say how few casts and transposes any plan of these formats has.")
    ] = False,
    report: Annotated[
        Path | None, Option("--report", metavar="FILE", help="All that is known, as JSON; `-` for stdout.")
    ] = None,
    strict: Strict = False,
    external_data: Annotated[
        str | None, Option("--external-data", metavar="NAME", help="Put weights into this file next to OUT.")
    ] = None,
    dump_ir: Annotated[list[str] | None, Option("--dump-ir", metavar="WHAT", help=_DUMP)] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Write no model.")] = False,
    force: Force = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
) -> None:
    """Rewrite a model for a target.

    The result is compared with the original in onnxruntime; one that computes something else is not written, nor is one
    that cannot be compared.
    A model that would not get faster is left alone, and OUT is a copy of it.
    """
    if output is None and report is None and not dry_run:
        raise UsageError("nothing to write", hint="say -o OUT; or --report FILE or --dry-run")
    if time_limit is not None and not time_limit > 0:
        raise UsageError("no seconds", where=f"--time-limit {time_limit:g}", hint="give a number above 0")
    if not max_growth >= 1:
        raise UsageError("no growth to allow", where=f"--max-growth {max_growth:g}", hint="give 1 or more")
    pins, dims = assignments.pins(pin or []), assignments.dims(dim or [])

    from layoutopt import api
    from layoutopt.cli.files.after_writing import after_writing
    from layoutopt.cli.files.dump import dumps
    from layoutopt.cli.files.outputs import Outputs
    from layoutopt.cli.rendering.optimize import summarize
    from layoutopt.cli.rendering.progress import Steps
    from layoutopt.cli.rendering.warnings import repairs_of, warn, warn_of_repairs, warnings_of
    from layoutopt.files import Overwrite
    from layoutopt.sample_inputs import read_inputs

    given = [read_inputs(path) for path in inputs or []]
    outputs = Outputs(model, None if dry_run else output, report, external_data, force=force)
    outputs.check()
    watch = dumps(dump_ir or [], mode.value, Overwrite((model, *(inputs or [])), output, force))
    with Steps(is_silent=quiet or watch.uses_stderr) as steps:
        result = api.optimize(
            model,
            target,
            dialect=dialect,
            mode=mode.value,
            pins=pins,
            dims=dims,
            inputs=given,
            verify=verify,
            allow_unverified=allow_unverified,
            time_limit=time_limit,
            max_growth=max_growth,
            count_moves=least,
            strict=strict,
            watch=watch,
            progress=steps,
        )
        steps("writing")
        outputs.write(result)
    warn_of_repairs(repairs_of(result.report))
    for text in warnings_of(result.report):
        warn(text)
    if not quiet and not outputs.prints_report:
        with after_writing(outputs.files):
            summarize(result, outputs)
