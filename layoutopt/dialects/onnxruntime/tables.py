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
    """A kernel of stock onnxruntime beyond ONNX. A test compares it with the installed onnxruntime.

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
