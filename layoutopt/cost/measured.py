"""The interface of measured prices: times of kernels on one machine, in place of a cost model's estimates."""

from collections.abc import Mapping
from typing import Protocol

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Slot, TensorType


class MeasuredPrices(Protocol):
    """Times of kernels. A kernel that was not timed gets its estimate, which may be corrected by similar kernels."""

    def kernel(self, op: Op, formats: Mapping[Slot, Format], estimate: float) -> float:
        """Seconds of the kernel for an op on operands in given formats.

        Args:
            op: the op.
            formats: the format of every operand of known rank.
            estimate: the cost model's own price, in seconds.
        """

    def conversion(self, type: TensorType, src: Format, dst: Format, estimate: float) -> float:
        """Seconds of a conversion that moves bytes.

        Args:
            type: of the tensor.
            src: its format.
            dst: the format of the result.
            estimate: the cost model's own price, in seconds.
        """


__all__ = ["MeasuredPrices"]
