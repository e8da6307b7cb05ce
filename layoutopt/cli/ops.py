"""`layoutopt ops`."""

from typing import Annotated

from typer import Argument, Option


def ops(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="An operator like Conv, or a part of a name; case does not matter.")
    ] = None,
    family: Annotated[
        str | None, Option("--family", metavar="F", help="List the operators of one family only, like pooling.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    as_markdown: Annotated[bool, Option("--markdown", help="Print the page docs/operators.md.")] = False,
) -> None:
    """List operators: the formats that they may have, what becomes of lanes, and why some stay canonical."""
    from layoutopt.cli.rendering.ops import print_operators

    print_operators(name, family, as_json=as_json, as_markdown=as_markdown)
