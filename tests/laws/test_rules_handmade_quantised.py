"""Samples for the laws of layout rules: Q/DQ ops, and ops on quantised integers."""

from collections.abc import Iterator

import numpy as np
import onnx
from test_rules_handmade import Sample, family, made, random

FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
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
def _convolutions() -> Iterator[Sample]:
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
def _products() -> Iterator[Sample]:
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
