"""Attention with heads on an axis of their own.

    q (B, H, S, D)   k (B, G, L, D)   v (B, G, L, E)   ->   y (B, H, S, E)          Attention
    x (B, H, S, D)                                     ->   y (B, H, S, D)          RotaryEmbedding

Both ops have a second form with the heads side by side, (B, S, H*D), which is the format (B, S, H, D) of the first: what
exporters transpose into heads need not be moved. Either all operands lie that way, or none.
"""

from collections.abc import Mapping
from typing import ClassVar

from layoutopt.formats import Dim, Format
from layoutopt.ir.types import Attribute, Op, Signature, Slot, TensorType, Value
from layoutopt.ops.base import Builder, LayoutRule, register
from layoutopt.ops.passage import NO_LANES
from layoutopt.ops.signatures import Inapplicable, Known, X, Y, elements, extent, is_canonical, signature_of

_SIDE_BY_SIDE = Format.plain((0, 2, 1, 3))
_HEADS = 1  # the axis


class Heads(LayoutRule):
    """An op with a form for heads side by side."""

    headed: ClassVar[tuple[Slot, ...]]
    """The operands with an axis of heads."""

    formats = "(B, H, S, D), or (B, S, H, D) for all operands with heads"
    becomes = NO_LANES

    def complete(self, op: Op, known: Known) -> Signature | Inapplicable:
        """All operands with heads side by side, if one of them is asked to be."""
        values = [op.operand(slot) for slot in self.headed]
        if any(value is None or value.shape is None or len(value.shape) != 4 for value in values):
            return Inapplicable("the heads are not known to have an axis of their own")
        if not all(isinstance(value.shape[axis], int) for value in values if value and value.shape for axis in (1, 3)):
            return Inapplicable("the number of heads or their size is unknown")
        signature = signature_of(op, dict.fromkeys(self.headed, _SIDE_BY_SIDE))
        if isinstance(signature, Inapplicable):
            return signature
        for slot, format in known.items():
            value, storage = op.operand(slot), signature[slot]
            if value is None or value.shape is None or storage is None or not format.fits(value.shape):
                return Inapplicable(f"{format} does not fit {slot}")
            if not format.same_bytes(storage.format, value.shape):
                return Inapplicable(f"heads are the second axis or lie side by side, not as in {format}")
        return signature

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """Side by side also where that is canonical for the shape."""
        formats = super().physical_formats(op)
        if op.signature is None or is_canonical(op.signature):
            return formats
        return {**formats, **dict.fromkeys(self.headed, _SIDE_BY_SIDE)}

    def is_direct(self, op: Op, signature: Signature) -> bool:
        """Always: one of its forms."""
        return True

    def lower(self, op: Op, build: Builder) -> None:
        """The form with three axes."""
        inputs = [build.input(index) for index in range(len(op.inputs))]
        for index in (slot.index for slot in self.headed if slot.side == "in"):
            inputs[index] = _joined(build, inputs[index])
        types = [build.output_type(index) for index in range(len(op.outputs))]
        target = types[0]
        assert target is not None and target.shape is not None
        types[0] = TensorType(target.dtype, (*target.shape[:2], extent(target.shape[2]) * extent(target.shape[3])))
        results = iter(build.op(op.op_type, inputs, types, {**op.attributes, **self.counts(op)}))
        build.set_output(0, build.reshape(next(results), target.shape))
        for index, type in enumerate(types[1:], 1):
            if type is not None:
                build.set_output(index, next(results))

    def counts(self, op: Op) -> Mapping[str, Attribute]:
        """The attributes that say how many heads there are."""
        return {"num_heads": _heads(op, X)}


def _heads(op: Op, slot: Slot) -> int:
    value = op.operand(slot)
    assert value is not None and value.shape is not None
    return extent(value.shape[_HEADS])


def _joined(build: Builder, value: Value | None) -> Value:
    """(B, S, H, D) as (B, S, H*D)."""
    assert value is not None and value.shape is not None
    batch, length, heads, size = value.shape
    shape: tuple[Dim, ...] = (batch, length, extent(heads) * extent(size))
    return build.reshape(value, shape)


@register
class Attention(Heads):
    """Attention of the standard domain; masks and caches stay as they are."""

    family = "attention"
    ops = ("Attention",)
    headed = (Slot("in", 0), Slot("in", 1), Slot("in", 2), Slot("out", 0))

    def counts(self, op: Op) -> Mapping[str, Attribute]:
        """Those of queries, and those of keys and values."""
        return {"q_num_heads": _heads(op, Slot("in", 0)), "kv_num_heads": _heads(op, Slot("in", 1))}

    def flops(self, op: Op) -> float:
        """Two per element of q and of y, and key; nothing where heads have no axis of their own."""
        q, k, y = op.inputs[0], op.inputs[1], op.outputs[0]
        shapes = [value.shape for value in (q, k, y) if value is not None and value.shape is not None]
        if len(shapes) < 3:
            return 0.0
        return 2.0 * extent(shapes[1][-2]) * (elements(shapes[0]) + elements(shapes[2]))


@register
class RotaryEmbedding(Heads):
    """Every pair of elements of a head turned by an angle that depends on its place in the sequence."""

    family = "rotary_embedding"
    ops = ("RotaryEmbedding", "com.microsoft::RotaryEmbedding")
    headed = (X, Y)


__all__ = ["Attention", "RotaryEmbedding"]
