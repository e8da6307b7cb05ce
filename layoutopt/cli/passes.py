"""`layoutopt passes` and `layoutopt dialects`."""

from typing import Annotated

import typer

_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def passes(as_json: _JSON = False) -> None:
    """List the passes in the order in which they run."""
    from layoutopt.cli.pipeline import print_passes

    print_passes(as_json)


def dialects(as_json: _JSON = False) -> None:
    """List the ways in which formats can be written in ONNX."""
    from layoutopt.cli.pipeline import print_dialects

    print_dialects(as_json)
