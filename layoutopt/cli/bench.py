"""`layoutopt bench`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import assignments
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force


class Runtime(StrEnum):
    """What runs the models."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"


_MODELS = "ONNX files, called A, B ... here; the others are held against A."
_RUNTIME = "onnxruntime or openvino; can be repeated, then every model is run in each that can."
_INPUTS = "Values of inputs, one array for each, from numpy.savez. Inputs that are not in the file are random."
_DIM = "The extent of a symbolic dimension, or of INPUT[AXIS]; can be repeated."


def bench(
    models: Annotated[list[Path], Argument(metavar="MODEL", help=_MODELS)],
    threads: Annotated[int, Option("--threads", metavar="N", min=1, help="With 1, the process stays on one CPU.")] = 1,
    runs: Annotated[
        int | None, Option("--runs", metavar="N", min=2, help="How many rounds; by default as many as fit.")
    ] = None,
    seconds: Annotated[
        float, Option("--seconds", metavar="S", help="For the timed rounds, of which there are at least 12.")
    ] = 10.0,
    warm_up: Annotated[
        int, Option("--warm-up", metavar="N", min=1, help="Rounds with new sessions that do not count.")
    ] = 2,
    dim: Annotated[list[str] | None, Option("--dim", metavar="NAME=VALUE", help=_DIM)] = None,
    inputs: Annotated[Path | None, Option("--inputs", metavar="FILE.npz", help=_INPUTS)] = None,
    seed: Annotated[int, Option("--seed", metavar="N", min=0, help="Of the random inputs.")] = 0,
    runtime: Annotated[list[Runtime] | None, Option("--runtime", metavar="R", help=_RUNTIME)] = None,
    profile: Annotated[bool, Option("--profile", help="Show what each kind of op takes, side by side.")] = False,
    json: Annotated[
        Path | None, Option("--json", metavar="FILE", help="All that is known, as JSON; `-` for stdout.")
    ] = None,
    custom_ops: CustomOps = None,
    force: Force = False,
) -> None:
    """Time models against each other.

    All run in this process, in turns: A B, B A, A B ... on the same random inputs, in onnxruntime at its
    defaults. A speed-up is the median of A's time over B's within each round, with the quartiles of the
    rounds, and the confidence interval from six blocks of rounds with new sessions each. Also measured:
    creating a session, peak memory, and the share of the kernels' time that only moves data, Transpose and
    Reorder nodes apart.
    """
    if not 0 < seconds < float("inf"):
        raise UsageError("not a time", where=f"--seconds {seconds:g}", hint="give a number above 0")
    dims = assignments.extents(dim or [])

    from layoutopt.cli.rendering.bench import time_models
    from layoutopt.runtime.custom_ops import kernel_libraries

    with kernel_libraries(custom_ops or ()):
        time_models(
            models,
            json,
            with_ops=profile,
            force=force,
            threads=threads,
            runs=runs,
            seconds=seconds,
            warm_up=warm_up,
            seed=seed,
            dims=dims,
            inputs=inputs,
            runtimes=list(dict.fromkeys(each.value for each in runtime or [Runtime.ONNXRUNTIME])),
        )
