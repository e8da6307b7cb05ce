"""Images in NHWC for onnxruntime's CUDA kernels, which are operators of the domain `com.microsoft`."""

from layoutopt.dialects.builder import OpBuilder
from layoutopt.formats import Format, Shape, product
from layoutopt.ir.types import DType, Slot, TensorType, Value

DOMAIN = "com.microsoft"
DTYPES = (DType.FLOAT32, DType.FLOAT16)


def channels_last(rank: int) -> Format:
    """The format with axis 1 innermost: NHWC for four axes."""
    return Format.plain((0, *range(2, rank), 1))


def is_channels_last(builder: OpBuilder, slot: Slot, value: Value) -> bool:
    """Whether an operand has the same bytes as in that format, as a filter of one pixel in (O, I, H, W) has."""
    shape = value.shape
    return shape is not None and len(shape) > 1 and builder.format(slot).same_bytes(channels_last(len(shape)), shape)


def image_shape(value: Value) -> Shape:
    """The shape (N, H, W, C) of an array of a tensor of the planned graph.

    A signal (N, C, L) is L high and 1 wide; further axes are part of the width.
    """
    assert value.shape is not None
    batch, channels, *extents = value.shape
    height, *width = extents or [1]
    return (batch, height, product(width), channels)


def reshaped_to_nhwc(builder: OpBuilder, value: Value) -> Value:
    """The first input, reshaped to (N, H, W, C); `value` is the input in the planned graph."""
    array = builder.declared_input(0)
    assert array is not None
    return builder.reshape(array, image_shape(value))


def image_type(value: Value) -> TensorType:
    """The type of an array (N, H, W, C) of a tensor of the planned graph."""
    assert value.dtype is not None
    return TensorType(value.dtype, image_shape(value))


__all__ = ["DOMAIN", "DTYPES", "channels_last", "image_shape", "image_type", "is_channels_last", "reshaped_to_nhwc"]
