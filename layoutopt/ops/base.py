"""Layout rules: the signatures of op types, their padding transfer, their lowering, and facts about them that passes read.

A rule declares which formats are *legal*. It sees neither cost nor target: cost models decide which legal formats are fast.
A rule answers these questions about an op, each with a default:

    inapplicability      why does the op have canonical formats only?
    complete             which formats do the other operands have, if these operands have these formats?
    misfit               why can the op not have these formats together?
    result_padding       which padding state does the result have for given padding states of the inputs?
    is_one_op            is the lowered op one op of the same type, with which `physical_operands`?
    lower                which ops compute the result on physical arrays?
    operations           how many operations does the op perform?

An op type without a rule has canonical formats on all operands, which is always legal. Facts that are not about layout are
attributes and methods, too: whether the op is an affine map, which letters its axes have (`facts`).
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import product, zip_longest
from operator import le
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from layoutopt.formats import Format
from layoutopt.ir.types import Array, Attribute, Attributes, Op, Padding, Signature, Slot, Storage, Value
from layoutopt.ops.builder import OpBuilder
from layoutopt.ops.interfaces import Affine, LinearMap, Pads, Side, letters_by_rank
from layoutopt.ops.signatures import (
    ANY,
    FINITE,
    ZERO,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    States,
    X,
    Y,
    chosen_signature,
    is_canonical,
    present,
    rank_of,
    untransposable_reason,
    volume_of,
)
from layoutopt.registry import EntryPoints, registered_by

if TYPE_CHECKING:
    from layoutopt.ops.contraction import ContractionModes

ShapeEdits: TypeAlias = dict[int, dict[int, int]] | None
"""Other elements of shape operands, as {input: {position: element}}; None if there are none with which the op stays right."""

PhysicalAttributes: TypeAlias = Mapping[str, Attribute | None]
PhysicalOperands: TypeAlias = tuple[PhysicalAttributes, list[Value | None]]
"""The attributes that differ from those of an op, None for those that are left out, and its inputs on physical arrays."""

OLDEST_OPSET = 7


class LayoutRule:
    """The layout of a family of op types, and the facts about them that passes and cost models read.

    Attributes:
        ops: the op types, with their domain in front unless it is ai.onnx.
        family: the name under which targets list kernels for these ops.
        is_anchor: the formats of the op are those of the target's kernels; other ops take the formats of their neighbours.
        is_pseudo_op: no runtime has the op, so it is always expanded.
        has_independent_operands: the operands have formats of their own, so the planner combines candidates of each.
        is_always_agnostic: the lowered op is one op of the same type under every signature.
        is_quantized: the op converts to or from integers of few bits, or computes on such integers with their scales.
        is_broadcasting: every operand is broadcast to the shape of the result, aligned with its last axes.
        is_pure_broadcast: the op only broadcasts its first input, or repeats it along axes along which its readers do not
            broadcast.
        is_shape_query: the result depends on the types of the inputs alone.
        formats: the formats that operands may have, in words, for documentation.
        letters: the letters of the axes of operands, for each rank at which the definition of the op gives its axes roles.
        operations: the number of arithmetic operations per element, a multiply-add being two, and the operand whose elements
            are counted; the results if that is None.
        required: the operands that have to be present, besides x and y.
        least_rank: the least number of axes of the operand `ranked`.
        padding: the padding transfer function.
        epsilon: the attribute that is added to a divisor; if it is 0, padding may become NaN.
        is_saturating_activation: whether the op is a bounded activation, such as Sigmoid, which maps large differences of its
            input to small ones. Verification compares its input. Clamping in quantisation is not meant.
    """

    ops: ClassVar[tuple[str, ...]] = ()
    family: ClassVar[str]
    is_anchor: ClassVar[bool] = False
    is_pseudo_op: ClassVar[bool] = False
    has_independent_operands: ClassVar[bool] = False
    is_always_agnostic: ClassVar[bool] = False
    is_quantized: ClassVar[bool] = False
    is_broadcasting: ClassVar[bool] = False
    is_pure_broadcast: ClassVar[bool] = False
    is_shape_query: ClassVar[bool] = False
    formats: ClassVar[str] = ""
    letters: ClassVar[Mapping[Slot, Sequence[str]]] = MappingProxyType({})
    operations: ClassVar[tuple[float, Slot | None]] = (1.0, None)
    required: ClassVar[tuple[Slot, ...]] = ()
    least_rank: ClassVar[int] = 0
    ranked: ClassVar[Slot] = X
    padding: ClassVar[PaddingTransfer] = PaddingTransfer(ANY, None, None)
    epsilon: ClassVar[str] = ""
    is_saturating_activation: ClassVar[bool] = False

    def __init__(self, *ops: str, **columns: object) -> None:
        """A rule for op types, with other attributes than its class has."""
        vars(self).update(columns, ops=ops or self.ops)

    # --- legal formats ---

    def inapplicability(self, op: Op) -> str:
        """The reason why an op, whose operands have the required ranks, has canonical formats only; empty if there is none."""
        return ""

    def canonical_reason(self, op: Op) -> str:
        """The reason why any op has canonical formats only: an unknown rank, or `inapplicability`; empty if none."""
        for slot in (X, Y, *self.required, *op.slots()):
            value = op.operand(slot)
            if value is None or value.rank is None:
                return f"the rank of {slot} is unknown"
        has_axes = rank_of(op.operand(self.ranked)) >= self.least_rank
        return self.inapplicability(op) if has_axes else f"{self.ranked} has fewer than {self.least_rank} axes"

    def signature(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The signature that has the given formats at the given slots, without padding states; or why there is none."""
        if reason := self.canonical_reason(op):
            return Inapplicable(reason)
        found = self.complete(op, known)
        if isinstance(found, Inapplicable) or not (reason := self.misfit(op, found)):
            return found
        return Inapplicable(reason)

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The signature, as in `signature`, of an op that has others than the canonical one."""
        return Inapplicable("its op type has kernels for canonical formats only")

    def misfit(self, op: Op, signature: Signature) -> str:
        """The reason why the op cannot have the formats that `complete` found; empty if it can."""
        return ""

    def operand_classes(self, op: Op) -> Mapping[Slot, Hashable]:
        """The equivalence class of each operand: `signature(op, {slot: format})` is the same for all slots of a class.

        Variadic ops have few classes, so the planner completes one signature per class and format instead of one per operand
        and format. Operands without a class are completed one by one.
        """
        return {}

    # --- padding ---

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The padding state of all outputs for those of the inputs; None if the op refuses such inputs.

        `inputs` has a state for every input, ZERO for inputs without padding. By default the transfer function is applied to
        the largest state; overrides add the cases that depend on the op or on the signature.
        """
        state = self.padding[max(inputs, default=ZERO)]
        return ANY if state is not None and self.epsilon and op.attributes.get(self.epsilon, 1.0) == 0 else state

    def transfer_padding(self, op: Op, signature: Signature, inputs: States) -> States | None:
        """The padding states of the outputs, as in `result_padding`. Outputs that the result does not list have state ANY."""
        state = self.result_padding(op, signature, inputs)
        return None if state is None else (state,) * len(op.outputs)

    # --- lowering ---

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether `lower` writes one op of the same type on the physical arrays."""
        return self.is_always_agnostic or is_canonical(signature) or self.is_one_op(op, signature)

    def is_one_op(self, op: Op, signature: Signature) -> bool:
        """`is_layout_agnostic` for a signature with other than canonical formats."""
        return False

    def must_be_expanded(self, op: Op) -> bool:
        """Whether `lower` replaces the op in canonical formats too, because a runtime lacks it or computes it wrongly."""
        return self.is_pseudo_op

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """The formats that `lower` works in: those of the signature, or others with the same bytes."""
        signature = chosen_signature(op)
        storages = ((slot, signature[slot]) for slot in op.slots())
        return {slot: storage.format for slot, storage in storages if storage is not None}

    def lower(self, op: Op, build: OpBuilder) -> None:
        """Write the op on physical arrays, for `op.signature`.

        By default a layout-agnostic op is written with its `physical_operands`, and others are emulated: the op runs on
        arrays of the logical shapes in canonical formats, between conversions.
        """
        if self.is_layout_agnostic(op, chosen_signature(op)):
            lower_directly(op, build, *self.physical_operands(op, build))
            return
        types = [None if value is None else value.type_with(value.shape) for value in op.outputs]
        results = build.op(op.op_type, self.canonical_inputs(op, build), types, op.attributes)
        present = [index for index, value in enumerate(op.outputs) if value is not None]
        for index, result in zip(present, results, strict=True):
            build.set_canonical_output(index, result)

    def canonical_inputs(self, op: Op, build: OpBuilder) -> list[Value | None]:
        """The inputs of an op that is emulated."""
        return [build.canonical(index) for index in range(len(op.inputs))]

    def physical_operands(self, op: Op, build: OpBuilder) -> PhysicalOperands:
        """Attributes and inputs of a layout-agnostic op on physical arrays."""
        return self.physical_attributes(op, build), [build.input(index) for index in range(len(op.inputs))]

    def physical_attributes(self, op: Op, build: OpBuilder) -> PhysicalAttributes:
        """The attributes of a layout-agnostic op that are others on physical arrays."""
        return {}

    # --- kernels ---

    def roles(self, op: Op) -> Mapping[str, Slot]:
        """The operands that targets name: activation x, weight w, result y."""
        return {"x": X, "w": Slot("in", 1), "y": Y}

    def variant(self, op: Op) -> str:
        """The kind within the family that kernels distinguish, for example a depthwise convolution; empty by default."""
        return ""

    def flops(self, op: Op) -> float:
        """The number of arithmetic operations, a multiply-add being two."""
        count, slot = self.operations
        return count * sum(map(volume_of, op.outputs if slot is None else [op.operand(slot)]))

    def modes(self, op: Op, formats: OperandFormats) -> "ContractionModes | None":
        """The modes of a contraction with its operands in these formats; None where no kernel could read them."""
        return None

    def is_transposed(self, op: Op, slot: Slot) -> bool:
        """Whether the last two axes of an operand of a matrix product are a transposed matrix."""
        return False

    # --- facts that passes read ---

    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        """The letters of the axes, in logical order, of the operands whose axes have roles."""
        found = letters_by_rank(op, self.letters)
        return {slot: f"N{each[2:]}C" for slot, each in found.items()} if self.is_channels_last(op) else found

    def is_channels_last(self, op: Op) -> bool:
        """Whether the images of an op are (N, *spatial, C) in place of (N, C, *spatial), so that no target has kernels."""
        return bool(op.integer("channels_last"))

    def concatenated_axis(self, op: Op) -> int | None:
        """The axis along which all inputs are concatenated to the result; None if the op does anything else."""
        return None

    def reduced_axes(self, op: Op) -> tuple[int, ...] | None:
        """The axes that a Reduce* reduces, sorted; none for other ops; None if they are computed."""
        return ()

    def averaged_axes(self, op: Op) -> frozenset[int] | None:
        """The axes along which results are means of elements of x, with weights that sum to one; None if it computes no means.

        Other axes are unchanged, so the result is x if the set is empty.
        """
        return None

    def shape_edits(self, op: Op, axis: int, extent: int) -> ShapeEdits:
        """Edits to shape operands, as {input: {position: value}}, when the extent of x along `axis` becomes `extent`.

        The edited elements have to be numbers already, in a constant or in a computed list. None if the op may not be edited.
        """
        return None

    def zero_pads(self, op: Op) -> Pads | None:
        """The zeros added around the first input, on axes of known extent; None if the op does anything else."""
        return None

    def fold_pads(self, op: Op, pads: Pads) -> Attributes | None:
        """The attributes with which the op pads its first input with these zeros too; None if there are none."""
        return None

    def affine(self, op: Op) -> Affine | None:
        """The affine map that the op is; None if it is none."""
        return None

    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """The constant inputs in float64, by index, with which the op computes the affine map too; None if it cannot."""
        return None

    def mapped_axis(self, op: Op) -> int | None:
        """The axis of the first input over which the op is a linear map with a constant matrix, by shapes and attributes alone.

        None if it is no such map.
        """
        return None

    def linear_map(self, op: Op) -> LinearMap | None:
        """The linear map over one axis; None if the op is none, or its numbers are not finite."""
        return None

    def with_linear_map(self, op: Op, map: LinearMap) -> dict[int, Array] | None:
        """The constant inputs with which the op computes another map over the same axis; None if there are none."""
        return None


# --- the registry ------------------------------------------------------------------------------------------------

_RULES: dict[str, LayoutRule] = {}


def register(rule: type[LayoutRule]) -> type[LayoutRule]:
    """Class decorator: register a rule for each of its op types.

    Raises:
        ValueError: an op type has another rule.
    """
    add_rule(rule())
    return rule


def add_rule(rule: LayoutRule) -> None:
    """Register a rule for each of its op types.

    Raises:
        ValueError: an op type has another rule.
    """
    for kind in rule.ops:
        if type(_RULES.setdefault(kind, rule)) is not type(rule):
            raise ValueError(f"two layout rules for {kind}")


EXTENSIONS = EntryPoints("layoutopt.ops", registered_by(register, LayoutRule))
"""Op types of installed packages, which are loaded when an op type has no built-in rule."""


def rule_of(op: Op) -> LayoutRule | None:
    """The rule for an op; None if there is none, or if the opset is below 7, whose ops broadcast and reshape differently."""
    if op.version < OLDEST_OPSET and not op.domain:
        return None
    return _RULES.get(op.kind) or EXTENSIONS.loaded_into(_RULES).get(op.kind)


_WITHOUT_RULE = LayoutRule(family="")


def flags(op: Op) -> LayoutRule:
    """The rule for an op, or one that declares nothing, for attributes; the ranks of operands may be unknown."""
    return rule_of(op) or _WITHOUT_RULE


def facts(op: Op) -> LayoutRule:
    """The rule for an op whose required operands are tensors of known rank, or one that declares no facts."""
    rule = flags(op)
    ranks = [None if value is None else value.rank for value in map(op.operand, (X, Y, *rule.required))]
    return _WITHOUT_RULE if None in ranks else rule


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
        return ZERO
    return FINITE if bool((np.abs(numbers.astype(np.float64)) <= LARGEST_FINITE).all()) else ANY


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
    return next(iter(padding_cases(rule, op, found, [ZERO] * len(op.inputs))), None)


def padding_cases(
    rule: LayoutRule, op: Op, signature: Signature, largest: Sequence[Padding] | None = None
) -> list[Signature]:
    """The signatures for all padding states of the inputs that the op accepts."""
    inputs, outputs = (
        [has_padding(value, storage) for value, storage in zip(values, storages, strict=True)]
        for values, storages in ((op.inputs, signature.inputs), (op.outputs, signature.outputs))
    )
    if not any(inputs + outputs):
        return [signature]
    padded = [index for index, has in enumerate(inputs) if has and not present(op.inputs[index]).is_constant]
    choices = [[state for state in Padding if largest is None or state <= largest[index]] for index in padded]
    # With more than two padded inputs all have one state: 3**n combinations are too many.
    cases = product(*choices) if len(padded) <= 2 else ((state,) * len(padded) for state in max(choices, key=len))
    found = []
    for case in cases:
        given = dict(zip(padded, case, strict=True))
        states = tuple(given.get(index, ZERO) for index in range(len(inputs)))
        results = rule.transfer_padding(op, signature, states)
        if results is not None:
            after = [state if has else ZERO for state, has in zip_longest(results, outputs, fillvalue=ANY)]
            found.append(Signature(_with_states(signature.inputs, states), _with_states(signature.outputs, after)))
    return found


def _with_states(storages: Sequence[Storage | None], states: Sequence[Padding]) -> tuple[Storage | None, ...]:
    return tuple(storage and Storage(storage.format, state) for storage, state in zip(storages, states, strict=True))


def _undominated(signatures: list[Signature]) -> list[Signature]:
    """The signatures that no other one dominates: one that accepts and leaves no worse padding; of equal ones the last."""
    kept: dict[tuple[int, ...], Signature] = {}
    for signature in reversed(signatures):
        own = _badness(signature)
        if not any(all(map(le, other, own)) for other in kept):
            kept = {other: each for other, each in kept.items() if not all(map(le, own, other))}
            kept[own] = signature
    return [*kept.values()][::-1]


def _badness(signature: Signature) -> tuple[int, ...]:
    """The padding states that outputs have, and those that inputs accept, negated: of two signatures the smaller is better."""
    accepted = (-storage.padding for storage in signature.inputs if storage is not None)
    return (*accepted, *(storage.padding for storage in signature.outputs if storage is not None))


# --- Lowering to one op of the same type on the physical arrays ---


def lower_directly(op: Op, build: OpBuilder, attributes: PhysicalAttributes, inputs: Sequence[Value | None]) -> None:
    """Write the same op on the physical arrays.

    Args:
        op: the op.
        build: records the new op.
        attributes: attributes that differ from those of the op; None for those that are left out.
        inputs: all inputs.
    """
    present = [index for index, value in enumerate(op.outputs) if value is not None]
    types = [build.output_type(index) for index in range(max(present, default=-1) + 1)]
    changed = {**op.attributes, **attributes}
    given = {name: each for name, each in changed.items() if each is not None}
    build.set_outputs(build.op(op.op_type, inputs, types, given))


# --- Ops whose result has the elements of their input, in the same or in another type ---


def is_copy(op: Op) -> bool:
    """Whether the output of an op is its input."""
    return op.kind == "Identity" or (op.kind == "Cast" and op.x.dtype is op.y.dtype is not None)


def is_type_conversion(op: Op) -> bool:
    """Whether an op only changes the element type."""
    return op.kind in ("Cast", "CastLike")


# --- Numeric behaviour that verification depends on ---
#
# An arbitrarily small difference of the input of TopK, Floor or Greater may change the result. Two versions of a model that
# differ in rounding are compared with equal results of such discontinuous ops (`verification`).


_DISCONTINUOUS = frozenset(
    {"Ceil", "Floor", "Hardmax", "MaxRoiPool", "Mod", "Round", "Shrink", "Sign", "ThresholdedRelu"}
)
"""Op types with discontinuous floating-point results; ops with integer or boolean results are discontinuous too."""


def discontinuous_inputs(op: Op) -> list[Value]:
    """The floating-point inputs of a discontinuous op; none for other ops and for quantisation."""
    if flags(op).is_shape_query or flags(op).is_quantized:
        return []
    has_integers = any(value.dtype is not None and not value.dtype.is_float for value in op.present_outputs)
    if op.op_type not in _DISCONTINUOUS and not has_integers:
        return []
    return [value for value in op.present_inputs if value.dtype is not None and value.dtype.is_float]
