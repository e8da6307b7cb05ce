"""`layoutopt calibrate`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from layoutopt.cli.options.force import Force

_STATE = (
    "Keep measurements in this file, and go on with those that are in it; by default beside FILE, until it is written."
)


def calibrate(
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE.toml", help="The target file to write, for --target.")
    ] = Path("calibrated.toml"),
    quick: Annotated[bool, Option("--quick", help="A third of the kernels, each measured once.")] = False,
    threads: Annotated[int, Option("--threads", metavar="N", min=1, help="With 1, the process stays on one CPU.")] = 1,
    resume: Annotated[Path | None, Option("--resume", metavar="STATE", help=_STATE)] = None,
    json: Annotated[
        Path | None, Option("--json", metavar="FILE", help="All that is known, as JSON; `-` for stdout.")
    ] = None,
    force: Force = False,
) -> None:
    """Measure this machine: a cost model from the kernels of the installed onnxruntime.

    Times kernels, casts and what a node costs, on a grid of the shapes that networks have, and fits the
    numbers of this machine's target to two thirds of them. Prints how well the others are predicted: median
    error, and rank correlation. Takes one to two minutes, ten seconds with --quick, on an idle machine.
    """
    from layoutopt.cli.rendering.calibrate import write_calibration

    write_calibration(output, resume, json, quick=quick, threads=threads, force=force)
