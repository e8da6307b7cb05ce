"""Writes a Pad of dequantised integers as the pads of the integer convolution that reads it.

before: q -> DequantizeLinear -> Pad -> QuantizeLinear -> QLinearConv(channels_last)
after:  q -> QLinearConv(channels_last, more pads)

Both Q/DQ ops have the same scale and zero point. The Pad then writes zeros, which are quantised to the zero point, and so does
the convolution: the integers are the same.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.ops.qdq import is_dequantizer, is_lossless_round_trip, is_quantizer
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class AbsorbPads(Pass):
    """Move Pads between Q/DQ ops into the channels-last QLinearConv behind them."""

    name = "absorb-integer-pads"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the channels-last QLinearConvs."""
        for op in graph.ops:
            if op.kind == "com.microsoft::QLinearConv" and op.integer("channels_last"):
                _absorb(graph, op)


def _absorb(graph: Graph, conv: Op) -> None:
    quantizer = graph.only_producer(conv.inputs[0])
    pad = graph.only_producer(quantizer.inputs[0]) if quantizer is not None and is_quantizer(quantizer) else None
    dequantizer = graph.producer(pad.inputs[0]) if pad is not None and pad.inputs[0] is not None else None
    if quantizer is None or pad is None or pad.kind != "Pad" or dequantizer is None or not is_dequantizer(dequantizer):
        return
    x, image = dequantizer.inputs[0], conv.inputs[0]
    added = _spatial_pads(pad)
    if added is None or x is None or image is None or x.dtype is not image.dtype:
        return
    if conv.attributes.get("auto_pad", "NOTSET") != "NOTSET" or not _keeps_integers(quantizer, dequantizer):
        return
    present = conv.integers("pads") or (0,) * len(added)
    if len(present) != len(added):
        return
    conv.attributes["pads"] = tuple(old + new for old, new in zip(present, added, strict=True))
    graph.set_input(conv, 0, x)
    graph.remove_if_dead(quantizer)


def _keeps_integers(quantizer: Op, dequantizer: Op) -> bool:
    """Whether the QuantizeLinear inverts the DequantizeLinear, per tensor; the Pad changes the shape in between."""
    scale = quantizer.constant(1)
    if scale is None or scale.size != 1:
        return False
    padded, plain = quantizer.outputs[0], dequantizer.inputs[0]
    assert padded is not None and plain is not None
    same_shape = quantizer.copy(quantizer.inputs, (plain,))
    return is_lossless_round_trip(same_shape, dequantizer)


def _spatial_pads(pad: Op) -> tuple[int, ...] | None:
    """The zeros that a Pad adds to the spatial axes of (N, *spatial, C): begins, then ends. None if it adds more than those."""
    x = pad.inputs[0]
    widths = pad.constant(1) if len(pad.inputs) > 1 else None
    has_value = len(pad.inputs) > 2 and pad.inputs[2] is not None
    value = pad.constant(2)
    if x is None or x.rank is None or widths is None or len(pad.inputs) > 3 or widths.size != 2 * x.rank:
        return None
    if pad.attributes.get("mode", "constant") != "constant" or (has_value and (value is None or value.any())):
        return None
    numbers = [int(each) for each in widths.reshape(-1)]
    begins, ends = numbers[: x.rank], numbers[x.rank :]
    if min(numbers) < 0 or begins[0] or begins[-1] or ends[0] or ends[-1]:
        return None
    return (*begins[1:-1], *ends[1:-1])
