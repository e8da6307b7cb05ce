"""The option `--allow-tested` of the commands that write or check certificates."""

from typing import Annotated, TypeAlias

from typer import Option

_HELP = "Accept values of a certificate that are compared on random inputs and not proven."

AllowTested: TypeAlias = Annotated[bool, Option("--allow-tested", help=_HELP)]
