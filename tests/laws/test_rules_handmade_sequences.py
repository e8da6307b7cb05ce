"""Samples for the laws of layout rules: attention and recurrent networks."""

from collections.abc import Iterator

import numpy as np
from test_rules_handmade import Sample, family, ints, made, random


@family
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
