"""Formats that a kernel cannot distinguish: it computes the same bytes from operands in either of them."""

from abc import ABC, abstractmethod

from layoutopt.ir.types import Op
from layoutopt.ops.signatures import OperandFormats


class KernelFormats(ABC):
    """An op whose kernels accept more formats than those that targets list."""

    @abstractmethod
    def kernel_formats(self, op: Op, formats: OperandFormats) -> OperandFormats:
        """The formats with each one replaced by the equivalent format that targets list, if there is one."""


__all__ = ["KernelFormats"]
