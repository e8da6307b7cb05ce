"""`layoutopt dialects`."""

from typing import Annotated

from typer import Option


def dialects(as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False) -> None:
    """List the forms in which a plan is written as ONNX."""
    from layoutopt.cli.rendering.dialects import print_dialects

    print_dialects(as_json)
