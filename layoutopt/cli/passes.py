"""`layoutopt passes`."""

from typing import Annotated

from typer import Option


def passes(as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False) -> None:
    """List the passes in the order in which they run."""
    from layoutopt.cli.rendering.passes import print_passes

    print_passes(as_json)
