"""Convolutions as `com.microsoft::NhwcConv`.

before: Conv, x and y in NHWC, w constant
after:  com.microsoft.NhwcConv, w stored as (O, H, W, I)
"""

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime_cuda.images import (
    DOMAIN,
    DTYPES,
    channels_last,
    image_type,
    is_channels_last,
    reshaped_to_nhwc,
)
from layoutopt.ir.types import Op, Slot
from layoutopt.ops import X, Y

NHWC_CONV = "NhwcConv"
_W = Slot("in", 1)


def write_convolution(op: Op, builder: OpBuilder) -> bool:
    """Record a 2-D convolution of images (N, H, W, C) with constant filters, in float32 or float16; False for others.

    The filters must be (O, H, W, I) in the plan, or have the same bytes.
    """
    x, w, y = op.inputs[0], op.inputs[1], op.outputs[0]
    if x is None or w is None or y is None or not w.is_constant or x.dtype not in DTYPES or x.rank != 4:
        return False
    if w.static_shape is None or not all(
        is_channels_last(builder, slot, value) for slot, value in ((X, x), (_W, w), (Y, y))
    ):
        return False
    bias = builder.declared_input(2) if len(op.inputs) > 2 else None
    inputs = [
        reshaped_to_nhwc(builder, x),
        builder.packed_constant(w, channels_last(4)),
        *([bias] if bias is not None else []),
    ]
    # Without the attribute, onnxruntime 1.32 infers shapes as for filters (O, I, H, W).
    attributes = {**op.attributes, "kernel_shape": w.static_shape[2:]}
    (result,) = builder.op(NHWC_CONV, inputs, [image_type(y)], attributes, DOMAIN)
    builder.set_output(0, result)
    return True


__all__ = ["NHWC_CONV", "write_convolution"]
