"""Samples for the laws of layout rules: recurrent networks."""

from collections.abc import Iterator

import numpy as np
from test_rules_handmade import Sample, family, ints, made


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
