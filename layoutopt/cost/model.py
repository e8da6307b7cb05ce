"""The interface of cost models.

Layout rules decide which signatures are legal; a cost model only prices them, in seconds.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats

INNER_CONVERSION_FACTOR = 1.01
"""The price of a conversion inside an emulated op, as a multiple of one between ops, which several readers can share."""


@runtime_checkable
class CostModel(Protocol):
    """Prices ops and conversions on one target."""

    @property
    def name(self) -> str:
        """The name of the target, for example `gpu-hopper`."""

    @property
    def dialect(self) -> str:
        """The default output dialect for this target."""

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """The formats that the target's kernels for this op require, one mapping of operands to formats per kernel."""

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature."""

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """Estimated seconds of a conversion of a tensor between storages; 0 if no byte moves."""


@runtime_checkable
class EmulatingCostModel(Protocol):
    """A cost model that counts the conversions of operands within emulated ops."""

    def emulation_conversions(self, op: Op, signature: Signature) -> int:
        """The number of operands that are converted within the op, without constants."""


def emulation_conversions(model: CostModel, op: Op, signature: Signature) -> int:
    """The number of operands that are converted within the op; 0 for a model that does not count them."""
    return model.emulation_conversions(op, signature) if isinstance(model, EmulatingCostModel) else 0


def distinct(formats: Iterable[OperandFormats]) -> list[OperandFormats]:
    """The formats of several kernels without duplicates, in order."""
    return list({tuple(each.items()): each for each in formats}.values())


class CostModelWrapper:
    """Base class of cost models that change some prices of another one for the same target, whose other prices stay."""

    def __init__(self, model: CostModel) -> None:
        """Wrap `model`."""
        self._model = model

    @property
    def name(self) -> str:
        """The name of the target."""
        return self._model.name

    @property
    def dialect(self) -> str:
        """The default output dialect for this target."""
        return self._model.dialect

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """The formats that the target's kernels for this op require."""
        return self._model.preferred_formats(op)

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature."""
        return self._model.kernel_seconds(op, signature)

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """Estimated seconds of a conversion of a tensor between storages; 0 if no byte moves."""
        return self._model.conversion_seconds(value, src, dst)

    def emulation_conversions(self, op: Op, signature: Signature) -> int:
        """The number of operands that are converted within the op, without constants."""
        return emulation_conversions(self._model, op, signature)
