"""Small networks whose results are proven op by op."""

import numpy as np
import onnx
from onnx import numpy_helper, parser

from layoutopt import optimize

KERAS = """
keras (float[BATCH,16,16,3] image) => (float[BATCH,8] scores)
<int64[2] pixels = {1, 2}, int64[8] border = {0, 0, 0, 0, 0, 1, 1, 0}, int64[2] rows = {-1, 16}>
{
   image_nchw = Transpose <perm = [0, 3, 1, 2]> (image)
   first = Conv <strides = [2, 2], pads = [0, 0, 1, 1]> (image_nchw, first_filter)
   first_nhwc = Transpose <perm = [0, 2, 3, 1]> (first)
   centred = Sub (first_nhwc, mean)
   scaled = Mul (centred, scale)
   shifted = Add (scaled, shift)
   active = HardSwish (shifted)
   padded = Pad (active, border)
   padded_nchw = Transpose <perm = [0, 3, 1, 2]> (padded)
   second = Conv <group = 16> (padded_nchw, depthwise_filter)
   second_nhwc = Transpose <perm = [0, 2, 3, 1]> (second)
   relu = Relu (second_nhwc)
   third_nchw = Transpose <perm = [0, 3, 1, 2]> (relu)
   third = Conv (third_nchw, third_filter, third_bias)
   third_nhwc = Transpose <perm = [0, 2, 3, 1]> (third)
   tanh = Tanh (third_nhwc)
   sum = Add (relu, tanh)
   means = ReduceMean <keepdims = 0> (sum, pixels)
   flat = Reshape (means, rows)
   product = MatMul (flat, matrix)
   scores = Softmax <axis = -1> (product)
}
"""
RESIDUAL = """
residual (float[BATCH,3,8,8] image) => (float[BATCH,8] scores)
{
   first = Conv <pads = [1, 1, 1, 1]> (image, stem, stem_bias)
   one = BatchNormalization (first, scale, shift, mean, variance)
   active = Relu (one)
   second = Conv (active, filter)
   two = BatchNormalization (second, scale, shift, mean, variance)
   sum = Add (two, active)
   relu = Relu (sum)
   pooled = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (relu)
   means = GlobalAveragePool (pooled)
   flat = Flatten (means)
   scores = Gemm <transB = 1> (flat, dense, dense_bias)
}
"""
GATED = """
gated (float[1,3,8,8] image) => (float[1,16,8,8] features)
{
   first = Conv <pads = [1, 1, 1, 1]> (image, stem, stem_bias)
   one = BatchNormalization (first, scale, shift, mean, variance)
   active = HardSwish (one)
   means = GlobalAveragePool (active)
   logits = Conv (means, squeeze, stem_bias)
   gate = HardSigmoid (logits)
   gated = Mul (active, gate)
   second = Conv (gated, filter)
   two = BatchNormalization (second, scale, shift, mean, variance)
   features = Tanh (two)
}
"""
MLP = """
mlp (float[BATCH,8,16] x) => (float[BATCH,8,16] y)
<float root = {1.4142135}, float one = {1}, float half = {0.5}>
{
   rows = LayerNormalization <axis = -1, epsilon = 0.00001> (x, scale, shift)
   wide = MatMul (rows, up)
   biased = Add (wide, up_bias)
   ratio = Div (biased, root)
   error = Erf (ratio)
   more = Add (error, one)
   product = Mul (biased, more)
   active = Mul (product, half)
   narrow = MatMul (active, down)
   centred = Add (narrow, shift)
   y = Add (centred, x)
}
"""
BRANCHES = """
branches (float[1,16,8,8] image) => (float[1,16,8,8] masks)
{
   one = Conv <pads = [1, 1, 1, 1]> (image, three, stem_bias)
   fine = LeakyRelu <alpha = 0.1> (one)
   pooled = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (fine)
   two = Conv (pooled, squeeze, stem_bias)
   coarse = Relu (two)
   all = Concat <axis = 1> (fine, coarse)
   last = Conv <pads = [1, 1, 1, 1]> (all, merge)
   masks = Sigmoid (last)
}
"""
NETWORKS = {"keras": KERAS, "residual": RESIDUAL, "gated": GATED, "mlp": MLP, "branches": BRANCHES}
WEIGHTS = {
    "first_filter": (16, 3, 3, 3),
    "depthwise_filter": (16, 1, 2, 2),
    "third_filter": (16, 16, 1, 1),
    "third_bias": (16,),
    "matrix": (16, 8),
    "stem": (16, 3, 3, 3),
    "stem_bias": (16,),
    "mean": (16,),
    "variance": (16,),
    "scale": (16,),
    "shift": (16,),
    "filter": (16, 16, 1, 1),
    "squeeze": (16, 16, 1, 1),
    "three": (16, 16, 3, 3),
    "merge": (16, 32, 3, 3),
    "dense": (8, 16),
    "dense_bias": (8,),
    "up": (16, 32),
    "up_bias": (32,),
    "down": (32, 16),
}


def network(name: str = "keras", batch: str = "1") -> onnx.ModelProto:
    """A network with random weights."""
    text = NETWORKS[name].replace("BATCH", batch)
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}')
    random = np.random.default_rng(0)
    read = {each for node in model.graph.node for each in node.input}
    for weight, shape in WEIGHTS.items():
        array = random.normal(size=shape).astype(np.float32)
        if weight in read:
            model.graph.initializer.append(
                numpy_helper.from_array(np.abs(array) if weight == "variance" else array, weight)
            )
    return model


def optimized(model: onnx.ModelProto, runtime: str) -> onnx.ModelProto:
    """The result for a runtime, without measurements."""
    return optimize(model, "cpu", runtime=runtime, measure=False, calibrate=False).proto
