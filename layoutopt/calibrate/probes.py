"""The kernels that calibration times: ops of networks in all formats of the target's kernels, and conversions.

The numbers of channels include odd ones and ones that are no multiple of a block. onnxruntime runs a plain convolution as a
blocked one between two reorders, which its time includes.
"""

from collections.abc import Iterator
from itertools import permutations
from string import Template

import onnx
import onnx_ir

from layoutopt import inference
from layoutopt.cost_models import RooflineModel
from layoutopt.cost_models.roofline import formats_of
from layoutopt.formats import Format
from layoutopt.ir.graph import DOMAIN, is_cast
from layoutopt.ir.types import DType, Op, Signature, TensorType
from layoutopt.kernel_times.kernels import LoweredKernel, RandomConstant
from layoutopt.ops import canonical_signature, rule_of

_OPSETS = {"": 20, "com.microsoft": 1, DOMAIN: 1}

_IMAGES = ((64, 112), (256, 56), (512, 14), (960, 7), (96, 56), (240, 28), (17, 30), (24, 56), (32, 8))
"""Channels, and pixels per side."""

_SEQUENCES = ((6, 197, 64), (12, 197, 64), (12, 49, 32), (3, 784, 32), (8, 100, 32), (3, 16, 64), (1, 1024, 96))
"""Heads, tokens, and channels per head."""

_OF_IMAGES = Template("""<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
images (
    float[1,$channels,$side,$side] x, float[1,3,$twice,$twice] colours, float[$half,$channels,1,1] w_point,
    float[$half,$channels,3,3] w_dense, float[$channels,1,3,3] w_depthwise, float[32,3,3,3] w_colours,
    float[$channels] w_scale
) => () <float[4] scales = {1.0, 1.0, 2.0, 2.0}, int64[2] image = {2, 3}, float zero = {0.0}>
{
    point = Conv (x, w_point)
    strided = Conv <strides = [2, 2]> (x, w_point)
    dense = Conv <pads = [1, 1, 1, 1]> (x, w_dense)
    depthwise = Conv <group = $channels, pads = [1, 1, 1, 1]> (x, w_depthwise)
    halved = Conv <group = $channels, pads = [1, 1, 1, 1], strides = [2, 2]> (x, w_depthwise)
    first = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (colours, w_colours)
    stem = Conv <pads = [1, 1, 1, 1]> (colours, w_colours)
    pooled = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x)
    mean = GlobalAveragePool (x)
    repeated = Resize <mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"> (x, , scales)
    linear = Resize <mode = "linear"> (x, , scales)
    aligned = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , scales)
    joined = Concat <axis = 1> (x, depthwise)
    reduced = ReduceMean (x, image)
    normalised = InstanceNormalization (x, w_scale, w_scale)
    scaled = Mul (x, mean)
    relu = Relu (x)
    sum = Add (x, depthwise)
    quotient = Div (x, depthwise)
    clip = Clip (x, zero)
    sigmoid = Sigmoid (x)
    hard_sigmoid = HardSigmoid (x)
    hard_swish = HardSwish (x)
    tanh = Tanh (x)
    erf = Erf (x)
    gelu = Gelu (x)
    sqrt = Sqrt (x)
    softplus = Softplus (x)
    quick_gelu = com.microsoft.QuickGelu (x)
    fast_gelu = com.microsoft.FastGelu (x)
}""")
_OF_SEQUENCES = Template("""<ir_version: 10, opset_import: ["" : 20]>
sequences (
    float[1,$tokens,$channels] x, float[1,$heads,$tokens,$head] q, float[1,$heads,$head,$tokens] k,
    float[$channels,$channels] w_square, float[$channels,$wide] w_wide, float[$channels] w_scale
) => () <int64[1] last = {-1}>
{
    square = MatMul (x, w_square)
    wide = MatMul (x, w_wide)
    normalised = LayerNormalization (x, w_scale, w_scale)
    reduced = ReduceMean (x, last)
    scores = MatMul (q, k)
    weights = Softmax (scores)
    attended = MatMul (weights, q)
}""")


def probes(model: RooflineModel) -> list[LoweredKernel]:
    """The kernels for a target: every op in the formats of each of its kernels, and conversions between them."""
    found = list(_conversions(f"NCHW{model.spec.block(DType.FLOAT32)}c"))
    for op in _ops():
        rule = rule_of(op)
        assert rule is not None
        signatures = [rule.signature(op, dict(formats)) for formats in model.preferred_formats(op)]
        legal = [each for each in signatures if isinstance(each, Signature)]
        found += [LoweredKernel.of(op, formats_of(op, each), _OPSETS) for each in legal or [canonical_signature(op)]]
    return list({each.key: each for each in found if each is not None}.values())


def price(kernel: LoweredKernel, model: RooflineModel) -> float:
    """The price of a kernel, in seconds."""
    op, signature = kernel.op, kernel.op.signature
    assert signature is not None
    if is_cast(op):
        source, target = signature.inputs[0], signature.outputs[0]
        assert source is not None and target is not None
        return model.conversion_seconds(op.x, source, target)
    return model.kernel_seconds(op, signature)


def _ops() -> Iterator[Op]:
    for channels, side in _IMAGES:
        yield from _parsed(_OF_IMAGES, channels=channels, half=channels // 2 + 8, side=side, twice=2 * side)
    for heads, tokens, head in _SEQUENCES:
        channels = heads * head
        yield from _parsed(_OF_SEQUENCES, heads=heads, tokens=tokens, head=head, channels=channels, wide=4 * channels)


def _parsed(text: Template, **extents: int) -> Iterator[Op]:
    """The ops of a model; its inputs whose names begin with `w` become constants."""
    model = onnx.parser.parse_model(text.substitute(extents))
    for node in model.graph.node:
        model.graph.output.add().name = node.output[0]
    graph = inference.lift(onnx_ir.from_proto(model))
    for value in graph.inputs:
        if value.name.startswith("w"):
            value.data = RandomConstant(tuple(map(int, value.shape or ())))
    yield from graph.ops


def _conversions(blocked: str) -> Iterator[LoweredKernel | None]:
    images = (((1, channels, side, side), ("NCHW", "NHWC", blocked)) for channels, side in _IMAGES)
    sequences = (((1, tokens, heads, head), ("NCHW", "NHCW", "NHWC")) for heads, tokens, head in _SEQUENCES)
    for shape, names in (*images, *sequences):
        for source, target in permutations([Format.parse(each, "NCHW") for each in names], 2):
            if not source.same_bytes(target, shape):
                yield LoweredKernel.of_conversion(TensorType(DType.FLOAT32, shape), source, target, _OPSETS)
