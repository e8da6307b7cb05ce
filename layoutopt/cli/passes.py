"""`layoutopt passes` and `layoutopt dialects`."""

from typing import Annotated

from typer import Option

_JSON = Annotated[bool, Option("--json", help="Print JSON.")]


def passes(as_json: _JSON = False) -> None:
    """List the passes in the order they run in."""
    from layoutopt.cli.rendering.passes import print_passes

    print_passes(as_json)


def dialects(as_json: _JSON = False) -> None:
    """List the ways to write formats in ONNX."""
    from layoutopt.cli.rendering.passes import print_dialects

    print_dialects(as_json)
