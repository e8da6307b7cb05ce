"""Which element types can be brought into another order at all: Transpose, Reshape, Concat and Slice take only some.

What a value of another type lies like, it keeps. Constants are packed ahead of time, whatever their type.
"""

from typing import Protocol

from layoutopt.formats import Format, Shape
from layoutopt.ir.types import DType, Signature, Slot, Value

_FLOAT8 = frozenset({DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ})
_SINCE = 21
"""The opset from which Transpose takes float8, and onnxruntime has Reshape for it; Concat and Slice take it in none."""

_FIXED = frozenset(
    {DType.FLOAT4E2M1, DType.FLOAT8E8M0, DType.COMPLEX64, DType.COMPLEX128}
    | {DType.INT2, DType.INT4, DType.UINT2, DType.UINT4}
)
"""Concat and Slice take them in no opset, or onnxruntime 1.31 has no Reshape for them: nobody could check the result."""

_RESTRICTED = _FLOAT8 | _FIXED


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
    return any(value is not None and value.dtype in _RESTRICTED for value in (*op.inputs, *op.outputs))


def unmovable(op: Operands, signature: Signature, opset: int) -> str:
    """Why an operand cannot be brought into the format that a signature has for it; nothing if all can."""
    for slot in op.slots():
        value, storage = op.operand(slot), signature[slot]
        if (
            value is None
            or value.dtype not in _RESTRICTED
            or value.is_constant
            or storage is None
            or value.shape is None
        ):
            continue
        if not storage.format.is_canonical and not _can_move(value.dtype, storage.format, value.shape, opset):
            return f"nothing brings {value.dtype} into another order at opset {opset}"
    return ""


def _can_move(dtype: DType | None, format: Format, shape: Shape, opset: int) -> bool:
    return dtype in _FLOAT8 and opset >= _SINCE and format.padded_shape(shape) == shape
