"""Group normalisations as `com.microsoft::GroupNorm`.

before: GroupNormalization, or the pseudo-op that replaces an exporter's decomposition of it; x and y in NHWC
after:  com.microsoft.GroupNorm, scale and bias per channel in float32

A thread of the kernel computes two channels, which are in one group; a block computes whole groups, at most 512 channels.
"""

import numpy as np

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime_cuda.images import DOMAIN, DTYPES, image_type, is_channels_last, reshaped_to_nhwc
from layoutopt.dialects.promotion import code_of
from layoutopt.ir.types import DType, Op, TensorType, Value
from layoutopt.ops import X, Y

GROUP_NORM = "GroupNorm"
_CHANNELS_PER_THREAD = 2
_MAX_GROUP_SIZE = 512


def write_group_normalization(op: Op, builder: OpBuilder) -> bool:
    """Record a normalisation of images (N, H, W, C), signals or volumes; returns False if the kernel does not support it.

    The kernel supports float32 and float16, channels last, constant extents of channels, and the group sizes of `has_kernel`.
    """
    x, y, groups = op.inputs[0], op.outputs[0], op.integer("num_groups")
    if x is None or y is None or x.shape is None or x.dtype not in DTYPES:
        return False
    if not is_channels_last(builder, X, x) or not is_channels_last(builder, Y, y):
        return False
    channels, epsilon = x.shape[1], op.attributes.get("epsilon", 1e-5)
    if not isinstance(channels, int) or not has_kernel(channels, groups) or 0 in x.shape:
        return False
    if not isinstance(epsilon, float | int) or epsilon < 0:
        return False
    scale, bias = (_parameter(op, builder, index, channels) for index in (1, 2))
    if scale is None or bias is None:
        return False
    attributes = {"epsilon": epsilon, "groups": groups, "activation": 0, "channels_last": 1}
    (result,) = builder.op(GROUP_NORM, [reshaped_to_nhwc(builder, x), scale, bias], [image_type(y)], attributes, DOMAIN)
    builder.set_output(0, result)
    return True


def has_kernel(channels: int, groups: int) -> bool:
    """Whether the kernel supports the group size, which is the number of channels divided by the number of groups."""
    if groups <= 0 or channels % groups:
        return False
    size = channels // groups
    return size % _CHANNELS_PER_THREAD == 0 and size <= _MAX_GROUP_SIZE


def _parameter(op: Op, builder: OpBuilder, index: int, channels: int) -> Value | None:
    """Scale or bias, input `index`, in float32.

    None unless it has one number per channel; before opset 21 it has one per group.
    """
    numbers = op.constant(index)
    if numbers is not None:
        return (
            builder.constant(numbers.astype(np.float32), stem="scale_or_bias") if numbers.shape == (channels,) else None
        )
    value = builder.declared_input(index)
    if value is None or value.shape != (channels,) or value.dtype is DType.FLOAT32:
        return value if value is not None and value.shape == (channels,) else None
    (converted,) = builder.op("Cast", [value], [TensorType(DType.FLOAT32, (channels,))], {"to": code_of(DType.FLOAT32)})
    return converted


__all__ = ["GROUP_NORM", "has_kernel", "write_group_normalization"]
