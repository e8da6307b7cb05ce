"""Samples for the laws of layout rules: the fused ops that onnxruntime's optimiser writes."""

from collections.abc import Iterator

import numpy as np
import onnx
from test_rules_handmade import Sample, family, floats, made, random


@family
def _convolutions() -> Iterator[Sample]:
    x, w = (2, 17, 5, 5), (19, 17, 3, 3)
    activations = (
        'activation="Relu"',
        'activation="Tanh"',
        'activation="Sigmoid"',
        'activation="LeakyRelu", activation_params=[0.2]',
        'activation="Clip", activation_params=[0.0, 6.0]',
        'activation="Clip", activation_params=[0.5, 6.0]',
        'activation="HardSigmoid", activation_params=[0.2, 0.5]',
    )
    for activation in activations:
        yield made(f"y = com.microsoft.FusedConv <{activation}> (x, w, b)", x=x, w=w, b=(19,))
        text = f"y = com.microsoft.FusedConv <pads=[1,1,1,1], {activation}> (x, w, b, z)"
        yield made(text, x=x, w=w, b=(19,), z=(2, 19, 5, 5))
        text = f"y = com.microsoft.FusedConv <strides=[2,2], {activation}> (x, w, , z)"
        yield made(text, x=x, w=w, z=(2, 19, 2, 2), opset=10)
    relu = 'activation="Relu"'
    yield made(f"y = com.microsoft.FusedConv <{relu}, group=17> (x, w, b)", x=x, w=(17, 1, 3, 3), b=(17,))
    yield made(f"y = com.microsoft.FusedConv <{relu}, group=2> (x, w, b)", x=(1, 32, 4, 4), w=(48, 16, 2, 2), b=(48,))
    yield made(f"y = com.microsoft.FusedConv <{relu}> (x, w, , z)", x=(1, 16, 1, 1), w=(32, 16, 1, 1), z=(1, 32, 1, 1))
    yield made(f"y = com.microsoft.FusedConv <{relu}> (x, w)", x=(2, 5, 9), w=(6, 5, 3))


@family
def _products() -> Iterator[Sample]:
    for kind in ("FusedMatMul", "TransposeMatMul"):
        text = f"y = com.microsoft.{kind} <{{}}> (a, b)"
        yield made(text.format("alpha=0.5"), a=(2, 5, 17), b=(17, 3))
        yield made(text.format("transA=1"), a=(2, 3, 17, 5), b=(2, 3, 17, 4))
        yield made(text.format("transB=1, alpha=0.25"), a=(2, 3, 5, 8), b=(2, 3, 7, 8))
        yield made(text.format("transA=1, transB=1"), a=(7, 5), b=(3, 7))
        yield made(text.format("transB=1"), a=(2, 1, 5, 7), b=(3, 4, 7))
    yield made("y = com.microsoft.FusedMatMul <transBatchA=1> (a, b)", a=(5, 2, 7), b=(2, 7, 4))
    for activation in ('"Relu"', '"Sigmoid"', '"Tanh"', '"LeakyRelu", activation_alpha=0.2'):
        for c in ((3,), (5, 3), (1,)):
            yield made(
                f"y = com.microsoft.FusedGemm <transB=1, activation={activation}> (a, b, c)", a=(5, 7), b=(3, 7), c=c
            )
        text = f"y = com.microsoft.FusedGemm <alpha=0.5, beta=2.0, activation={activation}> (a, b, c)"
        yield made(text, a=(5, 7), b=(7, 3), c=floats(0))


@family
def _gates() -> Iterator[Sample]:
    for shape in ((2, 17, 3, 5), (2, 17, 1), (3, 16), (2, 5, 3, 2, 8)):
        yield made("y = com.microsoft.FastGelu (x, b)", x=shape, b=random(shape[-1:], "bias"))
        yield made("y = com.microsoft.FastGelu (x)", x=shape)
    yield made("y = SwiGLU (a, b)", a=(2, 17, 3, 3), b=(2, 17, 3, 3), opset=28)
    yield made("y = SwiGLU <alpha=-1.5> (a, b)", a=(3, 5), b=(3, 5), opset=28)
    numbers = random((2, 17, 3, 2), "bits")
    yield made("y = BitCast <to=6> (x)", x=numbers, out=onnx.TensorProto.INT32, opset=26)
    yield made("y = BitCast <to=1> (x)", x=(numbers * 100).astype(np.int32), opset=26)


@family
def _normalizations() -> Iterator[Sample]:
    c = (17,)
    yield made("y = SimplifiedLayerNormalization (x, g)", x=(2, 5, 17), g=c)
    yield made("y = SimplifiedLayerNormalization (x, g)", x=(2, 5, 1, 17), g=c, opset=12)
    yield made("y = SimplifiedLayerNormalization <axis=2> (x, g)", x=(2, 4, 5, 17), g=(5, 17))
    yield made("y = LayerNormalization (x, g, b)", x=(2, 5, 17), g=c, b=c, opset=13)
    yield made("y = LayerNormalization <axis=2> (x, g)", x=(2, 4, 5, 17), g=(5, 17), opset=9)
