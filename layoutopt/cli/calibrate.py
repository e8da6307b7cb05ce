"""`layoutopt calibrate`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from layoutopt.cli.options.force import Force

_STATE = (
    "Store measurements in this file, and continue with those that it contains. By default a file next to FILE.toml, "
    "removed at the end."
)


def calibrate(
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE.toml", help="The target file to write, for --target.")
    ] = Path("calibrated.toml"),
    quick: Annotated[bool, Option("--quick", help="Measure a third of the kernels, each once.")] = False,
    threads: Annotated[
        int, Option("--threads", metavar="N", min=1, help="Threads per session; 1 also pins the process to one CPU.")
    ] = 1,
    resume: Annotated[Path | None, Option("--resume", metavar="STATE", help=_STATE)] = None,
    json: Annotated[
        Path | None, Option("--json", metavar="FILE", help="Write all measurements as JSON; `-` for stdout.")
    ] = None,
    force: Force = False,
) -> None:
    """Measure this machine, and write a cost model for it.

    Times onnxruntime's kernels, layout conversions and the cost of a node, on a grid of shapes from common
    networks, and fits the parameters of this machine's target to two thirds of them. Prints how well the fit
    predicts the other third: median error and rank correlation. Takes one to two minutes on an idle machine,
    ten seconds with --quick.
    """
    from layoutopt.cli.rendering.calibrate import write_calibration

    write_calibration(output, resume, json, quick=quick, threads=threads, force=force)
