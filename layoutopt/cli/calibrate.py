"""`layoutopt calibrate`."""

import shlex
from pathlib import Path
from typing import Annotated

from typer import Option

from layoutopt.cli.exit_codes import CalibrationInterruptedError, UsageError
from layoutopt.cli.options.config_file import NAMES_OUTPUT
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.quiet import Quiet

_STATE = (
    "Store measurements in this file, and continue with those that it contains. By default a file next to FILE.toml, "
    "removed at the end."
)


def calibrate(
    output: Annotated[
        Path,
        Option("--output", "-o", metavar="FILE.toml", help="The target file to write, for --target."),
        NAMES_OUTPUT,
    ] = Path("calibrated.toml"),
    quick: Annotated[bool, Option("--quick", help="Measure a third of the kernels, each once.")] = False,
    threads: Annotated[
        int, Option("--threads", metavar="N", min=1, help="Threads per session; 1 also pins the process to one CPU.")
    ] = 1,
    resume: Annotated[Path | None, Option("--resume", metavar="STATE", help=_STATE), NAMES_OUTPUT] = None,
    json: JsonFile = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Measure this machine, and write a cost model for it.

    Times onnxruntime's kernels, layout conversions and the cost of a node, on a grid of shapes from common
    networks, and fits the parameters of this machine's target to two thirds of them. Prints how well the fit
    predicts the other third: median error and rank correlation. Takes one to two minutes on an idle machine,
    ten seconds with --quick.
    """
    if output.suffix != ".toml":
        hint = "use a name that ends in .toml, as --target requires"
        raise UsageError("not a target file", where=f"-o {output}", hint=hint)

    from layoutopt.bench.caveats import MIN_CPU_SHARE
    from layoutopt.calibrate import calibrate as run_calibration
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.rendering.calibrate import print_calibration
    from layoutopt.cli.rendering.progress import ProgressLine
    from layoutopt.cli.rendering.warnings import warn
    from layoutopt.files import FileKind, Overwrite, is_same_file, write_text

    state = resume or output.with_suffix(".state")
    if is_same_file(state, output):
        raise UsageError("that is the target file", where=f"--resume {resume}", hint="name another file")
    overwrite = Overwrite(force=force, command="calibrate")
    overwrite.check(output, FileKind.TARGET)
    (overwrite if resume is None else Overwrite(command="calibrate")).check(state, FileKind.MEASUREMENTS)
    record = JsonRecord("calibrate", json, others=[output, state], kind="another file of the calibration", force=force)
    if resume is None:
        state.unlink(missing_ok=True)  # left over from an interrupted run
    with ProgressLine(is_silent=quiet) as progress:
        try:
            report = run_calibration(state, quick=quick, threads=threads, progress=progress).report
        except KeyboardInterrupt:
            hint = f"continue with {_command_to_resume(output, state, quick, threads)}"
            raise CalibrationInterruptedError("interrupted; the measurements are stored", hint=hint) from None
    write_text(output, report.profile, FileKind.TARGET, overwrite)
    record.write(report)
    if threads == 1 and report.cpu_share < MIN_CPU_SHARE:
        what = f"the machine is busy: the process had its CPU for {report.cpu_share:.0%} of the time"
        warn(f"{what}; calibrate again when it is idle")
    if resume is None:
        state.unlink(missing_ok=True)
    if not record.is_printed and not quiet:
        with reporting_written_files([output, *record.files]):
            print_calibration(report, output)


def _command_to_resume(output: Path, state: Path, quick: bool, threads: int) -> str:
    fields = ["layoutopt", "calibrate", "-o", str(output), *(["--quick"] if quick else [])]
    fields += ["--threads", str(threads)] if threads != 1 else []
    return shlex.join([*fields, "--resume", str(state)])
