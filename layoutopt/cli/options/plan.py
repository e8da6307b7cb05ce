"""The options of a plan that several commands have: runtime, dialect, pins and sizes of symbolic dimensions."""

from typing import Annotated, TypeAlias

from typer import Option

from layoutopt.cli.options.assignments import DIM_HELP

_RUNTIME = "The program that runs the result: see `layoutopt runtimes`."
_PIN = "A format that a tensor must have, with the letters that `inspect` prints. Can be repeated."

Runtime: TypeAlias = Annotated[str | None, Option("--runtime", metavar="R", help=_RUNTIME)]
Dialect: TypeAlias = Annotated[
    str | None, Option("--dialect", metavar="D", help="The form of the result: see `layoutopt dialects`.")
]
Pins: TypeAlias = Annotated[list[str] | None, Option("--pin", metavar="NAME=FORMAT", help=_PIN)]
Dims: TypeAlias = Annotated[list[str] | None, Option("--dim", metavar="NAME=SIZE", help=DIM_HELP)]
