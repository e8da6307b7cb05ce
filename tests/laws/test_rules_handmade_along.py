"""Samples for the laws of layout rules: ops along an axis, picks, windows at computed places, attention, recurrent networks."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import onnx
from test_rules_handmade import Sample, ints, made, random

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def _along_axes() -> Iterator[Sample]:
    x = (2, 17, 3, 4)
    for axis in (1, -1, 0):
        for flags in ("", " <exclusive=1>", " <exclusive=1, reverse=1>"):
            yield made(f"y = CumSum{flags} (x, a)", x=x, a=np.int64(axis), opset=11)
            yield made(f"y = CumProd{flags} (x, a)", x=x, a=np.int64(axis), opset=26)
        yield made(f"y = LpNormalization <axis={axis}> (x)", x=x)
        yield made(f"y = LpNormalization <axis={axis}, p=1> (x)", x=x, opset=22)
    yield made("y = CumSum (x, a)", x=(2, 17, 4), a=ints(-2, kind=np.int32), opset=14)
    yield made("y = LpNormalization (x)", x=np.zeros((2, 5, 3), dtype=np.float32), opset=22)
    for axes in ("", " <axes=[0,2,3]>", " <axes=[1]>", " <axes=[2,3]>", " <axes=[-1,1]>"):
        yield made(f"y = MeanVarianceNormalization{axes} (x)", x=x, opset=9)
        yield made(f"y = MeanVarianceNormalization{axes} (x)", x=(2, 16, 3, 4), opset=13)
    yield made("y = MeanVarianceNormalization <axes=[0,1,2]> (x)", x=(2, 16, 3), opset=13)
    for kind in (np.float32, np.int64):
        whole = (random((3, 17, 5, 2), "topk") * 100).astype(kind)
        types = (FLOAT if kind is np.float32 else INT64, INT64)
        yield made("v, i = TopK <axis=1, k=3> (x)", x=whole.astype(np.float32), types=(FLOAT, INT64), opset=7)
        yield made("v, i = TopK (x, k)", x=whole.astype(np.float32), k=ints(2), types=(FLOAT, INT64), opset=10)
        yield made("v, i = TopK <axis=2, largest=0> (x, k)", x=whole, k=ints(4), types=types, opset=11)
        yield made("v, i = TopK <axis=-3> (x, k)", x=whole, k=ints(1), types=types, opset=24)
        yield made("v, i = TopK <axis=1, sorted=0> (x, k)", x=whole, k=ints(1), types=types, opset=11)
    pick = np.asarray([True, False, True, True])
    yield made("y = Compress <axis=3> (x, c)", x=x, c=pick, opset=9)
    yield made("y = Compress <axis=-3> (x, c)", x=x, c=pick[:3], opset=11)
    yield made("y = Compress (x, c)", x=x, c=pick, opset=11)
    yield made("y = Compress <axis=0> (x, c)", x=x, c=pick[1:2], opset=11)


def _picks() -> Iterator[Sample]:
    indices, values = ints(*range(-2, 28)).reshape(2, 5, 3), np.asarray([0.5, 3.0], dtype=np.float32)
    for axis in (-1, 0, 1, 3):
        for kind in (np.int64, np.float32):
            text = f"y = OneHot <axis={axis}> (x, d, v)"
            yield made(text, x=indices.astype(kind), d=kind(7), v=values, opset=9)
            yield made(text, x=np.repeat(indices, 4, 1).astype(kind), d=kind([20]), v=values * 0, opset=11)
    yield made("y = OneHot (x, d, v)", x=ints(1, 2, 0), d=np.int64(3), v=values)
    lengths = ints(1, 5, 3)
    for batch, time, shape in ((1, 0, (5, 3, 17)), (0, 1, (3, 5, 2, 17)), (1, 0, (5, 3)), (0, 1, (3, 5, 17, 2, 2))):
        text = f"y = ReverseSequence <batch_axis={batch}, time_axis={time}> (x, l)"
        yield made(text, x=shape, l=lengths, opset=10)
    yield made("y = ReverseSequence (x, l)", x=(5, 3, 17), l=lengths, opset=10)
    for k in (None, np.int64(2), np.int64(-1)):
        for upper in (0, 1):
            for kind, opset in (("Trilu", 14), ("com.microsoft.Trilu", 17)):
                given = {} if k is None else {"k": k}
                text = f"y = {kind} <upper={upper}> (x{', k' if given else ''})"
                yield made(text, x=(2, 3, 5, 17), opset=opset, **given)
    yield made("y = Trilu (x)", x=(5, 4), opset=14)
    shape = ints(2, 17, 3, 4)
    for opset in (9, 20, 25):
        yield made("y = ConstantOfShape (x)", x=shape, opset=opset)
        text = "y = ConstantOfShape <value=float[1] {1.5}> (x)"
        yield made(text, x=shape, opset=opset)
    yield made("y = ConstantOfShape <value=int32[1] {-7}> (x)", x=ints(17, 5), out=onnx.TensorProto.INT32, opset=9)


def _caches() -> Iterator[Sample]:
    shapes = (((3, 4, 9, 8), (3, 4, 2, 8), -2), ((3, 9, 17), (3, 2, 17), 1), ((3, 4, 5, 9, 2), (3, 4, 5, 1, 2), 3))
    for cache, update, axis in shapes:
        given = {"c": cache, "u": update, "w": ints(0, 5, 7), "opset": 24}
        yield made(f"y = TensorScatter <axis={axis}> (c, u, w)", **given)
        yield made(f'y = TensorScatter <axis={axis}, mode="circular"> (c, u, w)', **{**given, "w": ints(8, 3, 1)})
        yield made(f"y = TensorScatter <axis={axis}> (c, u)", c=cache, u=update, opset=24)


def _spectra() -> Iterator[Sample]:
    for parts in (1, 2):
        x = (3, 8, 5, parts)
        for axis in (1, 2, -2):
            yield made(f"y = DFT <axis={axis}> (x)", x=x, opset=17)
            yield made("y = DFT (x, , a)", x=x, a=np.int64(axis), opset=20)
            if parts == 1:
                yield made(f"y = DFT <axis={axis}, onesided=1> (x)", x=x, opset=17)
        yield made("y = DFT (x)", x=x, opset=20)
        yield made("y = DFT (x, n)", x=x, n=np.int64(6), opset=17)
        yield made("y = DFT (x, n, a)", x=x, n=np.int64(6), a=np.int64(1), opset=20)
    yield made("y = DFT <inverse=1> (x)", x=(3, 17, 8, 2), opset=20)


def _places() -> Iterator[Sample]:
    x = (2, 17, 5, 6)
    grid = np.tanh(random((2, 3, 4, 2), "grid"))
    for opset, modes in (
        (16, ("bilinear", "nearest", "bicubic")),
        (20, ("linear", "nearest", "cubic")),
        (22, ("linear",)),
    ):
        for mode in modes:
            yield made(f'y = GridSample <mode="{mode}"> (x, g)', x=x, g=grid, opset=opset)
        text = 'y = GridSample <padding_mode="border", align_corners=1> (x, g)'
        yield made(text, x=(2, 16, 5, 6), g=grid * 1.5, opset=opset)
    volume = np.tanh(random((2, 2, 3, 2, 3), "volume"))
    yield made("y = GridSample (x, g)", x=(2, 17, 3, 4, 3), g=volume, opset=20)
    rois = np.asarray([[0, 0, 4, 3], [1, 1, 5, 4], [0, 2, 2, 2]], dtype=np.float32)
    for mode in ("avg", "max"):
        for opset in (10, 16):
            text = f'y = RoiAlign <mode="{mode}", output_height=2, output_width=3, sampling_ratio=2> (x, r, b)'
            yield made(text, x=x, r=rois, b=ints(0, 1, 0), opset=opset)
    text = "y = RoiAlign <output_height=2, output_width=2, spatial_scale=0.5> (x, r, b)"
    yield made(text, x=(1, 4, 5, 6), r=rois, b=ints(0, 0, 0), opset=16)
    regions = np.concatenate([np.asarray([[0], [1], [0]], dtype=np.float32), rois], axis=1)
    yield made("y = MaxRoiPool <pooled_shape=[2,3]> (x, r)", x=x, r=regions, opset=7)
    for opset in (19, 22):
        offsets = random((2, 18, 3, 4), "offsets") * 0.3
        given = {"x": x, "o": offsets, "opset": opset}
        yield made("y = DeformConv (x, w, o)", **given, w=(8, 17, 3, 3))
        yield made("y = DeformConv <group=2> (x, w, o, b)", **{**given, "x": (2, 16, 5, 6)}, w=(6, 8, 3, 3), b=(6,))
        mask = {"m": np.abs(random((2, 9, 3, 4), "mask"))}
        yield made("y = DeformConv (x, w, o, , m)", **{**given, "x": (2, 16, 5, 6)}, w=(8, 16, 3, 3), **mask)


def _attention() -> Iterator[Sample]:
    q, k, v = (2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6)
    for opset in (23, 24):
        yield made("y = Attention (q, k, v)", q=q, k=k, v=v, opset=opset)
        yield made("y = Attention <is_causal=1, scale=0.3> (q, k, v)", q=q, k=q, v=q, opset=opset)
        yield made("y = Attention (q, k, v, m)", q=q, k=k, v=v, m=(5, 7), opset=opset)
        yield made(
            "y = Attention (q, k, v, m)", q=(2, 4, 5, 8), k=(2, 2, 7, 8), v=(2, 2, 7, 8), m=(2, 4, 5, 7), opset=opset
        )
        text = "y, pk, pv = Attention (q, k, v, , c, d)"
        cache = {"c": (2, 4, 3, 8), "d": (2, 4, 3, 6)}
        yield made(text, q=q, k=k, v=v, **cache, opset=opset)
        yield made("y, , , s = Attention (q, k, v)", q=q, k=k, v=v, opset=opset)
        yield made("y = Attention (q, k, v)", q=(1, 1, 5, 8), k=(1, 1, 7, 8), v=(1, 1, 7, 8), opset=opset)
        yield made("y = Attention (q, k, v)", q=(2, 4, 1, 8), k=k, v=v, opset=opset)
        flat = "y = Attention <q_num_heads=2, kv_num_heads=2> (q, k, v)"
        yield made(flat, q=(2, 5, 8), k=(2, 7, 8), v=(2, 7, 12), opset=opset)
    cos, sin = random((2, 5, 4), "cos"), random((2, 5, 4), "sin")
    table = {"c": random((9, 4), "c"), "s": random((9, 4), "s"), "p": ints(*range(10)).reshape(2, 5) % 9}
    for flags in ("", " <interleaved=1>"):
        yield made(f"y = RotaryEmbedding{flags} (x, c, s)", x=(2, 3, 5, 8), c=cos, s=sin, opset=23)
        yield made(f"y = RotaryEmbedding{flags} (x, c, s, p)", x=(2, 3, 5, 8), **table, opset=23)
        yield made(f"y = com.microsoft.RotaryEmbedding{flags} (x, p, c, s)", x=(2, 3, 5, 8), **table)
    part = "rotary_embedding_dim=8"
    yield made(f"y = RotaryEmbedding <{part}> (x, c, s, p)", x=(2, 3, 5, 12), **table, opset=23)
    yield made(f"y = com.microsoft.RotaryEmbedding <{part}, num_heads=3> (x, p, c, s)", x=(2, 3, 5, 12), **table)


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


@lru_cache(maxsize=1)
def along() -> dict[str, list[Sample]]:
    """Every sample here, by op type."""
    found: dict[str, list[Sample]] = {}
    for family in (_along_axes, _picks, _caches, _spectra, _places, _attention, _recurrent):
        for sample in family():
            node = sample.model.graph.node[0]
            found.setdefault(f"{node.domain}::{node.op_type}".removeprefix("::"), []).append(sample)
    return found
