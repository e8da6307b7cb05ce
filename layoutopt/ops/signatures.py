"""Construction of signatures from formats, and the types of operands under a signature."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

from layoutopt.formats import Dim, Format, Shape
from layoutopt.ir.types import DType, Op, Padding, Signature, Slot, Storage, TensorType, Value
from layoutopt.record import Record

OperandFormats: TypeAlias = Mapping[Slot, Format]

X, Y = Slot("in", 0), Slot("out", 0)
ZERO, FINITE, ANY = Padding

States: TypeAlias = tuple[Padding, ...]
"""A padding state for every input of an op, or for every output."""


class Inapplicable(Record):
    """The reason why an op has no signature with given formats; reports print it, it is not an error."""

    reason: str


def estimated_extent(dim: Dim) -> int:
    """An extent as a number for estimates: a symbolic dimension counts as 1."""
    return dim if isinstance(dim, int) else 1


def estimated_volume(shape: Shape) -> int:
    """The number of elements of a shape for estimates: symbolic dimensions count as 1."""
    return prod(estimated_extent(dim) for dim in shape)


def volume_of(value: Value | None) -> float:
    """The number of elements of an operand for estimates; 0 if it is absent or its rank is unknown."""
    return 0.0 if value is None or value.shape is None else float(estimated_volume(value.shape))


def canonical_storage(value: Value | None) -> Storage | None:
    """The canonical storage of a value; None if its rank is unknown."""
    return None if value is None or value.rank is None else Storage.canonical(value.rank)


def canonical_signature(op: Op) -> Signature:
    """The signature with all operands in canonical format, which is legal for every op."""
    return Signature(
        tuple(canonical_storage(value) for value in op.inputs), tuple(canonical_storage(value) for value in op.outputs)
    )


def storage_bytes(value: Value, storage: Storage) -> float:
    """The bytes of a value in a storage, padding included; 0 if its shape is unknown."""
    if not isinstance(value.type, TensorType) or value.shape is None:
        return 0.0
    return estimated_volume(storage.format.padded_shape(value.shape)) * value.type.dtype.bits / 8


def format_text(op: Op, slot: Slot, format: Format) -> str:
    """A format of an operand with the letters of its axes."""
    value = op.operand(slot)
    return format.text() if value is None else value.format_text(format)


def is_canonical(signature: Signature) -> bool:
    """Whether all operands are in canonical format."""
    return all(storage is None or storage.format.is_canonical for storage in (*signature.inputs, *signature.outputs))


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


# --- Access to operands that a rule requires to be present and to have a rank (`LayoutRule.ranks`) ---


def present(value: Value | None) -> Value:
    """An operand that the operator requires."""
    assert value is not None, "a required operand is absent"
    return value


def shape_of(value: Value | TensorType | None) -> Shape:
    """The shape of an operand of required rank, or of a type."""
    shape = None if value is None else value.shape
    assert shape is not None, f"no rank: {value}; the rule has to require it"
    return shape


def rank_of(value: Value | None) -> int:
    """The number of axes of an operand of required rank."""
    return len(shape_of(value))


def chosen_signature(op: Op) -> Signature:
    """The signature that the planner has chosen for an op."""
    assert op.signature is not None, f"{op!r} has no signature"
    return op.signature


def present_type(type: TensorType | None) -> TensorType:
    """The type of an output that the operator requires."""
    assert type is not None, "a required output is absent"
    return type


# --- Element types that can be transposed ---
#
# If a runtime does not transpose a type, `dialects.promotion` transposes a wider type. The types listed here have no wider
# type that Cast supports, or onnxruntime 1.31 has no kernels for them, so the result could not be verified. Values of these
# types keep their layout. Constants of all types are packed ahead of time.


_UNTRANSPOSABLE = frozenset(
    {DType.FLOAT4E2M1, DType.FLOAT8E8M0, DType.COMPLEX64, DType.COMPLEX128, DType.INT2, DType.UINT2}
)


def has_untransposable_type(op: Op) -> bool:
    """Whether an op has operands whose type cannot be transposed."""
    return any(value.dtype in _UNTRANSPOSABLE for value in op.values)


def untransposable_reason(op: Op, signature: Signature) -> str:
    """The reason why an operand cannot be converted to its format in a signature; empty if all can."""
    for slot in op.slots():
        value, storage = op.operand(slot), signature[slot]
        if value is None or value.dtype not in _UNTRANSPOSABLE or value.is_constant or storage is None:
            continue
        if not storage.format.is_canonical:
            return f"no runtime transposes {value.dtype}"
    return ""


# --- Padding transfer functions: the padding state of the results by the padding state of the inputs ---
#
# `LayoutRule.transfer_padding` applies the function; `layoutopt list ops` prints it.


class PaddingTransfer(Record):
    """The padding state of a result by the largest padding state of the inputs.

    Attributes:
        zero, finite, any: the state of the result for inputs of state ZERO, FINITE and ANY; None where the op refuses them.
        text: the cases in which the result has another state, in words.
    """

    zero: Padding | None
    finite: Padding | None
    any: Padding | None
    text: str = ""

    def __getitem__(self, state: Padding) -> Padding | None:
        return (self.zero, self.finite, self.any)[state]

    def __str__(self) -> str:
        states = [self[state] for state in Padding]
        if set(states) == {None}:
            return "no padding"
        cases = (
            f"{state} → {after}" if after is not None else f"{state} refused"
            for state, after in zip(Padding, states, strict=True)
        )
        return "; ".join(filter(None, (", ".join(cases), self.text)))


PADDING_KEPT = PaddingTransfer(ZERO, FINITE, ANY)
PADDING_BECOMES_FINITE = PaddingTransfer(FINITE, FINITE, FINITE)
PADDING_REFUSED = PaddingTransfer(None, None, None)
