"""Which element types can be brought into another order at all.

Where an op that moves elements does not take a type, `dialects.promotion` has it do that on a wider one. Of those here there
is none wider that Cast knows, or onnxruntime 1.31 has no kernels for them: nobody could check the result. What a value of
such a type lies like, it keeps. Constants are packed ahead of time, whatever their type.
"""

from typing import Protocol

from layoutopt.ir.types import DType, Signature, Slot, Value

_FIXED = frozenset({DType.FLOAT4E2M1, DType.FLOAT8E8M0, DType.COMPLEX64, DType.COMPLEX128, DType.INT2, DType.UINT2})


class Operands(Protocol):
    """An op, or what else reads and gives values."""

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """What is read."""

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        """What is given."""

    def operand(self, slot: Slot) -> Value | None:
        """The value at a slot."""

    def slots(self) -> list[Slot]:
        """The slots that hold a value."""


def is_restricted(op: Operands) -> bool:
    """Whether an op has operands of such types."""
    return any(value is not None and value.dtype in _FIXED for value in (*op.inputs, *op.outputs))


def unmovable(op: Operands, signature: Signature) -> str:
    """Why an operand cannot be brought into the format that a signature has for it; nothing if all can."""
    for slot in op.slots():
        value, storage = op.operand(slot), signature[slot]
        if value is None or value.dtype not in _FIXED or value.is_constant or storage is None:
            continue
        if not storage.format.is_canonical:
            return f"nothing brings {value.dtype} into another order"
    return ""
