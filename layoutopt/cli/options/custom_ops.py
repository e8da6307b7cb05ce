"""`--custom-ops`, which the commands that run models have in common."""

from pathlib import Path
from typing import Annotated, TypeAlias

from typer import Option

CustomOps: TypeAlias = Annotated[
    list[Path] | None,
    Option(
        "--custom-ops",
        metavar="LIB.so",
        help="A library with kernels of custom operators for onnxruntime; can be repeated.",
    ),
]
