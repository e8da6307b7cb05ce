"""The option `--strict` of the commands that read models."""

from typing import Annotated, TypeAlias

from typer import Option

Strict: TypeAlias = Annotated[
    bool, Option("--strict", help="Reject a model with a fault that onnxruntime tolerates, instead of repairing it.")
]
