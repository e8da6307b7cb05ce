"""The option `--json` of every command; `layoutopt.cli.arguments` gives it the value `-` where no file follows."""

from pathlib import Path
from typing import Annotated, TypeAlias

from typer import Option

from layoutopt.cli.options.config_file import NAMES_OUTPUT

_HELP = "Print the results as JSON, or write them to FILE.json."

JsonFile: TypeAlias = Annotated[Path | None, Option("--json", metavar="[FILE.json]", help=_HELP), NAMES_OUTPUT]
