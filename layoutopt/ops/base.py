"""Layout rules: the signatures of an op type, its padding transfer, and its lowering under each signature.

A rule declares which formats are *legal*. It sees neither cost nor target: cost models decide which legal formats are fast.
A rule answers five questions about an op:

    signature            which formats do the other operands have, if these operands have these formats?
    transfer_padding     which padding states do the outputs have for given padding states of the inputs?
    is_layout_agnostic   is the lowered op one op of the same type, at most with other attributes?
    lower                which ops compute the result on physical arrays?
    flops                how many operations does the op perform?

An op type without a rule has canonical formats on all operands, which is always legal. Facts that are not about layout are
interfaces of their own (`ops.interfaces`), which a rule implements in addition to this class.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import ClassVar, Protocol

import numpy as np

from layoutopt.formats import Format, Shape
from layoutopt.ir.types import Array, Attribute, Op, Padding, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops.signatures import (
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    X,
    Y,
    chosen_signature,
    estimated_volume,
    is_canonical,
    padded_type,
    untransposable_reason,
)
from layoutopt.registry import EntryPoints, registered_by

# --- kernel profile ---
#
# The properties of an op by which kernels of a target are selected and priced: family, variant, operand roles, flops.


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


OLDEST_OPSET = 7


class Builder(Protocol):
    """The emitter that `lower` writes ops with. Its values belong to the lowered graph: their shapes are physical."""

    def format(self, slot: Slot) -> Format:
        """The format of an operand that the rule lowers for, an entry of `physical_formats`."""

    def output_type(self, index: int) -> TensorType | None:
        """The type of a physical output; None if the output is absent."""

    def input(self, index: int) -> Value | None:
        """A physical input; None if it is absent."""

    def padded(self, index: int) -> Value | None:
        """An input transposed to the canonical format, its axes still padded up to their blocks."""

    def constant(self, array: Array, stem: str) -> Value:
        """A new constant; `stem` is part of its name."""

    def op(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        types: Sequence[TensorType | None],
        attributes: Mapping[str, Attribute] | None = None,
    ) -> list[Value]:
        """The present outputs of a new op in the op's own domain if the type is the op's, else in the standard domain."""

    def reshape(self, value: Value, shape: Shape) -> Value:
        """The same elements in another shape."""

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """The value with its axes permuted."""

    def convert(self, value: Value, src: Format, dst: Format, shape: Shape) -> Value:
        """A tensor of logical shape `shape` converted from format `src` to format `dst`."""

    def resize_axis(self, value: Value, axis: int, extent: int) -> Value:
        """The value with the end of an axis cut off or padded with zeros."""

    def set_output(self, index: int, value: Value) -> None:
        """Record the physical output."""

    def set_padded_output(self, index: int, value: Value) -> None:
        """Record an output in the canonical format, its axes padded up to their blocks."""


class LayoutRule(KernelProfile, ABC):
    """The layout of a family of op types.

    Attributes:
        ops: the op types, with their domain in front unless it is ai.onnx.
        is_anchor: the formats of the op are those of the target's kernels; other ops take the formats of their neighbours.
        is_pseudo_op: no runtime has the op, so it is always expanded.
        has_independent_operands: the operands have formats of their own, so the planner combines candidates of each.
        is_always_agnostic: the lowered op is one op of the same type under every signature.
        formats: the formats that operands may have, in words, for documentation.
        ranks: the operands whose rank has to be known, and the least rank of each.
        padding: the padding transfer function, for all op types unless `padding_of` distinguishes them.
    """

    ops: ClassVar[tuple[str, ...]]
    is_anchor: ClassVar[bool] = False
    is_pseudo_op: ClassVar[bool] = False
    has_independent_operands: ClassVar[bool] = False
    is_always_agnostic: ClassVar[bool] = False
    formats: ClassVar[str] = ""
    ranks: ClassVar[Mapping[Slot, int]] = MappingProxyType({})
    padding: ClassVar[PaddingTransfer] = PaddingTransfer(Padding.ANY, None, None)

    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        """The operands whose rank has to be known, and the least rank of each."""
        del op
        return self.ranks

    def missing_rank(self, op: Op) -> Inapplicable | None:
        """The reason why an operand does not have the rank that the rule requires; None if all have it."""
        for slot, least in self.minimum_ranks(op).items():
            values = op.inputs if slot.side == "in" else op.outputs
            rank = None if slot.index >= len(values) or (value := values[slot.index]) is None else value.rank
            if rank is None:
                return Inapplicable(f"the rank of {slot} is unknown")
            if rank < least:
                return Inapplicable(f"{slot} has fewer than {least} axes")
        return None

    def signature(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The signature that has the given formats at the given slots, without padding states; or why there is none."""
        return self.missing_rank(op) or self.complete(op, known)

    @abstractmethod
    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The signature, as in `signature`, of an op whose operands have the required ranks."""

    def operand_classes(self, op: Op) -> Mapping[Slot, Hashable]:
        """The equivalence class of each operand: `signature(op, {slot: format})` is the same for all slots of a class.

        Variadic ops have few classes, so the planner completes one signature per class and format instead of one per operand
        and format. Operands without a class are completed one by one.
        """
        del op
        return {}

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The padding transfer function of one op type; that of the rule by default."""
        del kind
        return self.padding

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The padding states of the outputs for those of the inputs; None if the op refuses such inputs.

        `inputs` has a state for every input, ZERO for inputs without padding. By default the transfer function of the op type
        is applied to the largest state; overrides add the cases that depend on the op or on the signature. Outputs that the
        result does not list have state ANY.
        """
        del signature
        state = self.padding_of(op.kind)[max(inputs, default=Padding.ZERO)]
        return None if state is None else (state,)

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether `lower` writes one op of the same type on the physical arrays."""
        del op
        return self.is_always_agnostic or is_canonical(signature)

    def must_be_expanded(self, op: Op) -> bool:
        """Whether `lower` replaces the op in canonical formats too, because a runtime lacks it or computes it wrongly."""
        del op
        return self.is_pseudo_op

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """The formats that `lower` works in: those of the signature, or others with the same bytes."""
        signature = chosen_signature(op)
        storages = ((slot, signature[slot]) for slot in op.slots())
        return {slot: storage.format for slot, storage in storages if storage is not None}

    def lower(self, op: Op, build: Builder) -> None:
        """Write the op on physical arrays, for `op.signature`.

        By default the op is emulated: it runs in the canonical format on padded arrays. That is correct wherever a run on
        padded arrays computes the logical elements correctly and leaves padding as `transfer_padding` declares.
        """
        inputs = [build.padded(index) for index in range(len(op.inputs))]
        types = [padded_type(*each) for each in zip(op.outputs, chosen_signature(op).outputs, strict=True)]
        results = build.op(op.op_type, inputs, types, self.padded_attributes(op))
        present = [index for index, value in enumerate(op.outputs) if value is not None]
        for index, result in zip(present, results, strict=True):
            build.set_padded_output(index, result)

    def padded_attributes(self, op: Op) -> Mapping[str, Attribute]:
        """The attributes of the op when it runs in the canonical format on padded arrays."""
        return op.attributes


# --- the registry ------------------------------------------------------------------------------------------------

_RULES: dict[str, LayoutRule] = {}


def register(rule: type[LayoutRule]) -> type[LayoutRule]:
    """Class decorator: register a rule for each of its op types.

    Raises:
        ValueError: an op type has another rule.
    """
    instance = rule()
    for kind in rule.ops:
        if type(_RULES.setdefault(kind, instance)) is not rule:
            raise ValueError(f"two layout rules for {kind}")
    return rule


EXTENSIONS = EntryPoints("layoutopt.ops", registered_by(register, LayoutRule))
"""Op types of installed packages, which are loaded when an op type has no built-in rule."""


def rule_of(op: Op) -> LayoutRule | None:
    """The rule for an op; None if there is none, or if the opset is below 7, whose ops broadcast and reshape differently."""
    if op.version < OLDEST_OPSET and not op.domain:
        return None
    return _RULES.get(op.kind) or EXTENSIONS.loaded_into(_RULES).get(op.kind)


def rules() -> dict[str, LayoutRule]:
    """The rule of every op type that has one, sorted by op type."""
    return dict(sorted(EXTENSIONS.loaded_into(_RULES).items()))


# --- padding state ---
#
# Padding states of blocked operands: which axes are padded, and the signatures of an op for each state of its inputs.
#
# A rule declares the states of the outputs for given states of the inputs (`LayoutRule.transfer_padding`). This module
# enumerates the states of the inputs and returns a signature for each case that the op accepts.


LARGEST_FINITE = 1e3  # larger constants are ANY, for example infinities in masks


def padded_axes_of(value: Value | None, storage: Storage | None) -> tuple[int, ...]:
    """The axes of a value that a storage pads."""
    if value is None or value.shape is None or storage is None or 0 in value.shape:
        return ()
    padded = storage.format.padded_shape(value.shape)
    return tuple(axis for axis, dim in enumerate(value.shape) if dim != padded[axis])


def has_padding(value: Value | None, storage: Storage | None) -> bool:
    """Whether a storage pads a value."""
    return bool(padded_axes_of(value, storage))


def state_of(numbers: Array) -> Padding:
    """The padding state of elements with these values."""
    if not numbers.any():
        return Padding.ZERO
    return Padding.FINITE if bool((np.abs(numbers.astype(np.float64)) <= LARGEST_FINITE).all()) else Padding.ANY


def with_padding_states(
    rule: LayoutRule, op: Op, signature: Signature, largest: Sequence[Padding] | None = None
) -> list[Signature]:
    """The signatures for the padding states that the inputs may have, without dominated ones.

    Args:
        rule: the rule of the op.
        op: the op.
        signature: the formats of its operands.
        largest: the largest state that each input can have; ANY by default. The padding of constants is always zero.
    """
    return _undominated(padding_cases(rule, op, signature, largest))


def zero_padding_signature(op: Op, slot: Slot, format: Format) -> Signature | None:
    """The signature of an op with one operand in a format and zero padding on all inputs; None if there is none."""
    rule = rule_of(op)
    found = rule.signature(op, {slot: format}) if rule is not None else None
    if rule is None or found is None or isinstance(found, Inapplicable) or untransposable_reason(op, found):
        return None
    return next(iter(padding_cases(rule, op, found, [Padding.ZERO] * len(op.inputs))), None)


def padding_cases(
    rule: LayoutRule, op: Op, signature: Signature, largest: Sequence[Padding] | None = None
) -> list[Signature]:
    """The signatures for all padding states of the inputs that the op accepts."""
    inputs = [
        (index, value)
        for index, (value, storage) in enumerate(zip(op.inputs, signature.inputs, strict=True))
        if value is not None and has_padding(value, storage)
    ]
    have_padding = [has_padding(value, storage) for value, storage in zip(op.outputs, signature.outputs, strict=True)]
    if not inputs and not any(have_padding):
        return [signature]
    padded = [index for index, value in inputs if not value.is_constant]
    choices = [[state for state in Padding if largest is None or state <= largest[index]] for index in padded]
    # With more than two padded inputs all have one state: 3**n combinations are too many.
    cases = product(*choices) if len(padded) <= 2 else ((state,) * len(padded) for state in max(choices, key=len))
    found = [_with_states(rule, op, signature, dict(zip(padded, case, strict=True)), have_padding) for case in cases]
    return [each for each in found if each is not None]


def _with_states(
    rule: LayoutRule, op: Op, signature: Signature, given: Mapping[int, Padding], have_padding: Sequence[bool]
) -> Signature | None:
    """The signature for given states of some inputs; None if the op refuses them."""
    states = [given.get(index, Padding.ZERO) for index in range(len(op.inputs))]
    results = rule.transfer_padding(op, signature, tuple(states))
    if results is None:
        return None
    results = (*results, *(Padding.ANY,) * (len(op.outputs) - len(results)))
    results = tuple(state if has else Padding.ZERO for state, has in zip(results, have_padding, strict=True))
    inputs, outputs = zip(signature.inputs, states, strict=True), zip(signature.outputs, results, strict=True)
    return Signature(
        tuple(storage and Storage(storage.format, state) for storage, state in inputs),
        tuple(storage and Storage(storage.format, state) for storage, state in outputs),
    )


def _undominated(signatures: list[Signature]) -> list[Signature]:
    """The signatures that no other one dominates; of equal ones the last."""
    kept: list[Signature] = []
    for signature in reversed(signatures):
        if not any(_dominates(other, signature) for other in kept):
            kept = [other for other in kept if not _dominates(signature, other)]
            kept.append(signature)
    return kept[::-1]


def _dominates(one: Signature, other: Signature) -> bool:
    accepts = all(
        a is None or b is None or a.padding >= b.padding for a, b in zip(one.inputs, other.inputs, strict=True)
    )
    leaves = all(
        a is None or b is None or a.padding <= b.padding for a, b in zip(one.outputs, other.outputs, strict=True)
    )
    return accepts and leaves


# --- Lowering to one op of the same type on the physical arrays ---


def lower_directly(
    op: Op,
    build: Builder,
    attributes: Mapping[str, Attribute] | None = None,
    inputs: Sequence[Value | None] | None = None,
) -> None:
    """Write the same op on the physical arrays.

    Args:
        op: the op.
        build: records the new op.
        attributes: attributes that differ from those of the op.
        inputs: all inputs, if they differ from the physical inputs of the op.
    """
    if inputs is None:
        inputs = [build.input(index) for index in range(len(op.inputs))]
    present = [index for index, value in enumerate(op.outputs) if value is not None]
    types = [build.output_type(index) for index in range(max(present, default=-1) + 1)]
    results = build.op(op.op_type, inputs, types, {**op.attributes, **(attributes or {})})
    for index, result in zip(present, results, strict=True):
        build.set_output(index, result)


# --- Ops whose result has the elements of their input, in the same or in another type ---


def is_copy(op: Op) -> bool:
    """Whether the output of an op is its input."""
    return op.kind == "Identity"


def is_type_conversion(op: Op) -> bool:
    """Whether an op only changes the element type."""
    return op.kind in ("Cast", "CastLike")
