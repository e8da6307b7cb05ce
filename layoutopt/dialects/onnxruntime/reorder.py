"""Writer of CastData between plain and blocked formats."""

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import BlockedArrays, kernel_call
from layoutopt.ir.types import Op
from layoutopt.ops import X, Y

_REORDERED_CHANNELS = 4  # the kernels accept multiples of 4 channels only


def write_reorder(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a CastData between a plain format, with channels first or last, and a blocked one."""
    source, x = op.inputs[0], builder.declared_input(0)
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
    is_channels_last = plain.order == (batch, *image, channels)
    if not plain.is_plain or not (is_channels_last or plain.order == (batch, channels, *image)):
        return False
    count = source.shape[channels]
    if not isinstance(count, int) or count % _REORDERED_CHANNELS:
        return False
    extents = (1,) * (2 - len(image)) + tuple(source.shape[axis] for axis in image)
    plain_shape = (source.shape[batch], *extents, count) if is_channels_last else (source.shape[batch], count, *extents)
    if arrays.feature_block(dst):
        array = builder.reshape(x, plain_shape)
        result = kernel_call(
            builder, "ReorderInput", [array], arrays.declared(op, builder, Y), channels_last=int(is_channels_last)
        )
    else:
        result = kernel_call(
            builder, "ReorderOutput", [x], plain_shape, channels=count, channels_last=int(is_channels_last)
        )
    builder.set_output(0, result)
    return True
