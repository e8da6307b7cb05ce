"""CastData between plain and blocked orders."""

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import (
    call,
    declared,
    feature_block,
)
from layoutopt.ir.types import Op
from layoutopt.ops import X, Y

_REORDERED_CHANNELS = 4  # the kernels take multiples of that many channels only


def reorder(op: Op, builder: OpBuilder) -> bool:
    """CastData between a plain and a blocked order; the channels may come first or last."""
    source, x = op.inputs[0], builder.raw(0)
    src, dst = builder.format(X), builder.format(Y)
    if (
        source is None
        or source.shape is None
        or x is None
        or src == dst
        or bool(feature_block(src)) == bool(feature_block(dst))
    ):
        return False
    blocked, plain = (src, dst) if feature_block(src) else (dst, src)
    batch, channels, height, width = (part.axis for part in blocked.parts[:4])
    last = plain.order == (batch, height, width, channels)
    if not plain.is_plain or not (last or plain.order == (batch, channels, height, width)):
        return False
    count = source.shape[channels]
    if not isinstance(count, int) or count % _REORDERED_CHANNELS:
        return False
    target = declared(op, builder, Y)
    if feature_block(dst):
        result = call(builder, "ReorderInput", [x], target, channels_last=int(last))
    else:
        result = call(builder, "ReorderOutput", [x], target, channels=count, channels_last=int(last))
    builder.set_output(0, result)
    return True
