"""Models whose files grow unless an optimiser avoids it: shared, repeated and narrow weights."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from parsed_models import parsed

from layoutopt.ir.types import Array

CHANNELS, IMAGE = 32, 12
HEAD = '<ir_version: 9, opset_import: ["" : 17]> g'
IN_BRANCHES = f"""{HEAD} (float[1,{CHANNELS},{IMAGE},{IMAGE}] x) => (float[?,?,?,?] y) {{
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    total = ReduceSum <keepdims = 0> (a)
    is_positive = Greater (total, zero)
    y = If (is_positive) <
        then_branch = t () => (float[?,?,?,?] r) {{ f = Identity (w) c = Conv <pads = [1, 1, 1, 1]> (a, f) r = Relu (c) }},
        else_branch = e () => (float[?,?,?,?] s) {{ g = Identity (w) d = Conv <pads = [1, 1, 1, 1]> (a, g) s = Tanh (d) }}>
}}"""
"""Both branches of an If read the filter of the main graph, under names of their own for it."""


def random(*shape: int, dtype: type = np.float32, seed: int = 0) -> Array:
    numbers = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    if np.issubdtype(dtype, np.integer):
        return np.clip(np.round(numbers * 127 * np.sqrt(np.prod(shape[1:])) / 3), -127, 127).astype(dtype)
    return numbers.astype(dtype)


def filters(dtype: type = np.float32, seed: int = 0) -> Array:
    return random(CHANNELS, CHANNELS, 3, 3, dtype=dtype, seed=seed)


def chain(layers: int, weight: str, made: str = "", affine: str = "", **constants: Array) -> onnx.ModelProto:
    """Convolutions and Relus one behind the other; the number of the layer takes the place of #.

    Args:
        layers: the number of convolutions.
        weight: the name of a filter.
        made: the nodes that compute a filter.
        affine: an op between convolution and Relu, whose other operand is b#.
        constants: the initializers.
    """
    layer = f"{made} c# = Conv <pads = [1, 1, 1, 1]> (h#, {weight}) "
    layer += f"a# = {affine} (c#, b#) h#+ = Relu (a#)" if affine else "h#+ = Relu (c#)"
    body = " ".join(layer.replace("#+", str(number + 1)).replace("#", str(number)) for number in range(layers))
    image = f"float[1,{CHANNELS},{IMAGE},{IMAGE}] h0"
    return parsed(f"{HEAD} ({image}) => (float[?,?,?,?] h{layers}) {{ {body} }}", **constants)


def each(layers: int, dtype: type = np.float32, period: int = 100) -> dict[str, Array]:
    """A filter for every layer; those of `period` layers are different."""
    return {f"w{layer}": filters(dtype, layer % period) for layer in range(layers)}


def repeated_constants() -> onnx.ModelProto:
    model = chain(6, "w#")
    for layer in range(6):
        value = numpy_helper.from_array(filters())
        model.graph.node.insert(0, helper.make_node("Constant", [], [f"w{layer}"], value=value))
    return model


def numbers_per_channel() -> dict[str, Array]:
    return {f"b{layer}": random(1, CHANNELS, 1, 1, seed=layer) + 1 for layer in range(6)}


SCALE = np.full((CHANNELS, 1, 1, 1), 0.002, np.float32)
STEP: dict[str, Any] = {"scale": np.full((CHANNELS,), 0.002, np.float32), "zero": np.zeros((CHANNELS,), np.int8)}
TIED = f"""{HEAD} (float[1,16] x) => (float[?,?,?] y) {{
    ids = Cast <to = 7> (x) a = Gather (w, ids) b = MatMul (a, v) c = Relu (b)
    t = Transpose <perm = [1, 0]> (w) y = MatMul (c, t)
}}"""
ANGLES = f"""{HEAD} (float[1,1024] x) => (float[?,?] y) {{
    angles = Mul (column, row) table = Cos (angles) y = MatMul (x, table)
}}"""
"""Tables of cosines that a model computes from two short ranges."""
COLUMN = np.arange(1024, dtype=np.float32)[:, None]

by_many_layers = partial(chain, 30, "w", w=filters())
repeated = partial(chain, 8, "w#", **each(8, period=2))
half = partial(chain, 8, "f#", "f# = Cast <to = 1> (w#)", **each(8, np.float16))
full = partial(chain, 8, "w#", **{name: array.astype(np.float32) for name, array in each(8, np.float16).items()})
"""`half` without the Casts, and with the same numbers."""
fourier_tables = partial(parsed, ANGLES, column=COLUMN, row=COLUMN.T * np.float32(2 * np.pi / 1024))

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "by_identity": partial(chain, 6, "f#", "f# = Identity (w)", w=filters()),
    "by_many_layers": by_many_layers,
    "repeated": repeated,
    "repeated_constants": repeated_constants,
    "transposed_by_each": partial(chain, 6, "f#", "f# = Transpose <perm = [1, 0, 2, 3]> (w)", w=filters()),
    "half": half,
    "scaled_integers": partial(
        chain, 12, "f#", "i# = Cast <to = 1> (w#) f# = Mul (i#, scale)", **each(12, np.int8), scale=SCALE
    ),
    "dequantized": partial(
        chain, 6, "f#", "f# = DequantizeLinear <axis = 0> (w#, scale, zero)", **each(6, np.int8), **STEP
    ),
    "tied_embeddings": partial(parsed, TIED, w=random(512, 64), v=random(64, 64)),
    "fourier_tables": fourier_tables,
    "in_branches": partial(parsed, IN_BRANCHES, w=filters(), zero=np.float32(0)),
    "with_own_biases": partial(chain, 6, "w", affine="Add", w=filters(), **numbers_per_channel()),
    "scaled_channels": partial(chain, 6, "w#", affine="Mul", **each(6), **numbers_per_channel()),
}
