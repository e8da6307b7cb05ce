"""Definition of onnxruntime's convolution in NHWC, which it has on CUDA alone: `com.microsoft::NhwcConv`.

Images are stored as (N, H, W, C), filters as (O, H, W, I).
"""

from collections.abc import Mapping, Sequence

from layoutopt.runtime.definitions.body import Attributes, Body, Definition

CHANNELS_FIRST = [0, 3, 1, 2]
CHANNELS_LAST = [0, 2, 3, 1]


def _nhwc_conv(body: Body, inputs: Sequence[str], attributes: Attributes) -> tuple[str, ...]:
    """The convolution between Transposes."""
    x, w, *bias = inputs
    operands = [body("Transpose", each, perm=CHANNELS_FIRST) for each in (x, w)]
    return (body("Transpose", body("Conv", *operands, *bias, **attributes), perm=CHANNELS_LAST),)


DEFINITIONS: Mapping[str, Definition] = {"NhwcConv": _nhwc_conv}
"""By operator of the domain `com.microsoft`."""

__all__ = ["CHANNELS_FIRST", "CHANNELS_LAST", "DEFINITIONS"]
