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
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import ClassVar, Literal, Protocol, TypeAlias

from layoutopt.formats import Format, Shape
from layoutopt.ir.types import Array, Attribute, Lanes, Op, Signature, Slot, TensorType, Value
from layoutopt.ops.affine import Affine
from layoutopt.ops.channel_map import ChannelMap
from layoutopt.ops.modes import Modes
from layoutopt.ops.passage import Passage
from layoutopt.ops.signatures import Inapplicable, Known, X, Y, elements, is_canonical, padded_type
from layoutopt.registry import EntryPoints

Side: TypeAlias = Literal["in", "out"]
Padding: TypeAlias = dict[int, tuple[int, int]]
"""What is put before and behind an axis; axes that are left as they are do not appear."""

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


class LayoutRule(ABC):
    """The layout knowledge about a family of op types.

    Attributes:
        family: what cost models call these ops.
        ops: the op types, with their domain in front unless it is ai.onnx.
        is_anchor: the op wants formats of its own, those of the target's kernels. Others take what neighbours have.
        is_rename: the op moves no bytes; it gives the same bytes other axes.
        is_virtual: no runtime has the op, so that it is always respelled.
        is_fixed: the op runs in canonical formats alone; its rule is there for what else it says.
        is_quantised: the op is a step to or from integers of few bits, or one on such integers with their scales.
        is_independent: the format of one operand says nothing about the others, so combinations are worth a look.
        broadcasts: every operand is broadcast to the shape of the result, as numpy does.
        is_broadcast: the op does nothing but broadcast its first input.
        formats: in words, which formats its operands may have.
        becomes: in short, what becomes of lanes.
    """

    family: ClassVar[str]
    ops: ClassVar[tuple[str, ...]]
    is_anchor: ClassVar[bool] = False
    is_rename: ClassVar[bool] = False
    is_virtual: ClassVar[bool] = False
    is_fixed: ClassVar[bool] = False
    is_quantised: ClassVar[bool] = False
    is_independent: ClassVar[bool] = False
    broadcasts: ClassVar[bool] = False
    is_broadcast: ClassVar[bool] = False
    formats: ClassVar[str] = ""
    becomes: ClassVar[Passage] = Passage(Lanes.ANY, None, None)

    @abstractmethod
    def complete(self, op: Op, known: Known) -> Signature | Inapplicable:
        """The signature that has the given formats at the given slots; lanes are not considered yet."""

    def operand_classes(self, op: Op) -> Mapping[Slot, Hashable]:
        """The class of each operand that may have equals: `complete(op, {slot: format})` is the same for all of a class.

        Ops with any number of operands have them in few classes, so that the planner completes one signature per class and
        format instead of one per operand and format.
        """
        del op
        return {}

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """The lanes of the outputs for lanes of the inputs; None if the op does not work on such inputs.

        `inputs` has a state for every input, ZERO where it has no lanes. By default ops want no garbage and leave it.
        """
        del op, signature
        return None if any(inputs) else (Lanes.ANY,)

    def passage(self, kind: str) -> Passage:
        """In short, what becomes of the lanes of ops of one kind."""
        del kind
        return self.becomes

    def is_direct(self, op: Op, signature: Signature) -> bool:
        """Whether `lower` writes one op of the same type on the physical arrays."""
        del op
        return is_canonical(signature)

    def is_respelled(self, op: Op) -> bool:
        """Whether `lower` writes the op in canonical formats too, as runtimes do not get on with the spelling that it has."""
        del op
        return self.is_virtual

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

    def kernel_formats(self, op: Op, formats: Known) -> Known:
        """The formats as a kernel sees them, where it does not tell some others from them."""
        del op
        return formats

    def reordered(self, op: Op, base: Known, slot: Slot, format: Format) -> Known | None:
        """Formats of a kernel with an axis in an order of digits that an operand has and the kernel does not tell."""
        del op, base, slot, format
        return None

    def modes(self, op: Op, formats: Known) -> Modes | None:
        """What the op is as a contraction of two operands in these formats; None if it is none."""
        del op, formats
        return None

    def is_swapped(self, op: Op, slot: Slot) -> bool | None:
        """Whether the last two axes of an operand are a matrix the other way round; None if they are not a matrix."""
        del op, slot
        return False

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

    def zero_padding(self, op: Op) -> Padding | None:
        """The zeros that the op puts around its input, if it does nothing else, on axes of known extents."""
        del op
        return None

    def take_padding(self, op: Op, padding: Padding) -> dict[str, Attribute] | None:
        """New attributes with which the op puts these zeros around its input itself; None if it cannot."""
        del op, padding
        return None

    def mapped_axis(self, op: Op) -> int | None:
        """The axis over which the op is a linear map of constants, going by its shapes and attributes alone."""
        del op
        return None

    def channel_map(self, op: Op) -> ChannelMap | None:
        """The linear map over one axis that the op is, if it is one and its numbers are finite."""
        del op
        return None

    def with_channel_map(self, op: Op, map: ChannelMap) -> dict[int, Array] | None:
        """New constant inputs with which the op is another map over the same axis; None if it cannot be."""
        del op, map
        return None

    def averaged_axes(self, op: Op) -> frozenset[int] | None:
        """The axes along which the elements of the result are means of those of x, with weights that sum to one.

        Other axes stay as they are, so the result is x if there are none; None if the op is anything else.
        """
        del op
        return None

    def joined_axis(self, op: Op) -> int | None:
        """The axis along which the result is the inputs put together, if it is that."""
        del op
        return None

    def with_extent(self, op: Op, axis: int, extent: int) -> dict[int, dict[int, int]] | None:
        """Which elements of lists, by input and place, are others where x has another extent of an axis that is left alone.

        They are numbers now, whether the list is given or computed. None if the op cannot do the same to such an x.
        """
        del op, axis, extent
        return None

    def flops(self, op: Op) -> float:
        """Arithmetic operations, a multiply-add being two."""
        shapes = [value.shape for value in op.outputs if value is not None and value.shape is not None]
        return float(sum(map(elements, shapes)))


# --- the registry ------------------------------------------------------------------------------------------------

_RULES: dict[str, LayoutRule] = {}


def register(rule: type[LayoutRule]) -> type[LayoutRule]:
    """Class decorator: make a rule known for each of its op types.

    Raises:
        ValueError: an op type has another rule.
    """
    instance = rule()
    for kind in rule.ops:
        if type(_RULES.setdefault(kind, instance)) is not rule:
            raise ValueError(f"two layout rules for {kind}")
    return rule


def _registered(found: object) -> object:
    """Register what an entry point refers to: a rule, or a module whose import has registered its rules."""
    if isinstance(found, type) and issubclass(found, LayoutRule):
        return register(found)
    if isinstance(found, ModuleType):
        return found
    raise TypeError("is neither a class that derives from LayoutRule nor a module that registers such classes")


EXTENSIONS = EntryPoints("layoutopt.ops", _registered)
"""Op types of installed packages."""


@cache
def _all_rules() -> Mapping[str, LayoutRule]:
    """The rules with those of installed packages, which are looked for once an op type has no built-in rule."""
    EXTENSIONS.load_all()
    return _RULES


def rule_of(op: Op) -> LayoutRule | None:
    """The rule for an op, if there is one. Opsets before 7 broadcast and reshape by other means and are left alone."""
    if op.version < OLDEST_OPSET and not op.domain:
        return None
    return _RULES.get(op.kind) or _all_rules().get(op.kind)


def rules() -> dict[str, LayoutRule]:
    """Every op type that has a rule, in alphabetical order."""
    return dict(sorted(_all_rules().items()))
