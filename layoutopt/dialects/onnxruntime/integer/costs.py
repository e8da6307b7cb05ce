"""Measured costs of onnxruntime's kernels around quantised convolutions: the table `costs.toml`."""

import tomllib
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_TABLE = Path(__file__).with_suffix(".toml")


class KernelCost(BaseModel):
    """One row of the table.

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
    """All rows, by op type."""
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["kernel"]
    return {each.op: each for each in map(KernelCost.model_validate, rows)}
