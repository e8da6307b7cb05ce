"""`layoutopt verify`."""

from pathlib import Path
from typing import Annotated

import typer


def verify(
    original: Annotated[Path, typer.Argument(metavar="A", help="The model to go by.")],
    rewritten: Annotated[Path, typer.Argument(metavar="B", help="The model to judge.")],
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", metavar="X", help="Largest accepted error; by default by element type.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", min=1, help="Each compares on two random inputs.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run two models on the same random inputs and compare: exit code 7 if they differ, 9 if that cannot be known.

    The error is max |a - b| / max |a| per output. Inputs and outputs that optimize pinned are compared as the same tensors.
    """
    if tolerance is not None and not tolerance >= 0:
        raise typer.BadParameter(f"--tolerance must be 0 or more, it is {tolerance:g}")

    from layoutopt.cli.comparison import compare, print_comparison

    comparison = compare(original, rewritten, tolerance, rounds)
    print_comparison(comparison, as_json)
    comparison.raise_for_status()
