"""The cost of products whose constant onnxruntime does not prepack, from the measured ratios in `prepacking.toml`.

onnxruntime prepacks a float32 constant of rank 2 that a MatMul or Gemm reads: each session copies the constant into the order
of the kernel, in new memory. It does not prepack a constant of rank 3 or more (`GemmPackBFp32`): every run then copies the
constant panel by panel, and a session uses external data where the file is mapped.
"""

import tomllib
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_TABLE = Path(__file__).with_suffix(".toml")


class MeasuredProduct(BaseModel):
    """A measured product of `rows` x `inner` elements and a constant of `inner` x `outer`.

    Attributes:
        rows: the number of rows of the other operand, all axes but the last one together.
        inner: the extent that is summed over.
        outer: the number of columns.
        ratio: the time of a run without prepacking, divided by the time with prepacking.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    inner: int
    outer: int
    ratio: float


@cache
def measured_products() -> tuple[MeasuredProduct, ...]:
    """All measured products, in the order of the table."""
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["product"]
    return tuple(MeasuredProduct.model_validate(row) for row in rows)


def run_ratio(rows: int, inner: int, outer: int) -> float:
    """The estimated time of a run without prepacking, divided by the time with prepacking.

    Args:
        rows: the number of rows of the other operand.
        inner: the extent that is summed over.
        outer: the number of columns.

    Returns:
        The largest of the measured ratios for the next smaller number of rows and the two constants that are next in size.
    """
    measured = max(each.rows for each in measured_products() if each.rows <= rows)
    ratios = {each.inner * each.outer: each.ratio for each in measured_products() if each.rows == measured}
    size = inner * outer
    smaller = max((each for each in ratios if each <= size), default=min(ratios))
    larger = min((each for each in ratios if each >= size), default=max(ratios))
    return max(ratios[smaller], ratios[larger])


__all__ = ["MeasuredProduct", "measured_products", "run_ratio"]
