"""`layoutopt runtimes`."""

from typing import Annotated

from typer import Option


def runtimes(as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False) -> None:
    """List the runtimes that a model can be written for."""
    from layoutopt.cli.rendering.runtimes import print_runtimes

    print_runtimes(as_json)
