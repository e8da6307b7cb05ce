"""Attention and recurrent networks."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from typing_extensions import override

from layoutopt.formats import Format
from layoutopt.ir.types import Attribute, Op, Signature, Slot, TensorType, Value
from layoutopt.ops.base import Builder, LayoutRule, padded_axes_of, register
from layoutopt.ops.interfaces import letters_by_rank
from layoutopt.ops.signatures import (
    PADDING_REFUSED,
    Inapplicable,
    OperandFormats,
    X,
    Y,
    estimated_extent,
    format_text,
    is_canonical,
    present,
    present_type,
    shape_of,
    signature_of,
    volume_of,
)

# --- Attention with heads on an axis of their own ---
#
#     q (B, H, S, D)   k (B, G, L, D)   v (B, G, L, E)   ->   y (B, H, S, E)          Attention
#     x (B, H, S, D)                                     ->   y (B, H, S, D)          RotaryEmbedding
#
# Both ops have a second form, (B, S, H*D), which is the same bytes as the first form in the order (B, S, H, D). So heads
# that an exporter splits and transposes need not be moved. Either all operands with heads have that order, or none.


_BSHD = Format.plain((0, 2, 1, 3))
_HEADS = 1  # the axis


class MultiHeadRule(LayoutRule):
    """An op that accepts (B, S, H*D) in place of (B, H, S, D)."""

    operands_with_heads: ClassVar[tuple[Slot, ...]]
    """The operands with an axis of heads."""

    formats = "(B, H, S, D), or (B, S, H, D) for all operands with heads"
    padding = PADDING_REFUSED
    is_always_agnostic = True

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        return letters_by_rank(op, dict.fromkeys(self.operands_with_heads, ("NSC", "NHSD")))

    @override
    def inapplicability(self, op: Op) -> str:
        shapes = [shape_of(op.operand(slot)) for slot in self.operands_with_heads]
        if any(len(shape) != 4 for shape in shapes):
            return "the heads do not have an axis of their own"
        is_known = all(isinstance(shape[axis], int) for shape in shapes for axis in (1, 3))
        return "" if is_known else "the number of heads or their size is unknown"

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The order (B, S, H, D) on all operands with heads, if the known formats agree."""
        signature = signature_of(op, dict.fromkeys(self.operands_with_heads, _BSHD))
        if isinstance(signature, Inapplicable):
            return signature
        for slot, format in known.items():
            value, storage = op.operand(slot), signature[slot]
            if value is None or value.shape is None or storage is None or not format.fits(value.shape):
                return Inapplicable(f"{format_text(op, slot, format)} does not fit {slot}")
            if not format.same_bytes(storage.format, value.shape):
                return Inapplicable(
                    f"heads are the second axis or the third in memory, not as in {value.format_text(format)}"
                )
        return signature

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """The order (B, S, H, D) also where it is the canonical format for the shape."""
        formats = super().physical_formats(op)
        if op.signature is None or is_canonical(op.signature):
            return formats
        return {**formats, **dict.fromkeys(self.operands_with_heads, _BSHD)}

    @override
    def lower(self, op: Op, build: Builder) -> None:
        inputs = [build.input(index) for index in range(len(op.inputs))]
        for index in (slot.index for slot in self.operands_with_heads if slot.side == "in"):
            inputs[index] = _with_merged_heads(build, inputs[index])
        types = [build.output_type(index) for index in range(len(op.outputs))]
        target = present_type(types[0])
        shape = shape_of(target)
        types[0] = TensorType(target.dtype, (*shape[:2], estimated_extent(shape[2]) * estimated_extent(shape[3])))
        results = iter(build.op(op.op_type, inputs, types, {**op.attributes, **self.head_counts(op)}))
        build.set_output(0, build.reshape(next(results), shape))
        for index, type in enumerate(types[1:], 1):
            if type is not None:
                build.set_output(index, next(results))

    def head_counts(self, op: Op) -> Mapping[str, Attribute]:
        """The attributes with the numbers of heads."""
        return {"num_heads": _head_count(op, X)}


def _head_count(op: Op, slot: Slot) -> int:
    return estimated_extent(shape_of(op.operand(slot))[_HEADS])


def _with_merged_heads(build: Builder, value: Value | None) -> Value:
    """(B, S, H, D) as (B, S, H*D)."""
    batch, length, heads, size = shape_of(value)
    return build.reshape(present(value), (batch, length, estimated_extent(heads) * estimated_extent(size)))


@register
class Attention(MultiHeadRule):
    """Attention of the standard domain; masks and caches stay canonical."""

    family = "attention"
    ops = ("Attention",)
    operands_with_heads = (Slot("in", 0), Slot("in", 1), Slot("in", 2), Slot("out", 0))

    def head_counts(self, op: Op) -> Mapping[str, Attribute]:
        """The numbers of heads of queries, and of keys and values."""
        return {"q_num_heads": _head_count(op, Slot("in", 0)), "kv_num_heads": _head_count(op, Slot("in", 1))}

    @override
    def flops(self, op: Op) -> float:
        return attention_flops(op)


def attention_flops(op: Op) -> float:
    """Two per key for every element of q and of y; 0 if a shape is unknown."""
    q, k, y = op.input(0), op.input(1), op.outputs[0]
    keys = k.shape[-2] if k is not None and k.shape is not None and len(k.shape) > 1 else 0
    return 2.0 * estimated_extent(keys) * (volume_of(q) + volume_of(y)) if volume_of(q) and volume_of(y) else 0.0


@register
class RotaryEmbedding(MultiHeadRule):
    """Rotation of pairs of elements of a head by an angle that depends on the position in the sequence."""

    family = "rotary_embedding"
    ops = ("RotaryEmbedding", "com.microsoft::RotaryEmbedding")
    operands_with_heads = (X, Y)


# --- The fused attention op of onnxruntime ---
#
#     q (B, S, H*D)   k (B, L, H*D)   v (B, L, H*E)   mask (B or 1, H or 1, S, L)   ->   y (B, S, H*E)
#
# Its only signature is the canonical one; the rule declares the number of operations.


@register
class MultiHeadAttention(LayoutRule):
    """Canonical formats only."""

    family = "attention"
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::MultiHeadAttention",)
    formats = "canonical"
    padding = PADDING_REFUSED
    letters = MappingProxyType(dict.fromkeys((*(Slot("in", index) for index in range(3)), Y), ("NSC",)))

    @override
    def flops(self, op: Op) -> float:
        are_rows = all(value is not None and value.rank == 3 for value in (op.input(0), op.input(1), op.outputs[0]))
        return attention_flops(op) if are_rows else super().flops(op)


# --- Recurrent networks ---
#
#     x (T, N, I)   w (D, G*H, I)   r (D, G*H, H)   b, lengths   states (D, N, H)   ->   y (T, D, N, H)   last states (D, N, H)
#
# T steps, N samples, D directions. Libraries read x as T, N, I or as N, T, I, and write the directions of y next to each
# other: T, N, D, H or N, T, D, H (cuDNN: CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, _BATCH_MAJOR_UNPACKED; oneDNN: tnc,
# ntc). So the Transposes that exporters write around them, for batch-major data or for one vector of both directions, need
# not move bytes.


_SAMPLES_FIRST = {X: Format.plain((1, 0, 2)), Y: Format.plain((2, 0, 1, 3))}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@register
class Recurrent(LayoutRule):
    """LSTM, GRU and RNN, time-major as ONNX has them by default."""

    family = "recurrent"
    ops: ClassVar[tuple[str, ...]] = tuple(_GATES)
    is_anchor = True
    formats = "a format for each operand; kernels are time-major or batch-major, features innermost"
    padding = PADDING_REFUSED

    @override
    def inapplicability(self, op: Op) -> str:
        is_batch_major = op.integer("layout")
        return "onnxruntime has no batch-major kernel, so the result could not be verified" if is_batch_major else ""

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The known formats, the others canonical; batch-major order on x or y implies it on both."""
        is_requested = any(known.get(slot) == format for slot, format in _SAMPLES_FIRST.items())
        present = {
            slot: format for slot, format in _SAMPLES_FIRST.items() if is_requested and op.operand(slot) is not None
        }
        return signature_of(op, {**present, **known})

    def misfit(self, op: Op, signature: Signature) -> str:
        """The reason if an operand would have padding."""
        for slot in op.slots():
            storage = signature[slot]
            if storage is not None and padded_axes_of(op.operand(slot), storage):
                return f"{slot} would have padding in {format_text(op, slot, storage.format)}"
        return ""

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        x, y = ("NTC", "NTDC") if op.integer("layout") else ("TNC", "TDNC")
        return letters_by_rank(op, {X: (x,), Y: (y,)})

    def flops(self, op: Op) -> float:
        """Two per weight, step and sample."""
        x, *weights = op.inputs[:3]
        if x is None or x.shape is None or not all(map(volume_of, weights)):
            return 0.0
        steps, samples, _ = map(estimated_extent, x.shape)
        return 2.0 * steps * samples * sum(map(volume_of, weights))
