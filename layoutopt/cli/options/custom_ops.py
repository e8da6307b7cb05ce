"""`--custom-ops`, which the commands that run models have in common."""

from pathlib import Path
from typing import Annotated, TypeAlias

from typer import Option

from layoutopt.cli.options.config_file import LOADS_CODE

CustomOps: TypeAlias = Annotated[
    list[Path] | None,
    Option(
        "--custom-ops",
        metavar="LIB.so",
        help="A library with kernels of custom operators for onnxruntime; can be repeated.",
    ),
    LOADS_CODE,
]
