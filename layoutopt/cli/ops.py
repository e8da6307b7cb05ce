"""`layoutopt ops`."""

from typing import Annotated

from typer import Argument, Option


def ops(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="An operator such as Conv, or part of a name, in any case.")
    ] = None,
    family: Annotated[
        str | None, Option("--family", metavar="F", help="List the operators of one family only, such as pooling.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    as_markdown: Annotated[bool, Option("--markdown", help="Print the page docs/operators.md, as Markdown.")] = False,
) -> None:
    """List operators, their formats and their padding.

    For an operator without a layout rule, prints the reason.
    """
    from layoutopt.cli.rendering.ops import print_operators

    print_operators(name, family, as_json=as_json, as_markdown=as_markdown)
