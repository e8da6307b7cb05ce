"""What a layout rule is: the signatures of an op type, and how the op is spelled in each of them.

A rule knows what is *legal*. It never sees a cost or a target: what is *wise* belongs to the cost models. It answers
five questions about an op:

    complete    if these operands lie in these formats, in which lie the others?
    lanes       if the lanes of the inputs hold this, what do the lanes of the outputs hold?
    is_direct   is the op on the physical arrays the same op, at most with other attributes?
    lower       how is it written on the physical arrays?
    flops       how much arithmetic is it?

An op type without a rule runs in the canonical format on all its tensors. That is never an error.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from layoutopt.formats import Dim, Format, Shape
from layoutopt.ir.types import Array, Attribute, DType, Lanes, Op, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops.affine import Affine

Side: TypeAlias = Literal["in", "out"]
Known: TypeAlias = Mapping[Slot, Format]

X, Y = Slot("in", 0), Slot("out", 0)

OLDEST_OPSET = 7
LARGEST_FINITE = 1e3  # a constant above that is no small number: an infinity in a mask, say


@dataclass(frozen=True, slots=True)
class Inapplicable:
    """Why an op has no signature with the formats asked for. The report shows it; it is not an error."""

    reason: str


class Builder(Protocol):
    """What `lower` writes with. Values made here live in the lowered graph: their shapes are physical."""

    def format(self, slot: Slot) -> Format:
        """The format in which the rule sees an operand, as `physical_formats` says."""

    def output_type(self, index: int) -> TensorType | None:
        """The type of the physical output; None if it is absent."""

    def input(self, index: int) -> Value | None:
        """The physical input."""

    def padded(self, index: int) -> Value | None:
        """The input in canonical order, its axes still padded up to their blocks."""

    def constant(self, array: Array, stem: str) -> Value:
        """A new constant."""

    def op(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        types: Sequence[TensorType | None],
        attributes: Mapping[str, Attribute] | None = None,
    ) -> list[Value]:
        """A new op of the standard domain and its outputs (absent ones left out of the list)."""

    def reshape(self, value: Value, shape: Shape) -> Value:
        """The same elements under another shape."""

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """The axes in another order."""

    def convert(self, value: Value, src: Format, dst: Format, shape: Shape) -> Value:
        """A tensor of logical shape `shape` from one format in another."""

    def resize_axis(self, value: Value, axis: int, extent: int) -> Value:
        """Cut or zero-pad the end of an axis."""

    def set_output(self, index: int, value: Value) -> None:
        """The physical output."""

    def set_padded_output(self, index: int, value: Value) -> None:
        """The output in canonical order, its axes padded up to their blocks."""


class LayoutRule(ABC):
    """The layout knowledge about a family of op types.

    Attributes:
        family: what cost models call these ops.
        ops: the op types, with their domain in front unless it is ai.onnx.
        is_anchor: the op wants formats of its own, those of the target's kernels. Others take what neighbours have.
        is_rename: the op moves no bytes; it gives the same bytes other axes.
        is_independent: the format of one operand says nothing about the others, so combinations are worth a look.
    """

    family: ClassVar[str]
    ops: ClassVar[tuple[str, ...]]
    is_anchor: ClassVar[bool] = False
    is_rename: ClassVar[bool] = False
    is_independent: ClassVar[bool] = False

    @abstractmethod
    def complete(self, op: Op, known: Known) -> Signature | Inapplicable:
        """The signature that has the given formats at the given slots; lanes are not considered yet."""

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """The lanes of the outputs for lanes of the inputs; None if the op does not work on such inputs.

        `inputs` has a state for every input, ZERO where it has no lanes. By default ops want no garbage and leave it.
        """
        del op, signature
        return None if any(inputs) else (Lanes.ANY,)

    def is_direct(self, op: Op, signature: Signature) -> bool:
        """Whether `lower` writes one op of the same type on the physical arrays."""
        del op
        return is_canonical(signature)

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """The formats that `lower` works in: those of the signature, or others with the same bytes."""
        assert op.signature is not None
        storages = ((slot, op.signature[slot]) for slot in op.slots())
        return {slot: storage.format for slot, storage in storages if storage is not None}

    def lower(self, op: Op, build: Builder) -> None:
        """Write the op on physical arrays, for `op.signature`.

        By default it is emulated: the op in canonical order on padded arrays. That is right wherever a padded run gives
        the logical elements their right values and the lanes what `lanes` says.
        """
        assert op.signature is not None
        inputs = [build.padded(index) for index in range(len(op.inputs))]
        types = [padded_type(*each) for each in zip(op.outputs, op.signature.outputs, strict=True)]
        results = build.op(op.op_type, inputs, types, self.padded_attributes(op))
        present = [index for index, value in enumerate(op.outputs) if value is not None]
        for index, result in zip(present, results, strict=True):
            build.set_padded_output(index, result)

    def padded_attributes(self, op: Op) -> Mapping[str, Attribute]:
        """The attributes of the op when it runs on padded arrays in canonical order."""
        return op.attributes

    def roles(self, op: Op) -> Mapping[str, Slot]:
        """The operands that cost models speak of: activation x, weight w, result y."""
        del op
        return {"x": X, "w": Slot("in", 1), "y": Y}

    def variant(self, op: Op) -> str:
        """A kind within the family that kernels tell apart, a depthwise convolution for example."""
        del op
        return ""

    def squashes(self, op: Op) -> bool:
        """Whether the op makes large differences small, so that errors have to be looked for before it."""
        del op
        return False

    def affine(self, op: Op) -> Affine | None:
        """The per-channel affine that the op is, if it is one."""
        del op
        return None

    def absorb(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """New constant inputs with which the op does the affine's work too, on its input or output; None if not."""
        del op, affine, side
        return None

    def flops(self, op: Op) -> float:
        """Arithmetic operations, a multiply-add being two."""
        shapes = [value.shape for value in op.outputs if value is not None and value.shape is not None]
        return float(sum(map(elements, shapes)))


# --- the registry ------------------------------------------------------------------------------------------------

_RULES: dict[str, LayoutRule] = {}


def register(rule: type[LayoutRule]) -> type[LayoutRule]:
    """Class decorator: make a rule known for each of its op types."""
    instance = rule()
    for kind in rule.ops:
        if kind in _RULES:
            raise ValueError(f"two layout rules for {kind}")
        _RULES[kind] = instance
    return rule


def rule_of(op: Op) -> LayoutRule | None:
    """The rule for an op, if there is one. Opsets before 7 broadcast and reshape by other means and are left alone."""
    return _RULES.get(op.kind) if op.version >= OLDEST_OPSET or op.domain else None


def rules() -> dict[str, LayoutRule]:
    """Every op type that has a rule, in alphabetical order."""
    return dict(sorted(_RULES.items()))


# --- small facts about ops and shapes ----------------------------------------------------------------------------


def extent(dim: Dim) -> int:
    """A number to count with: a symbolic dimension counts as 1."""
    return dim if isinstance(dim, int) else 1


def elements(shape: Shape) -> int:
    """How many elements a tensor of that shape has, symbolic dimensions counting as 1."""
    return prod(extent(dim) for dim in shape)


def canonical_storage(value: Value | None) -> Storage | None:
    """The canonical storage of a value; None if it has no known rank."""
    return None if value is None or value.rank is None else Storage(Format.canonical(value.rank))


def canonical_signature(op: Op) -> Signature:
    """All operands in canonical format: legal for every op."""
    return Signature(
        tuple(canonical_storage(value) for value in op.inputs), tuple(canonical_storage(value) for value in op.outputs)
    )


def is_canonical(signature: Signature) -> bool:
    """Whether all operands are in canonical format."""
    return all(storage is None or storage.format.is_canonical for storage in (*signature.inputs, *signature.outputs))


def padded_type(value: Value | None, storage: Storage | None) -> TensorType | None:
    """The type of a value in canonical order with its axes padded up to their blocks."""
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


def signature_of(op: Op, formats: Known) -> Signature | Inapplicable:
    """A signature from the formats of some slots, the rest canonical; checks that every format fits its tensor.

    A format that is the canonical order for the shape at hand (NHWC where H and W are 1) becomes the canonical one.
    """
    formats = dict(formats)
    for slot, format in formats.items():
        value = op.operand(slot)
        if value is None or value.shape is None:
            return Inapplicable(f"the rank of {slot} is unknown")
        if format.is_canonical:
            continue
        if not format.fits(value.shape):
            return Inapplicable(f"{format} does not fit the shape of {value.name}")
        if 0 in value.shape:
            return Inapplicable(f"{value.name} is empty")
        if value.dtype is DType.STRING and not format.is_plain:
            return Inapplicable(f"{value.name} holds strings, and there is no zero among them")
        canonical = Format.canonical(format.rank)
        if format.key(value.shape) == canonical.key(value.shape):
            formats[slot] = canonical

    def storages(side: str, values: Sequence[Value | None]) -> tuple[Storage | None, ...]:
        chosen: list[Storage | None] = []
        for index, value in enumerate(values):
            slot = Slot("in", index) if side == "in" else Slot("out", index)
            chosen.append(Storage(formats[slot]) if slot in formats else canonical_storage(value))
        return tuple(chosen)

    return Signature(storages("in", op.inputs), storages("out", op.outputs))


def laned_axes(value: Value | None, storage: Storage | None) -> tuple[int, ...]:
    """The axes of a value that are padded in a storage."""
    if value is None or value.shape is None or storage is None or 0 in value.shape:
        return ()
    padded = storage.format.padded_shape(value.shape)
    return tuple(axis for axis, dim in enumerate(value.shape) if dim != padded[axis])


def has_lanes(value: Value | None, storage: Storage | None) -> bool:
    """Whether a value has lanes in a storage."""
    return bool(laned_axes(value, storage))


def state_of(numbers: Array) -> Lanes:
    """The state of lanes that are made of these numbers."""
    if not numbers.any():
        return Lanes.ZERO
    return Lanes.FINITE if bool((np.abs(numbers.astype(np.float64)) <= LARGEST_FINITE).all()) else Lanes.ANY


def with_lanes(rule: LayoutRule, op: Op, signature: Signature) -> Iterable[Signature]:
    """A signature once for every lane state that its inputs may have. Constants have zero lanes always."""
    laned = [
        index
        for index, (value, storage) in enumerate(zip(op.inputs, signature.inputs, strict=True))
        if value is not None and not value.is_constant and has_lanes(value, storage)
    ]
    laned_outputs = [has_lanes(value, storage) for value, storage in zip(op.outputs, signature.outputs, strict=True)]
    if not laned and not any(laned_outputs):
        yield signature
        return
    # Beyond two laned inputs only uniform states: 3**n combinations would not pay for themselves.
    cases = product(Lanes, repeat=len(laned)) if len(laned) <= 2 else ((state,) * len(laned) for state in Lanes)
    for case in cases:
        states = [Lanes.ZERO] * len(op.inputs)
        for index, state in zip(laned, case, strict=True):
            states[index] = state
        results = rule.lanes(op, signature, tuple(states))
        if results is None:
            continue
        padded = (*results, *(Lanes.ANY,) * (len(op.outputs) - len(results)))
        yield Signature(
            tuple(
                storage and Storage(storage.format, state)
                for storage, state in zip(signature.inputs, states, strict=True)
            ),
            tuple(
                storage and Storage(storage.format, state if laned_output else Lanes.ZERO)
                for storage, state, laned_output in zip(signature.outputs, padded, laned_outputs, strict=True)
            ),
        )
