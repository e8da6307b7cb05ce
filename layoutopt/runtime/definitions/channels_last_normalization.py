"""Definitions of `com.microsoft::GroupNorm` and `SkipGroupNorm`, which onnxruntime has on CUDA alone, for images in NHWC.

    s = x + skip + bias                     SkipGroupNorm; s = x for GroupNorm
    y = normalised(s) * gamma + beta        every group of channels of a sample with mean 0 and variance 1
    y = y * Sigmoid(y)                      if activation = 1

Images are stored as (N, H, W, C). The sum is rounded to the type of x; everything behind it is float32, as in the kernels.
"""

from collections.abc import Mapping, Sequence

import onnx

from layoutopt.runtime.definitions.body import Attributes, Body, Definition
from layoutopt.runtime.definitions.channels_last_convolution import CHANNELS_FIRST, CHANNELS_LAST

_FLOAT = onnx.TensorProto.FLOAT


def _group_norm(body: Body, inputs: Sequence[str], attributes: Attributes) -> tuple[str, ...]:
    """The normalised image."""
    x, gamma, beta = inputs
    return (_normalised(body, x, gamma, beta, attributes),)


def _skip_group_norm(body: Body, inputs: Sequence[str], attributes: Attributes) -> tuple[str, ...]:
    """The normalised sum, and the sum, made in (N, H * W, 1, C): the skip is (N, H, W, C), (N, 1, 1, C) or (N, C)."""
    x, gamma, beta, skip, *bias = inputs
    batch, _, _, channels = body.extents(x)
    image, residual = (body.shaped(each, batch, body.ints(-1, 1), channels) for each in (x, skip))
    for each in (*bias, residual):
        image = body("Add", image, each)
    total = body("Reshape", image, body("Shape", x))
    return _normalised(body, total, gamma, beta, attributes), total


def _normalised(body: Body, x: str, gamma: str, beta: str, attributes: Attributes) -> str:
    """The operators of an exporter, in (N, C, H, W), then the activation."""
    groups, is_last = attributes["groups"], attributes.get("channels_last", 1)
    image = body("Cast", x, to=_FLOAT)
    image = body("Transpose", image, perm=CHANNELS_FIRST) if is_last else image
    grouped = body.shaped(image, body.extents(image)[0], body.ints(groups, -1))
    one, zero = (body.constant([number] * groups, _FLOAT) for number in (1.0, 0.0))
    y = body("InstanceNormalization", grouped, one, zero, epsilon=attributes.get("epsilon", 1e-5))
    y = body("Reshape", y, body("Shape", image))
    for op_type, numbers in (("Mul", gamma), ("Add", beta)):
        y = body(op_type, y, body.shaped(body("Cast", numbers, to=_FLOAT), body.ints(-1, 1, 1)))
    y = body("Transpose", y, perm=CHANNELS_LAST) if is_last else y
    y = body("Mul", y, body("Sigmoid", y)) if attributes["activation"] else y
    return body.cast_like(y, "x0")


DEFINITIONS: Mapping[str, Definition] = {"GroupNorm": _group_norm, "SkipGroupNorm": _skip_group_norm}
"""By operator of the domain `com.microsoft`."""

__all__ = ["DEFINITIONS"]
