"""CastData between plain and blocked orders."""

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import BlockedArrays, call
from layoutopt.ir.types import Op
from layoutopt.ops import X, Y

_REORDERED_CHANNELS = 4  # the kernels take multiples of that many channels only


def reorder(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """CastData between a plain and a blocked order; the channels may come first or last."""
    source, x = op.inputs[0], builder.raw(0)
    src, dst = builder.format(X), builder.format(Y)
    if (
        source is None
        or source.shape is None
        or x is None
        or src.same_bytes(dst, source.shape)
        or bool(arrays.feature_block(src)) == bool(arrays.feature_block(dst))
    ):
        return False
    blocked, plain = (src, dst) if arrays.feature_block(src) else (dst, src)
    batch, channels, *image = (part.axis for part in blocked.parts[:-1])
    last = plain.order == (batch, *image, channels)
    if not plain.is_plain or not (last or plain.order == (batch, channels, *image)):
        return False
    count = source.shape[channels]
    if not isinstance(count, int) or count % _REORDERED_CHANNELS:
        return False
    extents = (1,) * (2 - len(image)) + tuple(source.shape[axis] for axis in image)
    plain_shape = (source.shape[batch], *extents, count) if last else (source.shape[batch], count, *extents)
    if arrays.feature_block(dst):
        array = builder.reshape(x, plain_shape)
        result = call(builder, "ReorderInput", [array], arrays.declared(op, builder, Y), channels_last=int(last))
    else:
        result = call(builder, "ReorderOutput", [x], plain_shape, channels=count, channels_last=int(last))
    builder.set_output(0, result)
    return True
