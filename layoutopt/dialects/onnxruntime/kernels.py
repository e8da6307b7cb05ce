"""The kernels of stock onnxruntime beyond ONNX: the table `kernels.toml` declares the operands and limits of each kernel.

`layoutopt.report.compatibility` checks the table against the installed onnxruntime.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

_TABLE = Path(__file__).with_suffix(".toml")


class Kernel(BaseModel):
    """One row of the table.

    Attributes:
        op: the op type.
        domain: its domain, at version 1.
        inputs: an element type per input, or a letter that `types` binds.
        types: the bindings that have a kernel.
        attributes: the attributes that the kernel requires.
        limits: further restrictions, such as ranks and attributes, in words.
        since: the oldest onnxruntime that has the kernel.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: str
    domain: str
    inputs: tuple[str, ...]
    types: tuple[dict[str, str], ...]
    attributes: dict[str, Any] = {}
    limits: tuple[str, ...] = ()
    since: str

    def dtypes(self, binding: Mapping[str, str]) -> tuple[str, ...]:
        """The element types of the inputs under one of the bindings."""
        return tuple(binding.get(each, each) for each in self.inputs)


@cache
def kernels() -> tuple[Kernel, ...]:
    """All rows, in the order of the table."""
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["kernel"]
    return tuple(Kernel.model_validate(row) for row in rows)
