"""Recurrent networks.

    x (T, N, I)   w (D, G*H, I)   r (D, G*H, H)   b, lengths   states (D, N, H)   ->   y (T, D, N, H)   last states (D, N, H)

T steps, N samples, D directions. Libraries read x as T, N, I or as N, T, I, and write the directions of y next to each other:
T, N, D, H or N, T, D, H (cuDNN: CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, _BATCH_MAJOR_UNPACKED; oneDNN: tnc, ntc). So the
Transposes that exporters write around them, for batch-major data or for one vector of both directions, need not move bytes.
"""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Slot
from layoutopt.ops.base import LayoutRule, register
from layoutopt.ops.interfaces.axis_letters import AxisLetters, letters_by_rank
from layoutopt.ops.padding_state import padded_axes_of
from layoutopt.ops.padding_transfer import PADDING_REFUSED
from layoutopt.ops.signatures import (
    Inapplicable,
    OperandFormats,
    X,
    Y,
    estimated_extent,
    estimated_volume,
    format_text,
    signature_of,
)

_SAMPLES_FIRST = {X: Format.plain((1, 0, 2)), Y: Format.plain((2, 0, 1, 3))}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@register
class Recurrent(LayoutRule, AxisLetters):
    """LSTM, GRU and RNN, time-major as ONNX has them by default."""

    family = "recurrent"
    ops: ClassVar[tuple[str, ...]] = tuple(_GATES)
    is_anchor = True
    formats = "a format for each operand; kernels are time-major or batch-major, features innermost"
    padding = PADDING_REFUSED

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The known formats, the others canonical; batch-major order on x or y implies it on both."""
        if op.integer("layout"):
            return Inapplicable("onnxruntime has no batch-major kernel, so the result could not be verified")
        is_requested = any(known.get(slot) == format for slot, format in _SAMPLES_FIRST.items())
        present = {
            slot: format for slot, format in _SAMPLES_FIRST.items() if is_requested and op.operand(slot) is not None
        }
        signature = signature_of(op, {**present, **known})
        if isinstance(signature, Inapplicable):
            return signature
        for slot in op.slots():
            storage = signature[slot]
            if storage is not None and padded_axes_of(op.operand(slot), storage):
                return Inapplicable(f"{slot} would have padding in {format_text(op, slot, storage.format)}")
        return signature

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        x, y = ("NTC", "NTDC") if op.integer("layout") else ("TNC", "TDNC")
        return letters_by_rank(op, {X: (x,), Y: (y,)})

    def flops(self, op: Op) -> float:
        """Two per weight, step and sample."""
        x, *weights = op.inputs[:3]
        if x is None or x.shape is None or any(value is None or value.shape is None for value in weights):
            return 0.0
        steps, samples, _ = map(estimated_extent, x.shape)
        return (
            2.0
            * steps
            * samples
            * sum(estimated_volume(value.shape) for value in weights if value is not None and value.shape)
        )


__all__ = ["Recurrent"]
