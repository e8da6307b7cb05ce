"""onnxruntime's kernels beyond ONNX, and measured costs of its kernels on integers: the TOML files beside this one."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict


def _rows(file: str) -> list[dict[str, Any]]:
    """The rows of a table, in order."""
    rows: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))["kernel"]
    return rows


@cache
def kernels() -> frozenset[tuple[str, str]]:
    """The kernels that the dialect may write, as domain and op type; a test checks them against the installed onnxruntime."""
    return frozenset((row["domain"], row["op"]) for row in _rows("kernels.toml"))


class KernelCost(BaseModel):
    """The measured cost of a kernel around quantised convolutions.

    Attributes:
        op: the op type.
        call: seconds of one run, however few elements the op has.
        element: seconds per element of the result.
        row: seconds per broadcast row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: str
    call: float
    element: float
    row: float

    def seconds(self, elements: float = 0, rows: float = 0) -> float:
        """The estimated time of one run.

        Args:
            elements: the elements of the result.
            rows: the broadcast rows; 0 if nothing is broadcast.
        """
        return self.call + self.element * elements + self.row * rows


@cache
def kernel_costs() -> dict[str, KernelCost]:
    """The costs by op type."""
    return {row["op"]: KernelCost(**row) for row in _rows("integer_costs.toml")}
