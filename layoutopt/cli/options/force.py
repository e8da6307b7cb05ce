"""The option `--force` of every command that writes files."""

from typing import Annotated, TypeAlias

from typer import Option

_HELP = "Replace existing files of any kind, and weights that other models in the folder use."

Force: TypeAlias = Annotated[bool, Option("--force", help=_HELP)]
