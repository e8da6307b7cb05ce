"""Samples for the laws of layout rules: forms of older exporters, corners, fused and recurrent ops, quantised integers."""

from collections.abc import Iterator

import numpy as np
import onnx
from test_rules_handmade import Sample, family, floats, ints, made, random

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


@family
def _convolutions() -> Iterator[Sample]:
    x, w = (2, 17, 6, 7), (19, 17, 3, 3)
    for attributes in (
        "pads=[0,1,2,0]",
        "pads=[2,0,0,1], strides=[2,1], dilations=[1,2]",
        "kernel_shape=[3,3], pads=[3,3,3,3]",
    ):
        yield made(f"y = Conv <{attributes}> (x, w, b)", x=x, w=w, b=(19,), opset=7)
        yield made(f"y = Conv <{attributes}, group=17> (x, w)", x=x, w=(34, 1, 3, 3), opset=11)
    for attributes in (
        "output_shape=[7,9], strides=[2,2]",
        'output_shape=[7,9], strides=[2,2], auto_pad="SAME_LOWER"',
        "output_padding=[1,0], strides=[2,2], pads=[1,0,0,1]",
        "dilations=[2,2], pads=[0,1,1,0]",
        "kernel_shape=[3,3], strides=[3,1]",
    ):
        yield made(f"y = ConvTranspose <{attributes}> (x, w, b)", x=(2, 17, 3, 4), w=(17, 5, 3, 3), b=(5,), opset=7)
        yield made(f"y = ConvTranspose <{attributes}> (x, w)", x=(2, 16, 3, 4), w=(16, 16, 3, 3), opset=22)


@family
def _pools() -> Iterator[Sample]:
    x, volume = (2, 17, 7, 6), (1, 17, 4, 5, 4)
    indices = {"types": (FLOAT, INT64)}
    for kind in ("MaxPool", "AveragePool", "LpPool"):
        opset = {"MaxPool": 8, "AveragePool": 7, "LpPool": 7}[kind]
        yield made(f"y = {kind} <kernel_shape=[3,3], pads=[0,1,2,0], strides=[2,1]> (x)", x=x, opset=opset)
        yield made(f"y = {kind} <kernel_shape=[2,2,3], pads=[0,1,1,1,0,0]> (x)", x=volume, opset=opset)
        latest = {"MaxPool": 12, "AveragePool": 19, "LpPool": 18}[kind]
        ceil = ("ceil_mode=1, strides=[2,2], pads=[1,1,0,0]",)
        for attributes in ("dilations=[2,2]", *(ceil if kind != "LpPool" else ())):  # which onnxruntime ignores there
            yield made(f"y = {kind} <kernel_shape=[3,2], {attributes}> (x)", x=x, opset=latest)
    for ceil in (0, 1):
        for opset in (10, 19, 22):
            attributes = f"kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], count_include_pad=1, ceil_mode={ceil}"
            yield made(f"y = AveragePool <{attributes}> (x)", x=x, opset=opset)
    for order in (0, 1):
        yield made(f"y, i = MaxPool <kernel_shape=[2,2], storage_order={order}> (x)", x=x, opset=8, **indices)
        yield made(f"y = MaxPool <kernel_shape=[2,2], storage_order={order}> (x)", x=x, opset=8)


@family
def _normalizations() -> Iterator[Sample]:
    c = (17,)
    var = np.abs(random(c, "var")) + 0.1
    for shape in ((3, 17), (3, 17, 4), (2, 17, 3, 2), (1, 17, 2, 3, 2)):
        text = "y = BatchNormalization <epsilon=0.001, momentum=0.5> (x, s, b, m, v)"
        yield made(text, x=shape, s=c, b=c, m=c, v=var, opset=15)
    each = (17, 3, 2)
    spread = np.abs(random(each, "each")) + 0.1
    yield made(
        "y = BatchNormalization <spatial=0> (x, s, b, m, v)", x=(2, *each), s=each, b=each, m=each, v=spread, opset=7
    )
    yield made("y = BatchNormalization <spatial=1> (x, s, b, m, v)", x=(2, *each), s=c, b=c, m=c, v=var, opset=7)
    for size in (1, 3, 5):
        yield made(f"y = LRN <size={size}, alpha=0.01, beta=0.6, bias=2.0> (x)", x=(2, 17, 3, 3), opset=7)


@family
def _elementwise() -> Iterator[Sample]:
    x = (2, 17, 3, 3)
    for kind in (
        *("Ceil", "Floor", "Round", "Sign", "Shrink", "Softsign"),
        *("Celu", "ThresholdedRelu", "Erf", "Cos", "Swish"),
    ):
        opset = {"Round": 11, "Celu": 12, "Swish": 24, "Ceil": 7, "Floor": 7, "Softsign": 7, "Cos": 7}.get(kind, 10)
        yield made(f"y = {kind} (x)", x=x, opset=opset)
    for kind in ("IsNaN", "IsInf"):
        holes = np.where(random(x, kind) > 0.5, np.float32(np.inf), random(x, kind))
        yield made(f"y = {kind} (x)", x=holes, out=BOOL, opset=10)
    bits = np.arange(2 * 17 * 9).reshape(x).astype(np.uint8)
    for kind, opset in (("BitwiseAnd", 18), ("BitwiseOr", 18), ("BitwiseXor", 18), ('BitShift <direction="LEFT">', 11)):
        for other in (bits[:, :, :, ::-1] % 8, bits[:1, :1] % 8, bits[0, :, :1, :1] % 8):
            yield made(f"y = {kind} (a, b)", a=bits, b=other, out=onnx.TensorProto.UINT8, opset=opset)
    yield made("y = BitwiseNot (x)", x=bits, out=onnx.TensorProto.UINT8, opset=18)
    for kind in ("Equal", "Less", "GreaterOrEqual"):
        for other in ((17, 1, 1), (2, 1, 3, 3)):
            yield made(f"y = {kind} (a, b)", a=x, b=other, out=BOOL, opset=16)
    flags = random(x, "flags") > 0
    for kind in ("And", "Or", "Xor"):
        yield made(f"y = {kind} (a, b)", a=flags, b=flags[:, :, ::-1], out=BOOL, opset=7)
        yield made(f"y = {kind} (a, b)", a=flags, b=flags[:1, :, :1, :1], out=BOOL, opset=7)
    yield made("y = Not (x)", x=flags, out=BOOL, opset=7)
    for kind in ("Sum", "Max", "Min", "Mean"):
        yield made(f"y = {kind} (x)", x=x, opset=7)
        yield made(f"y = {kind} (x, x)", x=x, opset=8)
        yield made(f"y = {kind} (a, b, c)", a=x, b=(17, 1, 1), c=(2, 1, 3, 3), opset=13)
    for opset in (7, 10):
        yield made("y, m = Dropout <ratio=0.3> (x)", x=x, opset=opset, types=(FLOAT, FLOAT if opset == 7 else BOOL))
    yield made("y, m = Dropout (x)", x=x, opset=13, types=(FLOAT, BOOL))
    for slope in ((17, 1, 1), (1,), (3,), (1, 17, 1, 1)):
        yield made("y = PRelu (x, s)", x=x, s=slope, opset=7)
        yield made("y = PRelu (x, s)", x=x, s=slope, opset=9)
    for low, high in (("min=1.0", ""), ("", "max=-1.0"), ("", "")):
        bounds = ", ".join(filter(None, (low, high)))
        yield made(f"y = Clip{f' <{bounds}>' if bounds else ''} (x)", x=x, opset=7)
    for kind in ("Relu", "Identity", "Neg", "Sigmoid"):
        yield made(f"y = {kind} (x)", x=np.float32(-1.5))
        yield made(f"y = {kind} (x)", x=(2, 0, 3, 3))
    yield made("y = Add (a, b)", a=(2, 0, 3, 3), b=(1, 3))
    yield made("y = Add (a, b)", a=np.float32(2), b=np.float32(3))
    yield made("y = Mul (a, b)", a=np.float32(2), b=(17, 5))
    whole = (np.arange(102) - 51).reshape(2, 17, 3).astype(np.int32)
    yield made("y = Cast <to=9> (x)", x=whole, out=BOOL)
    yield made("y = Cast <to=8> (x)", x=whole, out=onnx.TensorProto.STRING)
    for kind, types in (("Add", np.int64), ("Mul", np.float64), ("Sub", np.int32), ("Max", np.float16)):
        number = {np.int64: 7, np.float64: 11, np.int32: 6, np.float16: 10}[types]
        yield made(f"y = {kind} (a, b)", a=whole.astype(types), b=whole[:1].astype(types), out=number)


@family
def _rearrangements() -> Iterator[Sample]:
    x = (2, 17, 4, 5)
    empty = np.zeros((2, 0, 4, 5), dtype=np.float32)
    yield made("y = Concat <axis=1> (a, b, c)", a=(2, 16, 4, 5), b=empty, c=(2, 3, 4, 5))
    yield made("y = Concat <axis=0> (a)", a=x, opset=7)
    yield made("a, b, c = Split <axis=1> (x, s)", x=x, s=ints(16, 0, 1), opset=13)
    yield made("a, b = Split <axis=-1, split=[2,3]> (x)", x=x, opset=7)
    yield made("a = Split <axis=1, num_outputs=1> (x)", x=x, opset=18)
    yield made("y = Slice (x, s, e, a)", x=x, s=ints(16), e=ints(16), a=ints(1), opset=10)
    yield made("y = Slice (x, s, e, a, t)", x=x, s=ints(-1), e=ints(-99), a=ints(1), t=ints(-4), opset=13)
    for mode in ("reflect", "edge", "constant"):
        yield made(f'y = Pad <mode="{mode}"> (x, p)', x=x, p=ints(0, 0, 1, 2, 0, 0, 1, 1), opset=11)
    yield made('y = Pad <mode="wrap"> (x, p)', x=x, p=ints(0, 0, 1, 2, 0, 0, 1, 1), opset=19)
    yield made("y = Pad (x, p)", x=x, p=ints(0, 0, -1, 2, 0, 0, 0, -1), opset=13)
    yield made("y = Gather <axis=1> (x, i)", x=x, i=ints(), opset=11)
    yield made("y = Gather <axis=1> (x, i)", x=x, i=ints(3, -1, kind=np.int32), opset=7)
    yield made("y = Transpose <perm=[3,1,0,2]> (x)", x=x, opset=21)
    yield made("y = Flatten <axis=2> (x)", x=x, opset=21)
    yield made("y = Flatten <axis=0> (x)", x=x, opset=9)
    yield made("y = Flatten <axis=-1> (x)", x=x, opset=11)
    yield made("y = Squeeze (x)", x=(1, 17, 1, 5), opset=13)
    yield made("y = Squeeze (x, a)", x=(1, 17, 1, 5), a=ints(-2, 0), opset=13)
    yield made("y = Unsqueeze (x, a)", x=(17, 5), a=ints(-1, 0), opset=13)
    yield made("y = Reshape (x, s)", x=x, s=ints(2, -1, 0), opset=7)
    yield made("y = Reshape <allowzero=1> (x, s)", x=(2, 0, 5), s=ints(0, 10), opset=14)
    yield made("y = Reshape (x, s)", x=(1, 1, 1), s=ints(), opset=13)


@family
def _along_axes() -> Iterator[Sample]:
    x = (2, 17, 3, 4)
    for kind in ("ArgMax", "ArgMin"):
        whole = np.round(random(x, kind))
        for last in (0, 1):
            text = f"y = {kind} <axis=2, keepdims=0, select_last_index={last}> (x)"
            yield made(text, x=whole, out=INT64, opset=12)
        yield made(f"y = {kind} (x)", x=whole, out=INT64, opset=7)
    yield made("y = ReduceMax (x)", x=np.float32(3), opset=13)
    yield made("y = ReduceSum <keepdims=1> (x, a)", x=(2, 0, 3), a=ints(1), opset=13)


# --- fused ops, which onnxruntime's optimiser writes -----------------------------------------------------


@family
def _fused_convolutions() -> Iterator[Sample]:
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
def _fused_products() -> Iterator[Sample]:
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
def _fused_normalizations() -> Iterator[Sample]:
    c = (17,)
    yield made("y = SimplifiedLayerNormalization (x, g)", x=(2, 5, 17), g=c)
    yield made("y = SimplifiedLayerNormalization (x, g)", x=(2, 5, 1, 17), g=c, opset=12)
    yield made("y = SimplifiedLayerNormalization <axis=2> (x, g)", x=(2, 4, 5, 17), g=(5, 17))
    yield made("y = LayerNormalization (x, g, b)", x=(2, 5, 17), g=c, b=c, opset=13)
    yield made("y = LayerNormalization <axis=2> (x, g)", x=(2, 4, 5, 17), g=(5, 17), opset=9)


# --- recurrent networks ----------------------------------------------------------------------------------


@family
def _recurrent() -> Iterator[Sample]:
    """Recurrent networks with both directions, lengths, initial states and unused results."""
    for kind, gates, lasts in (("LSTM", 4, "h, c"), ("GRU", 3, "h"), ("RNN", 1, "h")):
        cells = {"c0": (2, 3, 6)} if kind == "LSTM" else {}
        first = ", ".join(["h0", *cells])
        for opset in (7, 14, 22):
            one = {"x": (5, 3, 4), "w": (1, gates * 6, 4), "r": (1, gates * 6, 6)}
            two = {"x": (5, 3, 4), "w": (2, gates * 6, 4), "r": (2, gates * 6, 6), "b": (2, 2 * gates * 6)}
            both = '<hidden_size=6, direction="bidirectional">'
            yield made(f"y = {kind} <hidden_size=6> (x, w, r)", opset=opset, **one)
            yield made(f"y, {lasts} = {kind} {both} (x, w, r, b)", opset=opset, **two)
            yield made(f'"", h = {kind} {both} (x, w, r, b)', opset=opset, **two)
            more = {"l": ints(5, 2, 4, kind=np.int32), "h0": (2, 3, 6), **cells}
            yield made(f"y, {lasts} = {kind} {both} (x, w, r, b, l, {first})", opset=opset, **two, **more)
            backwards = '<hidden_size=6, direction="reverse">'
            yield made(f'y, h = {kind} {backwards} (x, w, r, "", l)', opset=opset, **one, l=more["l"])


# --- Q/DQ ops, and ops on quantised integers -------------------------------------------------------------

FLOAT16 = onnx.TensorProto.FLOAT16
UINT8, INT8, INT32 = onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.INT32
CODES = {np.uint8: UINT8, np.int8: INT8, np.uint16: onnx.TensorProto.UINT16, np.int16: onnx.TensorProto.INT16}
ZEROS = {np.uint8: 131, np.int8: -3, np.uint16: 33000, np.int16: -7}


def whole(shape: tuple[int, ...], kind: type = np.uint8, seed: str = "") -> np.ndarray:
    """Integers over the whole range of a type."""
    info = np.iinfo(kind)
    spread = random(shape, f"{shape}{kind}{seed}") * (info.max - info.min) / 6 + (info.max + info.min) / 2
    return np.clip(spread, info.min, info.max).astype(kind)


def weights(shape: tuple[int, ...]) -> np.ndarray:
    """Weights of 7 bits: on processors without VNNI, onnxruntime's kernels saturate sums of two products of 8 bits each."""
    return whole(shape, np.int8) // 2


def scales(count: int) -> np.ndarray:
    """Positive numbers that differ."""
    return (0.01 + 0.01 * np.arange(count)).astype(np.float32)


def points(count: int, kind: type) -> np.ndarray:
    """Zero points that differ."""
    return (ZEROS[kind] + np.arange(count) % 5).astype(kind)


@family
def _steps() -> Iterator[Sample]:
    shape, scale = (2, 17, 3, 5), np.float32(0.02)
    for domain, opsets in (("", (10, 13, 19, 21, 23)), ("com.microsoft.", (17,))):
        for opset in opsets:
            for kind in (np.uint8, np.int8) if opset < 21 and not domain else CODES:
                for zero in (kind(0), kind(ZEROS[kind])):
                    text = f"y = {domain}QuantizeLinear (x, s, z)"
                    yield made(text, x=shape, s=scale, z=zero, out=CODES[kind], opset=opset)
                    text = f"y = {domain}DequantizeLinear (x, s, z)"
                    yield made(text, x=whole(shape, kind), s=scale, z=zero, opset=opset)
            yield made(f"y = {domain}QuantizeLinear (x, s)", x=shape, s=scale, out=UINT8, opset=opset)
            yield made(f"y = {domain}DequantizeLinear (x, s)", x=whole(shape), s=scale, opset=opset)
            sums = whole(shape, np.int32) // 65536
            yield made(f"y = {domain}DequantizeLinear (x, s)", x=sums, s=scale, opset=opset)
            if opset > 10:
                yield from _along(domain, opset)


def _along(domain: str, opset: int) -> Iterator[Sample]:
    for shape in ((2, 17, 3, 5), (17,), (4, 16, 1, 1)):
        for axis in range(len(shape)):
            extent = shape[axis]
            for kind in (np.uint8, np.int8):
                given = {"s": scales(extent), "z": points(extent, kind)}
                text = f"y = {domain}QuantizeLinear <axis={axis}> (x, s, z)"
                yield made(text, x=shape, out=CODES[kind], opset=opset, **given)
                text = f"y = {domain}DequantizeLinear <axis={axis - len(shape)}> (x, s, z)"
                yield made(text, x=whole(shape, kind), opset=opset, **given)
            given = {"s": scales(extent)}
            yield made(f"y = {domain}QuantizeLinear <axis={axis}> (x, s)", x=shape, out=UINT8, opset=opset, **given)
            sums = whole(shape, np.int32) // 65536
            yield made(f"y = {domain}DequantizeLinear <axis={axis}> (x, s)", x=sums, opset=opset, **given)


@family
def _halves() -> Iterator[Sample]:
    shape, s = (2, 17, 3, 5), np.float16(0.02)
    for opset in (19, 21):
        x = random(shape, "halves").astype(np.float16)
        yield made("y = QuantizeLinear (x, s, z)", x=x, s=s, z=np.int8(-3), out=INT8, opset=opset)
        yield made(
            "y = DequantizeLinear (x, s, z)", x=whole(shape, np.int8), s=s, z=np.int8(-3), out=FLOAT16, opset=opset
        )
    s = scales(17).astype(np.float16)
    yield made("y = DequantizeLinear <axis=1> (x, s)", x=whole(shape, np.int8), s=s, out=FLOAT16, opset=19)
    types = (UINT8, FLOAT, UINT8)
    yield made("y, s, z = DynamicQuantizeLinear (x)", x=shape, types=types, opset=11)
    yield made("y, s, z = DynamicQuantizeLinear (x)", x=np.abs(random(shape, "dynamic")), types=types, opset=11)


@family
def _quantised_convolutions() -> Iterator[Sample]:
    x, w = whole((2, 17, 5, 5)), weights((19, 17, 3, 3))
    given = {"a": np.float32(0.02), "d": np.uint8(120), "e": np.float32(0.8), "f": np.uint8(100)}
    inputs = "(x, a, d, w, s, z, e, f{})"
    one = {"s": np.float32(0.01), "z": np.int8(0)}
    for domain in ("", "com.microsoft."):
        text = f"y = {domain}QLinearConv {{}} {inputs}"
        yield made(text.format("<pads=[1,1,1,1]>", ""), x=x, w=w, out=UINT8, **given, **one)
        biased = {**given, "s": scales(19), "z": np.zeros(19, np.int8), "b": np.arange(19, dtype=np.int32) * 100}
        yield made(text.format("<strides=[2,2]>", ", b"), x=x, w=w, out=UINT8, **biased)
        shifted = {**given, "f": np.uint8(0), "s": np.float32(0.01), "z": np.int8(4)}
        yield made(text.format("", ""), x=x, w=w, out=UINT8, **shifted)
        plain = {**given, "d": np.uint8(0), "f": np.uint8(0), **one}
        yield made(text.format("", ""), x=x, w=w, out=UINT8, **plain)
        depthwise = {**given, "s": scales(17), "z": np.zeros(17, np.int8)}
        yield made(text.format("<group=17>", ""), x=x, w=weights((17, 1, 3, 3)), out=UINT8, **depthwise)
        grouped = weights((48, 16, 2, 2))
        yield made(text.format("<group=2>", ""), x=whole((1, 32, 4, 4)), w=grouped, out=UINT8, **given, **one)
        yield made(text.format("", ""), x=whole((2, 5, 9)), w=weights((6, 5, 3)), out=UINT8, **given, **one)
    last = x.transpose(0, 2, 3, 1)
    yield made(
        f"y = com.microsoft.QLinearConv <channels_last=1> {inputs.format('')}", x=last, w=w, out=UINT8, **given, **one
    )
    signed = {**given, "d": np.int8(3), "f": np.int8(-9), **one}
    yield made(f"y = QLinearConv {inputs.format('')}", x=whole((2, 17, 5, 5), np.int8), w=w, out=INT8, **signed)
    w = whole((19, 17, 3, 3))
    yield made("y = ConvInteger <pads=[1,1,1,1]> (x, w)", x=x, w=w, out=INT32)
    yield made("y = ConvInteger (x, w, d)", x=x, w=w, d=np.uint8(120), out=INT32)
    yield made("y = ConvInteger (x, w, d, z)", x=x, w=w, d=np.uint8(120), z=np.uint8(7), out=INT32)
    yield made("y = ConvInteger <group=17> (x, w, d)", x=x, w=whole((17, 1, 3, 3)), d=np.uint8(120), out=INT32)


@family
def _quantised_products() -> Iterator[Sample]:
    given = {"s": np.float32(0.02), "d": np.uint8(120), "e": np.float32(0.4), "f": np.uint8(100)}
    zero = {**given, "d": np.uint8(0), "f": np.uint8(0)}
    text = "y = QLinearMatMul (a, s, d, b, t, z, e, f)"
    for a, b in (((5, 17), (17, 19)), ((2, 5, 8), (8, 16)), ((2, 3, 5, 17), (2, 3, 17, 4))):
        for numbers in (given, zero):
            one = {**numbers, "t": np.float32(0.01), "z": np.int8(0)}
            yield made(text, a=whole(a), b=whole(b, np.int8), out=UINT8, **one)
        one = {**given, "t": np.float32(0.01), "z": np.int8(5)}
        yield made(text, a=whole(a), b=whole(b, np.int8), out=UINT8, **one)
        if len(b) == 2:
            columns = {**given, "t": scales(b[1]), "z": np.zeros(b[1], np.int8)}
            yield made(text, a=whole(a), b=whole(b, np.int8), out=UINT8, **columns)
        yield made("y = MatMulInteger (a, b)", a=whole(a), b=whole(b), out=INT32)
        yield made("y = MatMulInteger (a, b, d)", a=whole(a), b=whole(b), d=np.uint8(9), out=INT32)
        yield made("y = MatMulInteger (a, b, d, z)", a=whole(a), b=whole(b), d=np.uint8(9), z=np.uint8(3), out=INT32)
    a, b = whole((5, 17)), whole((19, 17), np.int8)
    numbers = {**given, "t": scales(19), "z": np.zeros(19, np.int8)}
    text = "y = com.microsoft.QGemm <{}> (a, s, d, b, t, z, c, e, f)"
    for c in (np.arange(19, dtype=np.int32), np.arange(95, dtype=np.int32).reshape(5, 19)):
        yield made(text.format("transB=1"), a=a, b=b, c=c, out=UINT8, **numbers)
    one = {**given, "t": np.float32(0.01), "z": np.int8(0)}
    c = np.arange(19, dtype=np.int32)
    yield made(text.format("transA=1, alpha=1.0"), a=a.T.copy(), b=b.T.copy(), c=c, out=UINT8, **one)
    del one["e"], one["f"]
    yield made("y = com.microsoft.QGemm <transB=1> (a, s, d, b, t, z)", a=a, b=b, **one)


@family
def _packed() -> Iterator[Sample]:
    b, t = whole((16, 19)), np.float32(0.02)
    for shape in ((5, 16), (2, 5, 16), (2, 3, 4, 16)):
        text = "y = com.microsoft.DynamicQuantizeMatMul (a, b, t, z)"
        yield made(text, a=shape, b=b, t=t, z=np.uint8(120))
        text = "y = com.microsoft.MatMulIntegerToFloat (a, b, s, t, d, z)"
        yield made(text, a=whole(shape), b=b, s=t, t=t, d=np.uint8(3), z=np.uint8(120))
        text = "y = com.microsoft.MatMulNBits <K=16, N=19, bits=4, block_size=16> (a, b, t)"
        yield made(text, a=shape, b=whole((19, 1, 8)), t=scales(19))
    text = "y = com.microsoft.MatMulBnb4 <K=16, N=8, block_size=16, quant_type=1> (a, b, t)"
    yield made(text, a=(2, 5, 16), b=whole((64,)), t=scales(8))
