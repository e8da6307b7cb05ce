"""Element types that can be transposed.

Where a runtime cannot move elements of a type, `dialects.promotion` moves them as a wider type. The types listed here have no
wider type that Cast supports, or onnxruntime 1.31 has no kernels for them, so the result could not be verified. Values of
these types keep their layout. Constants are packed ahead of time, whatever their type.
"""

from typing import Protocol

from layoutopt.ir.types import DType, Signature, Slot, Value

_FIXED = frozenset({DType.FLOAT4E2M1, DType.FLOAT8E8M0, DType.COMPLEX64, DType.COMPLEX128, DType.INT2, DType.UINT2})


class Operands(Protocol):
    """An op, or a planning unit that reads and computes values."""

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """The values that are read."""

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        """The values that are computed."""

    def operand(self, slot: Slot) -> Value | None:
        """The value at a slot."""

    def slots(self) -> list[Slot]:
        """The slots that hold a value."""


def has_untransposable_type(op: Operands) -> bool:
    """Whether an op has operands of such types."""
    return any(value is not None and value.dtype in _FIXED for value in (*op.inputs, *op.outputs))


def untransposable(op: Operands, signature: Signature) -> str:
    """The reason why an operand cannot be converted to its format in a signature; empty if all can."""
    for slot in op.slots():
        value, storage = op.operand(slot), signature[slot]
        if value is None or value.dtype not in _FIXED or value.is_constant or storage is None:
            continue
        if not storage.format.is_canonical:
            return f"nothing brings {value.dtype} into another order"
    return ""
