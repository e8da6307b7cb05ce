"""Element types that can be transposed.

If a runtime does not transpose a type, `dialects.promotion` transposes a wider type. The types listed here have no wider type
that Cast supports, or onnxruntime 1.31 has no kernels for them, so the result could not be verified. Values of these types
keep their layout. Constants of all types are packed ahead of time.
"""

from typing import Protocol

from layoutopt.ir.types import DType, Signature, Slot, Value

_UNTRANSPOSABLE = frozenset(
    {DType.FLOAT4E2M1, DType.FLOAT8E8M0, DType.COMPLEX64, DType.COMPLEX128, DType.INT2, DType.UINT2}
)


class HasOperands(Protocol):
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


def has_untransposable_type(op: HasOperands) -> bool:
    """Whether an op has operands whose type cannot be transposed."""
    return any(value is not None and value.dtype in _UNTRANSPOSABLE for value in (*op.inputs, *op.outputs))


def untransposable_reason(op: HasOperands, signature: Signature) -> str:
    """The reason why an operand cannot be converted to its format in a signature; empty if all can."""
    for slot in op.slots():
        value, storage = op.operand(slot), signature[slot]
        if value is None or value.dtype not in _UNTRANSPOSABLE or value.is_constant or storage is None:
            continue
        if not storage.format.is_canonical:
            return f"no runtime transposes {value.dtype}"
    return ""
