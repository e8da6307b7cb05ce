"""The option `--quiet` of the commands that print a summary."""

from typing import Annotated, TypeAlias

from typer import Option

Quiet: TypeAlias = Annotated[bool, Option("--quiet", "-q", help="Print warnings and errors only.")]
