"""Formats of two consecutive convolutions by element type, channels and generation of the target.

    python benchmarks/generations.py

Each is planned and run against the original. A cell contains the formats of the image before the first one, between the two,
and after the second one; a single name if all three are equal.
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

import layoutopt

TARGETS = ("gpu-turing", "gpu-ampere", "gpu-hopper", "ascend-310", "ascend-910b")
SHAPES = (
    ("float16", (8, 3, 64, 56)),
    ("float16", (8, 64, 64, 56)),
    ("int8", (8, 3, 64, 56)),
    ("int8", (8, 64, 64, 56)),
    ("int8", (8, 24, 8, 56)),
    ("int8", (8, 12, 12, 56)),
    ("int8", (32, 16, 16, 28)),
    ("int4", (8, 64, 64, 56)),
    ("int4", (8, 32, 32, 56)),
)
"""The element type, then samples, channels, channels behind the first convolution, rows and columns."""

_HALF = """<ir_version: 10, opset_import: ["" : 21]> g (float16[{n},{c},{side},{side}] x) => (float16[{n},{k},{side},{side}] y)
{{
    e = Conv <pads = [1, 1, 1, 1]> (x, v)
    y = Conv <pads = [1, 1, 1, 1]> (e, u)
}}"""
_UNITS = """<ir_version: 10, opset_import: ["" : 21]> g (float[{n},{c},{side},{side}] x) => (float[{n},{k},{side},{side}] y)
<float s = {{0.05}}, float r = {{0.01}}>
{{
    q = QuantizeLinear (x, s, z)
    d = DequantizeLinear (q, s, z)
    f = DequantizeLinear (v, r, z)
    c = Conv <pads = [1, 1, 1, 1]> (d, f)
    p = QuantizeLinear (c, s, z)
    e = DequantizeLinear (p, s, z)
    g = DequantizeLinear (u, r, z)
    {end}
}}"""
_ROUNDED = "h = Conv <pads = [1, 1, 1, 1]> (e, g) o = QuantizeLinear (h, s, z) y = DequantizeLinear (o, s, z)"
_SUMS = "y = Conv <pads = [1, 1, 1, 1]> (e, g)"


def convolutions(dtype: str, shape: tuple[int, int, int, int], *, rounded: bool = True) -> onnx.ModelProto:
    """A model of two convolutions; for integers it is quantised, and `rounded` quantises the last result, too."""
    n, c, k, side = shape
    generator, kind = np.random.default_rng(0), np.dtype(getattr(ml_dtypes, dtype, dtype))
    text = _HALF if dtype == "float16" else _UNITS
    model = onnx.parser.parse_model(text.format(n=n, c=c, k=k, side=side, end=_ROUNDED if rounded else _SUMS))
    constants = {name: generator.normal(size=(k, each, 3, 3)) / 16 for name, each in (("v", c), ("u", k))}
    if dtype != "float16":
        most = ml_dtypes.iinfo(kind).max
        constants = {name: np.clip(np.rint(16 * most / 2 * array), -most, most) for name, array in constants.items()}
        constants["z"] = np.zeros(())
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(kind), name))
    return model


def chosen(model: onnx.ModelProto, target: str) -> list[str]:
    """The formats of the image before, between and after the convolutions.

    Raises:
        AssertionError: the result was not run, or bytes are moved between the two convolutions.
    """
    report = layoutopt.optimize(model, target, runtime="compiler").report
    assert report.verification.status == "passed", report.verification.reason
    first, second = (op for op in report.ops if op.kind == "Conv")
    assert first.outputs[0] is not None and first.outputs[0].split("(")[0] == str(second.inputs[0]).split("(")[0]
    return [str(format).split("(")[0] for format in (first.inputs[0], first.outputs[0], second.outputs[0])]


def table() -> Iterator[str]:
    """The lines of the table."""
    yield f"| elements | samples | channels | {' | '.join(TARGETS)} |"
    yield "|" + "---|" * (3 + len(TARGETS))
    for dtype, shape in SHAPES:
        found = (chosen(convolutions(dtype, shape), target) for target in TARGETS)
        cells = [" → ".join(formats if len(set(formats)) > 1 else formats[:1]) for formats in found]
        yield f"| {dtype} | {shape[0]} | {shape[1]} → {shape[2]} | {' | '.join(cells)} |"


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)
