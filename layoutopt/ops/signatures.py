"""Construction of signatures from formats, and the types of operands under a signature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from layoutopt.formats import Dim, Format, Shape
from layoutopt.ir.types import DType, Op, Signature, Slot, Storage, TensorType, Value

OperandFormats: TypeAlias = Mapping[Slot, Format]

X, Y = Slot("in", 0), Slot("out", 0)


@dataclass(frozen=True, slots=True)
class Inapplicable:
    """The reason why an op has no signature with given formats; reports print it, it is not an error."""

    reason: str


def estimated_extent(dim: Dim) -> int:
    """An extent as a number for estimates: a symbolic dimension counts as 1."""
    return dim if isinstance(dim, int) else 1


def estimated_volume(shape: Shape) -> int:
    """The number of elements of a shape for estimates: symbolic dimensions count as 1."""
    return prod(estimated_extent(dim) for dim in shape)


def canonical_storage(value: Value | None) -> Storage | None:
    """The canonical storage of a value; None if its rank is unknown."""
    return None if value is None or value.rank is None else Storage(Format.canonical(value.rank))


def canonical_signature(op: Op) -> Signature:
    """The signature with all operands in canonical format, which is legal for every op."""
    return Signature(
        tuple(canonical_storage(value) for value in op.inputs), tuple(canonical_storage(value) for value in op.outputs)
    )


def format_text(op: Op, slot: Slot, format: Format) -> str:
    """A format of an operand with the letters of its axes."""
    value = op.operand(slot)
    return format.text() if value is None else value.format_text(format)


def is_canonical(signature: Signature) -> bool:
    """Whether all operands are in canonical format."""
    return all(storage is None or storage.format.is_canonical for storage in (*signature.inputs, *signature.outputs))


def padded_type(value: Value | None, storage: Storage | None) -> TensorType | None:
    """The type of a value in the canonical format, its axes padded up to their blocks."""
    if value is None or not isinstance(value.type, TensorType):
        return None
    if storage is None or value.type.shape is None:
        return value.type
    return TensorType(value.type.dtype, storage.format.padded_shape(value.type.shape))


def physical_type(value: Value, storage: Storage | None) -> TensorType:
    """The type of the array that holds a value in a storage."""
    assert isinstance(value.type, TensorType)
    if storage is None or value.type.shape is None:
        return value.type
    return TensorType(value.type.dtype, storage.format.physical_shape(value.type.shape))


def signature_of(op: Op, formats: OperandFormats) -> Signature | Inapplicable:
    """The signature with formats at some slots, the other operands canonical, if every format fits its tensor.

    A format that is the same bytes as the canonical one for the shape of the value (NHWC where H and W are 1) becomes the
    canonical one.
    """
    formats = dict(formats)
    for slot, format in formats.items():
        value = op.operand(slot)
        if value is None or value.shape is None:
            return Inapplicable(f"the rank of {slot} is unknown")
        if format.is_canonical:
            continue
        if not format.fits(value.shape):
            return Inapplicable(f"{value.format_text(format)} does not fit the shape of {value.name}")
        if 0 in value.shape:
            return Inapplicable(f"{value.name} is empty")
        if value.dtype is DType.STRING and not format.is_plain:
            return Inapplicable(f"{value.name} holds strings, which cannot be padded with zeros")
        canonical = Format.canonical(format.rank)
        if format.same_bytes(canonical, value.shape):
            formats[slot] = canonical

    def storages(side: str, values: Sequence[Value | None]) -> tuple[Storage | None, ...]:
        chosen: list[Storage | None] = []
        for index, value in enumerate(values):
            slot = Slot("in", index) if side == "in" else Slot("out", index)
            chosen.append(Storage(formats[slot]) if slot in formats else canonical_storage(value))
        return tuple(chosen)

    return Signature(storages("in", op.inputs), storages("out", op.outputs))
