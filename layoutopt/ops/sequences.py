"""Attention and recurrent networks."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from typing_extensions import override

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Slot
from layoutopt.ops.base import LayoutRule, register
from layoutopt.ops.interfaces import letters_by_rank
from layoutopt.ops.signatures import (
    PADDING_REFUSED,
    Inapplicable,
    OperandFormats,
    X,
    Y,
    estimated_extent,
    signature_of,
    volume_of,
)

# --- Attention in canonical formats: the rule declares the number of operations ---
#
#     q (B, H, S, D)   k (B, G, L, D)   v (B, G, L, E)   ->   y (B, H, S, E)      Attention
#     q (B, S, H*D)    k (B, L, H*D)    v (B, L, H*E)    ->   y (B, S, H*E)       both op types


@register
class Attention(LayoutRule):
    """Canonical formats only."""

    family = "attention"
    ops = ("Attention", "com.microsoft::MultiHeadAttention")
    formats = "canonical"
    padding = PADDING_REFUSED
    letters = MappingProxyType(dict.fromkeys((*(Slot("in", index) for index in range(3)), Y), ("NSC", "NHSD")))

    @override
    def flops(self, op: Op) -> float:
        """Two per key for every element of q and of y; one per element of y if a shape is unknown."""
        q, k, y = op.input(0), op.input(1), op.outputs[0]
        ranks = {None if value is None else value.rank for value in (q, k, y)}
        if k is None or k.shape is None or ranks not in ({3}, {4}):
            return super().flops(op)
        return 2.0 * estimated_extent(k.shape[-2]) * (volume_of(q) + volume_of(y))


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
