"""`layoutopt ops`."""

from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile


def ops(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="An operator such as Conv, or part of a name, in any case.")
    ] = None,
    family: Annotated[
        str | None, Option("--family", metavar="F", help="List the operators of one family only, such as pooling.")
    ] = None,
    json: JsonFile = None,
    force: Force = False,
) -> None:
    """List operators, their formats and their padding.

    For an operator without a layout rule, prints the reason.
    """
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.rendering.ops import print_operators

    print_operators(name, family, json=JsonRecord("ops", json, force=force))
