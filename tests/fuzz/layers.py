"""Steps that add one op to a random graph, with random operands, shapes and attributes. `op_samples` adds every other op."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from layoutopt.ops import rules

from .choices import between, chance, pick, shuffled, weighted
from .graph_builder import GraphBuilder, Rejected

Maker = Callable[[GraphBuilder], None]

CHANNELS = (1, 2, 3, 5, 8, 16, 17, 24, 32)


def feature_map(g: GraphBuilder, rank: int | None = None) -> str:
    """A value with channels: an existing one, or a new input."""
    wanted = rank or weighted(g.choices, [(4, 12), (3, 4), (5, 1)])
    if g.readable(wanted) and not chance(g.choices, 5):
        name = g.pick(wanted)
        if 0 in g.values[name].shape:
            raise Rejected
        return name
    shape = (
        pick(g.choices, (1, 2, 3)),
        pick(g.choices, CHANNELS),
        *(between(g.choices, 1, 6) for _ in range(wanted - 2)),
    )
    return g.input(shape)


def axis_of(g: GraphBuilder, name: str) -> int:
    """A random axis, positive or negative."""
    rank = g.values[name].ndim
    if not rank:
        raise Rejected
    axis = between(g.choices, 0, rank - 1)
    return axis - rank if chance(g.choices, 30) else axis


def conv(g: GraphBuilder) -> None:
    """A convolution with random groups, strides, padding and dilation."""
    x = feature_map(g)
    _, channels, *image = g.values[x].shape
    group = weighted(g.choices, [(1, 12), (channels, 5), (pick(g.choices, _divisors(channels)), 3)])
    filters = group * pick(g.choices, (1, 1, 2, 3, 8, 16, 17)) if group > 1 else pick(g.choices, CHANNELS)
    kernel = (
        [pick(g.choices, (1, 3, 3, 2, 5)) for _ in image]
        if chance(g.choices, 25)
        else [pick(g.choices, (1, 3))] * len(image)
    )
    w = g.weight((filters, channels // group, *kernel))
    attributes: dict[str, Any] = {} if group == 1 and chance(g.choices, 50) else {"group": group}
    if chance(g.choices, 60):
        attributes["kernel_shape"] = kernel
    attributes |= _window(g, kernel)
    if chance(g.choices, 20):
        attributes["dilations"] = [pick(g.choices, (1, 2)) for _ in image]
    bias = [g.weight((filters,), 0.5)] if chance(g.choices, 50) else []
    g.add("Conv", [x, w, *(bias or ([""] if chance(g.choices, 10) else []))], **attributes)


def pool(g: GraphBuilder) -> None:
    """Pooling over windows or the whole image."""
    x = feature_map(g)
    rank = g.values[x].ndim
    if chance(g.choices, 30):
        g.add(pick(g.choices, ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")), [x])
        return
    kind = pick(g.choices, ("MaxPool", "AveragePool", "LpPool"))
    kernel = [pick(g.choices, (1, 2, 3))] * (rank - 2)
    attributes = {"kernel_shape": kernel, **_window(g, kernel)}
    if kind == "AveragePool" and chance(g.choices, 30):
        attributes["count_include_pad"] = 1
    if kind != "LpPool" and g.opset >= 10 and chance(g.choices, 20):
        attributes["ceil_mode"] = 1
    if kind == "MaxPool" and chance(g.choices, 10):
        g.add_many(kind, [x], 2, **attributes)
    else:
        g.add(kind, [x], **attributes)


def matmul(g: GraphBuilder) -> None:
    """A matrix product with a constant or of two values."""
    a = g.pick(between(g.choices, 2, 4)) if g.readable(2) or g.readable(3) or g.readable(4) else feature_map(g, 3)
    shape = g.values[a].shape
    if len(shape) < 2:
        raise Rejected
    features = pick(g.choices, (1, 3, 8, 16, 17))
    way = between(g.choices, 0, 5)
    if way <= 2:
        g.add("MatMul", [a, g.weight((shape[-1], features), shape[-1] ** -0.5)])
    elif way == 3:
        g.add("MatMul", [g.weight((features, shape[-2]), shape[-2] ** -0.5), a])
    elif way == 4:
        fitting = [name for name in g.readable() if g.values[name].ndim >= 2 and g.values[name].shape[-2] == shape[-1]]
        if not fitting:
            raise Rejected
        g.add("MatMul", [a, pick(g.choices, fitting)])
    else:
        perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        g.add("MatMul", [a, g.add("Transpose", [a], perm=perm)])


def unary(g: GraphBuilder) -> None:
    """A unary op with a rule."""
    kinds = [kind for kind, rule in rules().items() if rule.family == "elementwise" and not rule.is_broadcasting]
    kind = pick(g.choices, ["Relu", "Relu", "Sigmoid", "Identity", *kinds])
    domain, _, op_type = kind.rpartition("::")
    x = g.pick(kind=weighted(g.choices, [("f", 9), ("iub", 1)]))
    attributes: dict[str, Any] = {}
    if op_type in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu") and chance(g.choices, 50):
        attributes["alpha"] = pick(g.choices, (0.5, 1.0, 2.0))
    g.add(op_type, [x], domain, **attributes)


def binary(g: GraphBuilder) -> None:
    """A broadcasting op with another value or a constant."""
    kinds = [kind for kind, rule in rules().items() if rule.is_broadcasting]
    kind = pick(g.choices, ["Add", "Mul", "Add", "Mul", "Sub", "Div", *kinds])
    x = g.pick(kind=weighted(g.choices, [("f", 9), ("iu", 1), ("b", 1)]))
    count = pick(g.choices, (2, 2, 3)) if kind in ("Sum", "Max", "Min", "Mean", "Where") else 2
    operands = [x, *(broadcast_operand(g, x) for _ in range(count - 1))]
    if kind == "Pow":
        operands[1] = g.constant(np.asarray(pick(g.choices, (2.0, 1.0, 3.0, 0.5)), g.values[x].dtype))
    if kind == "Where":
        operands = [g.add("Greater", [operands[-1], x]), x, operands[1]]
    elif chance(g.choices, 30):
        operands = shuffled(g.choices, operands)
    if kind == "PRelu":
        known = {**g.all_constants(), **g.values}
        first, *rest = (known[name].shape for name in operands)
        try:
            fits = np.broadcast_shapes(first, *rest) == first
        except ValueError:
            fits = False
        if not fits:
            raise Rejected  # onnxruntime runs ops that onnx declares invalid
    g.add(kind, operands, **({"direction": "LEFT"} if kind == "BitShift" else {}))


def broadcast_operand(g: GraphBuilder, x: str) -> str:
    """A second operand: of the shape of x, or one that broadcasts to it."""
    shape, dtype = g.values[x].shape, g.values[x].dtype
    if chance(g.choices, 45):
        return g.pick(kind=dtype.kind, shape=shape)
    small = tuple(dim if chance(g.choices, 50) else 1 for dim in shape)
    if chance(g.choices, 40) and len(shape) > 1:
        small = (1, shape[1], *(1,) * (len(shape) - 2))
    drop = between(g.choices, 0, len(shape))
    small = small[drop:] if all(dim == 1 for dim in small[:drop]) or chance(g.choices, 30) else small
    if chance(g.choices, 5):
        small = (pick(g.choices, (1, 2)), *small)
    fitting = [name for name in g.readable(kind=dtype.kind, shape=small) if name != x]
    if fitting and chance(g.choices, 60):
        return pick(g.choices, fitting)
    if dtype == g.dtype:
        return g.weight(small, 1.0)
    return g.constant(g.array(small, dtype))


def concat(g: GraphBuilder) -> None:
    """A Concat with itself, a constant, or a value of a fitting shape."""
    x = g.pick(kind=weighted(g.choices, [("f", 9), ("iu", 1)]))
    shape, axis = g.values[x].shape, axis_of(g, x)
    place = axis % len(shape)
    fitting = [
        name
        for name in g.readable(len(shape), g.values[x].dtype.kind)
        if all(a == b for at, (a, b) in enumerate(zip(g.values[name].shape, shape, strict=True)) if at != place)
    ]
    parts = [x]
    for _ in range(between(g.choices, 1, 2)):
        if chance(g.choices, 20) and g.values[x].dtype == g.dtype:
            parts.append(g.weight((*shape[:place], pick(g.choices, (1, 2, 16)), *shape[place + 1 :]), 1.0))
        else:
            parts.append(pick(g.choices, fitting))
    g.add("Concat", shuffled(g.choices, parts), axis=axis)


def cut(g: GraphBuilder) -> None:
    """A Slice with steps and negative bounds, sometimes to a computed extent."""
    x = g.pick(kind=weighted(g.choices, [("f", 9), ("iub", 1)]))
    axes = sorted({axis_of(g, x) % g.values[x].ndim for _ in range(between(g.choices, 1, 2))})
    starts = [between(g.choices, -2, 3) for _ in axes]
    ends = [pick(g.choices, (1 << 31, 2, 16, -1, g.values[x].shape[axis])) for axis in axes]
    if chance(g.choices, 30):
        axes = [axis - g.values[x].ndim for axis in axes]
    if g.opset < 10:
        g.add("Slice", [x], axes=axes, starts=starts, ends=ends)
        return
    kind = pick(g.choices, (np.int64, np.int32))
    steps = [pick(g.choices, (1, 2, -1)) for _ in axes] if chance(g.choices, 30) else []
    for at in (at for at, step in enumerate(steps) if step < 0 and ends[at] == 1 << 31):
        ends[at] = -1 << 31  # with a negative step onnx reads it as empty, onnxruntime as everything
    numbers = [np.clip(np.asarray(each), -(2**31), 2**31 - 1).astype(kind) for each in (starts, ends, axes)]
    inputs = [x, *(g.constant(each) for each in numbers)]
    if steps:
        inputs.append(g.constant(np.asarray(steps, kind)))
    g.add("Slice", inputs)


def _window(g: GraphBuilder, kernel: Sequence[int]) -> dict[str, Any]:
    """Random strides and padding."""
    found: dict[str, Any] = {}
    if chance(g.choices, 30):
        found["strides"] = [pick(g.choices, (2, 1, 3)) for _ in kernel]
    way = between(g.choices, 0, 9)
    if way <= 3:
        found["pads"] = [extent // 2 for extent in kernel] * 2
    elif way <= 5:
        found["pads"] = [between(g.choices, 0, max(0, extent - 1)) for extent in (*kernel, *kernel)]
    elif way == 6:
        found["auto_pad"] = pick(g.choices, ("SAME_UPPER", "SAME_LOWER", "VALID"))
    return found


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


LAYERS: list[tuple[Maker, int]] = [
    (conv, 14), (pool, 5), (matmul, 8), (unary, 9), (binary, 12), (concat, 5), (cut, 4),
]  # fmt: skip
