"""What a layout rule is: the signatures of an op type, and how the op is spelled in each of them.

A rule knows what is *legal*. It never sees a cost or a target: what is *wise* belongs to the cost models. It answers
five questions about an op:

    complete    if these operands lie in these formats, in which lie the others?
    lanes       if the lanes of the inputs hold this, what do the lanes of the outputs hold?
    is_layout_agnostic   is the op on the physical arrays the same op, at most with other attributes?
    lower       how is it written on the physical arrays?
    flops       how much arithmetic is it?

An op type without a rule runs in the canonical format on all its tensors. That is never an error.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Protocol

from layoutopt.formats import Format, Shape
from layoutopt.ir.types import Array, Attribute, Lanes, Op, Signature, Slot, TensorType, Value
from layoutopt.ops.interfaces.kernel_profile import KernelProfile
from layoutopt.ops.operands import chosen_signature
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, OperandFormats, is_canonical, padded_type

OLDEST_OPSET = 7


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


class LayoutRule(KernelProfile, ABC):
    """The layout knowledge about a family of op types.

    Attributes:
        ops: the op types, with their domain in front unless it is ai.onnx.
        is_anchor: the op wants formats of its own, those of the target's kernels. Others take what neighbours have.
        is_pseudo_op: no runtime has the op, so that it is always respelled.
        has_independent_operands: the format of one operand says nothing about the others, so combinations are worth a look.
        is_always_agnostic: `lower` writes one op of the same type under every signature.
        formats: in words, which formats its operands may have.
        ranks: the operands whose rank has to be known, and the least rank of each.
        padding: the transfer function of the padding.
    """

    ops: ClassVar[tuple[str, ...]]
    is_anchor: ClassVar[bool] = False
    is_pseudo_op: ClassVar[bool] = False
    has_independent_operands: ClassVar[bool] = False
    is_always_agnostic: ClassVar[bool] = False
    formats: ClassVar[str] = ""
    ranks: ClassVar[Mapping[Slot, int]] = MappingProxyType({})
    padding: ClassVar[PaddingTransfer] = PaddingTransfer(Lanes.ANY, None, None)

    def required_ranks(self, op: Op) -> Mapping[Slot, int]:
        """The operands whose rank has to be known, and the least rank of each."""
        del op
        return self.ranks

    def missing_rank(self, op: Op) -> Inapplicable | None:
        """The reason why an operand does not have the rank that the rule requires; None if all have it."""
        for slot, least in self.required_ranks(op).items():
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
        """What `signature` returns for an op whose operands have the required ranks."""

    def operand_classes(self, op: Op) -> Mapping[Slot, Hashable]:
        """The class of each operand that may have equals: `complete(op, {slot: format})` is the same for all of a class.

        Ops with any number of operands have them in few classes, so that the planner completes one signature per class and
        format instead of one per operand and format.
        """
        del op
        return {}

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The padding transfer of the ops of one kind; the rule's by default."""
        del kind
        return self.padding

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """The padding states of the outputs for those of the inputs; None if the op does not work on such inputs.

        `inputs` has a state for every input, ZERO where it has no padding. By default the transfer of the kind is applied to
        the largest of them; overrides add the cases that depend on the op or on the signature. Outputs without a state are ANY.
        """
        del signature
        state = self.padding_of(op.kind)[max(inputs, default=Lanes.ZERO)]
        return None if state is None else (state,)

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether `lower` writes one op of the same type on the physical arrays."""
        del op
        return self.is_always_agnostic or is_canonical(signature)

    def must_be_expanded(self, op: Op) -> bool:
        """Whether `lower` writes the op in canonical formats too, as runtimes do not get on with the spelling that it has."""
        del op
        return self.is_pseudo_op

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """The formats that `lower` works in: those of the signature, or others with the same bytes."""
        signature = chosen_signature(op)
        storages = ((slot, signature[slot]) for slot in op.slots())
        return {slot: storage.format for slot, storage in storages if storage is not None}

    def lower(self, op: Op, build: Builder) -> None:
        """Write the op on physical arrays, for `op.signature`.

        By default it is emulated: the op in canonical order on padded arrays. That is right wherever a padded run gives
        the logical elements their right values and the lanes what `lanes` says.
        """
        inputs = [build.padded(index) for index in range(len(op.inputs))]
        types = [padded_type(*each) for each in zip(op.outputs, chosen_signature(op).outputs, strict=True)]
        results = build.op(op.op_type, inputs, types, self.padded_attributes(op))
        present = [index for index, value in enumerate(op.outputs) if value is not None]
        for index, result in zip(present, results, strict=True):
            build.set_padded_output(index, result)

    def padded_attributes(self, op: Op) -> Mapping[str, Attribute]:
        """The attributes of the op when it runs on padded arrays in canonical order."""
        return op.attributes


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
