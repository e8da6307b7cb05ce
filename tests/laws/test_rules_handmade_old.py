"""Samples for the laws of layout rules: forms that older exporters write, and the corners of shapes and attributes."""

from collections.abc import Iterator

import numpy as np
import onnx
from test_rules_handmade import Sample, family, ints, made, random

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
        "Ceil",
        "Floor",
        "Round",
        "Sign",
        "Shrink",
        "Softsign",
        "Celu",
        "ThresholdedRelu",
        "Erf",
        "Cos",
        "Swish",
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
