"""The properties of an op by which kernels of a target are selected and priced: family, variant, operand roles, flops."""

from collections.abc import Mapping
from typing import ClassVar

from layoutopt.ir.types import Op, Slot
from layoutopt.ops.signatures import X, Y, estimated_volume


class KernelProfile:
    """The properties of an op that cost models read; every layout rule has them.

    Attributes:
        family: the name under which targets list kernels for these ops.
    """

    family: ClassVar[str]

    def roles(self, op: Op) -> Mapping[str, Slot]:
        """The operands that targets name: activation x, weight w, result y."""
        del op
        return {"x": X, "w": Slot("in", 1), "y": Y}

    def variant(self, op: Op) -> str:
        """The kind within the family that kernels distinguish, for example a depthwise convolution; empty by default."""
        del op
        return ""

    def flops(self, op: Op) -> float:
        """The number of arithmetic operations, a multiply-add being two; one per element of the results by default."""
        shapes = [value.shape for value in op.outputs if value is not None and value.shape is not None]
        return float(sum(map(estimated_volume, shapes)))


__all__ = ["KernelProfile"]
