"""What a cost model is: a judge of what is wise on one hardware. Its unit is the second.

A cost model never decides whether something is legal; it prices what the layout rules list. It may price anything: a
signature that no kernel has costs what its emulation costs, not infinity.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats


@runtime_checkable
class CostModel(Protocol):
    """Prices ops and conversions on one target."""

    @property
    def name(self) -> str:
        """The target's name, `gpu-hopper` for example."""

    @property
    def dialect(self) -> str:
        """The dialect that models for this target are written in unless a caller asks for another."""

    def kernels(self, op: Op) -> Sequence[OperandFormats]:
        """The formats that the target's kernels for this op want, each as formats of some of its operands."""

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """How long the op takes under a signature."""

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """How long it takes to bring a tensor from one storage into another; 0 where no byte moves."""


@runtime_checkable
class Emulating(Protocol):
    """A cost model that knows what conversions it prices within ops that no kernel takes as they are."""

    def hidden_conversions(self, op: Op, signature: Signature) -> int:
        """How many operands are converted within the op, constants aside."""
