"""`layoutopt calibrate`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options.config_file import NAMES_OUTPUT
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.quiet import Quiet


def calibrate(
    output: Annotated[
        Path,
        Option("--output", "-o", metavar="FILE.toml", help="The target file to write, for --target."),
        NAMES_OUTPUT,
    ] = Path("calibrated.toml"),
    quick: Annotated[bool, Option("--quick", help="Measure a third of the kernels, with fewer runs.")] = False,
    threads: Annotated[
        int, Option("--threads", metavar="N", min=1, help="Threads per session; 1 also pins the process to one CPU.")
    ] = 1,
    json: JsonFile = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Measure this machine, and write a cost model for it.

    Times onnxruntime's kernels, layout conversions and the cost of a node, on a grid of shapes from common
    networks, and fits the parameters of this machine's target to two thirds of them. Prints how well the fit
    predicts the other third: median error and rank correlation. Takes less than a minute,
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
    from layoutopt.files import FileKind, Overwrite, write_text

    overwrite = Overwrite(force=force, command="calibrate")
    overwrite.check(output, FileKind.TARGET)
    record = JsonRecord("calibrate", json, others=[output], kind="the target file", force=force)
    with ProgressLine(is_silent=quiet) as progress:
        report = run_calibration(quick=quick, threads=threads, progress=progress).report
    write_text(output, report.profile, FileKind.TARGET, overwrite)
    record.write(report)
    if threads == 1 and report.cpu_share < MIN_CPU_SHARE:
        what = f"the machine is busy: the process had its CPU for {report.cpu_share:.0%} of the time"
        warn(f"{what}; calibrate again when it is idle")
    if not record.is_printed and not quiet:
        with reporting_written_files([output, *record.files]):
            print_calibration(report, output)
