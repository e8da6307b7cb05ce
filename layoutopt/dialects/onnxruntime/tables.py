"""What onnxruntime's kernels are and take: the kernels beyond ONNX, and measured costs, from the TOML files beside this one."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_RowT = TypeVar("_RowT", bound=_Row)


def _rows(file: str, key: str, kind: type[_RowT]) -> tuple[_RowT, ...]:
    """The rows of a table, in order."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    return tuple(map(kind.model_validate, tomllib.loads(text)[key]))


class Kernel(_Row):
    """A kernel of stock onnxruntime beyond ONNX. `layoutopt.report.compatibility` checks it against the installed onnxruntime.

    Attributes:
        op: the op type.
        domain: its domain, at version 1.
        inputs: an element type per input, or a letter that `types` binds.
        types: the bindings that have a kernel.
        attributes: the attributes that the kernel requires.
        limits: further restrictions, such as ranks and attributes, in words.
        since: the oldest onnxruntime that has the kernel.
    """

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
    """All kernels, in the order of the table."""
    return _rows("kernels.toml", "kernel", Kernel)


class MeasuredProduct(_Row):
    """A measured product of `rows` x `inner` elements and a constant of `inner` x `outer`.

    onnxruntime prepacks a float32 constant of rank 2 that a MatMul or Gemm reads: each session copies the constant into the
    order of the kernel, in new memory. It does not prepack a constant of rank 3 or more (`GemmPackBFp32`): every run then
    copies the constant panel by panel, and a session uses external data where the file is mapped.

    Attributes:
        rows: the number of rows of the other operand, all axes but the last one together.
        inner: the extent that is summed over.
        outer: the number of columns.
        ratio: the time of a run without prepacking, divided by the time with prepacking.
    """

    rows: int
    inner: int
    outer: int
    ratio: float


@cache
def measured_products() -> tuple[MeasuredProduct, ...]:
    """All measured products, in the order of the table."""
    return _rows("prepacking.toml", "product", MeasuredProduct)


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


class KernelCost(_Row):
    """The measured cost of a kernel around quantised convolutions.

    Attributes:
        op: the op type.
        call: seconds of one run, however few elements the op has.
        element: seconds per element of the result.
        row: seconds per broadcast row.
    """

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
    return {each.op: each for each in _rows("integer_costs.toml", "kernel", KernelCost)}
