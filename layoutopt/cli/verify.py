"""`layoutopt verify`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import assignments
from layoutopt.cli.options.assignments import DIM_HELP, INPUTS_HELP
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.strict import Strict
from layoutopt.cli.rendering.warnings import warn_of_repairs


def verify(
    original: Annotated[Path, Argument(metavar="A", help="The model to go by.")],
    rewritten: Annotated[Path, Argument(metavar="B", help="The model to judge.")],
    tolerance: Annotated[
        float | None,
        Option("--tolerance", metavar="X", help="Largest accepted error; by default it depends on the dtype."),
    ] = None,
    rounds: Annotated[
        int, Option("--rounds", metavar="N", min=1, help="How often; each time on two random inputs.")
    ] = 1,
    dim: Annotated[list[str] | None, Option("--dim", metavar="NAME=SIZE", help=DIM_HELP)] = None,
    inputs: Annotated[list[Path] | None, Option("--inputs", metavar="FILE.npz", help=INPUTS_HELP)] = None,
    strict: Strict = False,
    custom_ops: CustomOps = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare what two models compute.

    Both are run in onnxruntime on the same random inputs, at three sizes where dimensions are symbolic. The error
    of an output is max |a - b| / max |a|.
    What optimize has pinned in B to another format is compared as the tensor that it is. The exit code is 7
    if the models differ, and 9 if A cannot be run, so that nothing is known.
    """
    if tolerance is not None and not tolerance >= 0:
        raise UsageError("not a tolerance", where=f"--tolerance {tolerance:g}", hint="give 0 or more")

    from layoutopt.cli.rendering.verify import compare, print_comparison
    from layoutopt.runtime.custom_ops import kernel_libraries
    from layoutopt.sample_inputs import read_inputs

    given = [read_inputs(path) for path in inputs or []]
    dims = assignments.dims(dim or [])
    with kernel_libraries(custom_ops or ()):
        comparison = compare(original, rewritten, tolerance, rounds, dims, given, strict=strict)
    for path, repairs in comparison.repairs.items():
        warn_of_repairs(repairs, str(path))
    print_comparison(comparison, as_json)
    comparison.raise_for_status()
