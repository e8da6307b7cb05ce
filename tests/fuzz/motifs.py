"""Steps that add patterns of exporters in several ops: views, shape arithmetic, fusion patterns, QDQ groups."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .choices import between, chance, pick, shuffled, weighted
from .graph_builder import GraphBuilder, Rejected
from .layers import CHANNELS, Maker, broadcast_operand, feature_map


def transpose(g: GraphBuilder) -> None:
    """Transposes to channels last and back, or by random permutations."""
    x = g.pick(kind=weighted(g.choices, [("f", 12), ("iub", 1)]))
    rank = g.values[x].ndim
    if rank < 2:
        raise Rejected
    orders = [(0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1)), tuple(shuffled(g.choices, range(rank)))]
    if chance(g.choices, 10):
        g.add("Transpose", [x])
    else:
        g.add("Transpose", [x], perm=pick(g.choices, orders))


def reshape(g: GraphBuilder) -> None:
    """Reshapes with merged, split, inferred and copied axes."""
    x = g.pick(kind=weighted(g.choices, [("f", 12), ("iub", 1)]))
    _reshaped(g, x, _other_shape(g, g.values[x].shape))


def shuffle(g: GraphBuilder) -> None:
    """A channel shuffle."""
    x = feature_map(g, 4)
    n, c, h, w = g.values[x].shape
    factors = [each for each in range(2, c) if c % each == 0]
    if not factors:
        raise Rejected
    group = pick(g.choices, factors)
    apart = _reshaped(g, x, (n, group, c // group, h, w))
    _reshaped(g, g.add("Transpose", [apart], perm=(0, 2, 1, 3, 4)), (n, c, h, w))


def tokens(g: GraphBuilder) -> None:
    """An image reshaped to a sequence, an op on it, and back."""
    x = feature_map(g, 4)
    n, c, h, w = g.values[x].shape
    flat = _reshaped(g, x, (n, c, h * w))
    sequence = g.add("Transpose", [flat], perm=(0, 2, 1))
    features = pick(g.choices, (c, c, 8))
    if chance(g.choices, 70):
        sequence = g.add("MatMul", [sequence, g.weight((c, features), max(c, 1) ** -0.5)])
        sequence = g.add("Add", [sequence, g.weight((features,), 0.5)])
        c = features
    if chance(g.choices, 70):
        _reshaped(g, g.add("Transpose", [sequence], perm=(0, 2, 1)), (n, c, h, w))


def attention(g: GraphBuilder) -> None:
    """Attention as written by exporters."""
    x = feature_map(g, 3)
    n, t, c = g.values[x].shape
    heads, size = pick(g.choices, (1, 2, 4)), pick(g.choices, (2, 3, 8))
    names = []
    for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        projected = g.add("MatMul", [x, g.weight((c, heads * size), max(c, 1) ** -0.5)])
        if chance(g.choices, 50):
            projected = g.add("Add", [projected, g.weight((heads * size,), 0.3)])
        names.append(g.add("Transpose", [_reshaped(g, projected, (n, t, heads, size))], perm=perm))
    q, k, v = names
    scores = g.add("MatMul", [q, k])
    scale = np.asarray(size**0.5, g.dtype)
    scores = (
        g.add("Div", [scores, g.constant(scale)])
        if chance(g.choices, 50)
        else g.add("Mul", [scores, g.constant(1 / scale)])
    )
    if chance(g.choices, 30):
        scores = g.add("Add", [scores, g.weight(pick(g.choices, ((t, t), (1, 1, t, t), (n, 1, 1, t))), 1.0)])
    weights = g.add("Softmax", [scores], axis=3 if g.opset < 13 else -1)
    out = g.add("Transpose", [g.add("MatMul", [weights, v])], perm=(0, 2, 1, 3))
    merged = _reshaped(g, out, (n, t, heads * size))
    g.add("Add", [g.add("MatMul", [merged, g.weight((heads * size, c), max(c, 1) ** -0.5)]), x])


def recurrent(g: GraphBuilder) -> None:
    """A sequence read forwards, backwards or both, samples first as a rule, and the directions side by side."""
    x = feature_map(g, 3)
    kind, gates = pick(g.choices, (("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    hidden = pick(g.choices, (3, 4, 8))
    direction = pick(g.choices, ("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    turned = chance(g.choices, 70)
    if turned:
        x = g.add("Transpose", [x], perm=(1, 0, 2))
    steps, samples, features = g.values[x].shape
    weights = [g.weight((ways, gates * hidden, size), max(size, 1) ** -0.5) for size in (features, hidden)]
    bias = [g.weight((ways, 2 * gates * hidden), 0.3)] if chance(g.choices, 60) else []
    count = pick(g.choices, (1, 1, 2))
    y, *_ = g.add_many(kind, [x, *weights, *bias], count, hidden_size=hidden, direction=direction)
    if chance(g.choices, 70):
        y = _reshaped(g, g.add("Transpose", [y], perm=(0, 2, 1, 3)), (steps, samples, ways * hidden))
        if turned:
            g.add("Transpose", [y], perm=(1, 0, 2))


def gate(g: GraphBuilder) -> None:
    """GELU, SiLU and hard swish as several ops."""
    x, dtype = g.pick(), g.dtype
    number = lambda value: g.constant(np.asarray(value, dtype))  # noqa: E731
    way = between(g.choices, 0, 3)
    if way == 0:
        g.add("Mul", [x, g.add("Sigmoid", [x])])
    elif way == 1:
        g.add("Mul", [x, g.add("HardSigmoid", [x], alpha=1 / 6, beta=0.5)])
    elif way == 2:
        inner = g.add("Add", [g.add("Erf", [g.add("Div", [x, number(2**0.5)])]), number(1.0)])
        g.add("Mul", [g.add("Mul", [x, inner]), number(0.5)])
    else:
        cubic = g.add("Mul", [g.add("Pow", [x, number(3.0)]), number(0.044715)])
        inner = g.add("Tanh", [g.add("Mul", [g.add("Add", [x, cubic]), number((2 / np.pi) ** 0.5)])])
        g.add("Mul", [g.add("Mul", [x, number(0.5)]), g.add("Add", [inner, number(1.0)])])


def excite(g: GraphBuilder) -> None:
    """Squeeze-and-excite: a feature map times a computed number per channel."""
    x = feature_map(g, 4)
    channels = g.values[x].shape[1]
    few = pick(g.choices, (1, 4, 8))
    mean = g.add("GlobalAveragePool", [x]) if chance(g.choices, 60) else _mean(g, x, [2, 3])
    hidden = g.add("Relu", [g.add("Conv", [mean, g.weight((few, channels, 1, 1)), g.weight((few,), 0.3)])])
    back = g.add("Conv", [hidden, g.weight((channels, few, 1, 1)), g.weight((channels,), 0.3)])
    pair = [x, g.add(pick(g.choices, ("Sigmoid", "HardSigmoid")), [back])]
    scaled = g.add("Mul", shuffled(g.choices, pair))
    if chance(g.choices, 50):
        g.add("Conv", [scaled, g.weight((pick(g.choices, CHANNELS), channels, 1, 1))])


def group_norm(g: GraphBuilder) -> None:
    """Group normalisation as an instance normalisation of groups."""
    x = feature_map(g)
    shape = g.values[x].shape
    channels = shape[1]
    groups = pick(g.choices, [each for each in range(1, channels + 1) if channels % each == 0])
    ones, zeros = np.ones(groups, g.dtype), np.zeros(groups, g.dtype)
    if chance(g.choices, 20):
        ones = g.array((groups,))
    flat = _reshaped(g, x, (shape[0], groups, -1))
    normal = g.add("InstanceNormalization", [flat, g.constant(ones), g.constant(zeros)], epsilon=0.01)
    back = _reshaped(g, normal, shape)
    per_channel = (channels, *(1,) * (len(shape) - 2))
    g.add("Add", [g.add("Mul", [back, g.weight(per_channel, 0.5)]), g.weight(per_channel, 0.5)])


def layer_norm(g: GraphBuilder) -> None:
    """Layer normalisation as several ops."""
    x = g.pick()
    if not g.values[x].ndim:
        raise Rejected
    last = g.values[x].shape[-1]
    centred = g.add("Sub", [x, _mean(g, x, [-1])])
    square = (
        g.add("Pow", [centred, g.constant(np.asarray(2, g.dtype))])
        if chance(g.choices, 50)
        else g.add("Mul", [centred, centred])
    )
    variance = g.add("Add", [_mean(g, square, [-1]), g.constant(np.asarray(0.1, g.dtype))])
    normal = g.add("Div", [centred, g.add("Sqrt", [variance])])
    g.add("Add", [g.add("Mul", [normal, g.weight((last,), 0.5)]), g.weight((last,), 0.5)])


def affines(g: GraphBuilder) -> None:
    """A convolution or product with foldable padding, scales, shifts and normalisations."""
    x = feature_map(g, 4)
    per_channel = lambda count: (1, count, 1, 1) if chance(g.choices, 50) else (count, 1, 1)  # noqa: E731
    channels = g.values[x].shape[1]
    if chance(g.choices, 30):
        x = g.add(pick(g.choices, ("Mul", "Add", "Sub", "Div")), [x, g.weight(per_channel(channels), 1.0)])
    if chance(g.choices, 30):
        front, back = ([between(g.choices, 0, 2) for _ in range(2)] for _ in range(2))
        pads = [0, 0, *front, 0, 0, *back]
        x = g.add("Pad", [x], pads=pads) if g.opset < 11 else g.add("Pad", [x, g.constant(pads)])
    filters, size = pick(g.choices, CHANNELS), pick(g.choices, (1, 3))
    y = g.add("Conv", [x, g.weight((filters, channels, size, size))], pads=[size // 2] * 4)
    for _ in range(between(g.choices, 0, 2)):
        if chance(g.choices, 30):
            numbers = [g.weight((filters,), 0.5) for _ in range(3)]
            variance = g.constant((np.abs(g.array((filters,))) + g.dtype(0.5)).astype(g.dtype))
            y = g.add("BatchNormalization", [y, *numbers, variance])
        else:
            pair = [y, g.weight(per_channel(filters), 1.0)]
            y = g.add(pick(g.choices, ("Mul", "Add", "Sub")), shuffled(g.choices, pair))
    if chance(g.choices, 40):
        y = g.add("Add", [y, g.pick(shape=g.values[y].shape)])
    if chance(g.choices, 40):
        g.add("Relu", [y])


def maps(g: GraphBuilder) -> None:
    """Channel-wise linear maps around Concat and Resize, which passes may commute or merge."""
    parts = []
    x = feature_map(g, 4)
    n, _, h, w = g.values[x].shape
    fitting = [name for name in g.readable(4) if g.values[name].shape[::2] == (n, h) and g.values[name].shape[3] == w]
    for _ in range(between(g.choices, 1, 3)):
        part = pick(g.choices, [x, *fitting])
        for _ in range(between(g.choices, 0, 2)):
            part = g.add("Conv", [part, g.weight((pick(g.choices, (2, 8, 16)), g.values[part].shape[1], 1, 1))])
        parts.append(part)
    joined = g.add("Concat", parts, axis=1) if len(parts) > 1 else parts[0]
    if chance(g.choices, 40):
        if g.opset >= 11:
            scales = g.constant(np.asarray([1, 1, 2, 2], np.float32))
            joined = g.add("Resize", [joined, g.constant(np.zeros(0, np.float32)), scales], mode="linear")
        else:
            joined = g.add("AveragePool", [joined], kernel_shape=[2, 2])
    g.add("Conv", [joined, g.weight((pick(g.choices, (2, 8, 16)), g.values[joined].shape[1], 1, 1))])


def shape_arithmetic(g: GraphBuilder) -> None:
    """Shape arithmetic: Shape, Gather, Concat, Reshape."""
    x = g.pick()
    rank = g.values[x].ndim
    if not rank:
        raise Rejected
    shape = g.add("Shape", [x])
    way = between(g.choices, 0, 4)
    if way == 0:
        first = g.add("Gather", [shape, g.constant([0])])
        g.add("Reshape", [x, g.add("Concat", [first, g.constant([-1])], axis=0)])
    elif way == 1:
        parts = [_axes_op(g, "Unsqueeze", g.add("Gather", [shape, g.constant(axis)]), [0]) for axis in range(rank)]
        if rank > 1 and chance(g.choices, 50):
            parts[-2:] = [g.add("Mul", parts[-2:])]
        g.add("Reshape", [x, g.add("Concat", parts, axis=0)])
    elif way == 2:
        zeros = g.add("ConstantOfShape", [shape])
        if g.values[zeros].dtype == g.values[x].dtype:
            g.add("Add", [x, zeros])
    elif way == 3:
        g.add("Expand", [g.weight((1,), 1.0), shape])
    else:
        repeats = [1] * rank
        repeats[between(g.choices, 0, rank - 1)] = 2
        g.add("Tile", [x, g.constant(repeats)])


def expand(g: GraphBuilder) -> None:
    """Repeated ops with an op behind them."""
    x = g.pick()
    shape = g.values[x].shape
    small = broadcast_operand(g, x)
    wide = g.add("Expand", [small, g.constant(list(shape))])
    if g.values[wide].shape == shape and chance(g.choices, 70):
        g.add(pick(g.choices, ("Add", "Mul")), [x, wide])


def quantized(g: GraphBuilder) -> None:
    """A QDQ group with weights quantised per tensor or per channel."""
    if g.opset < 10 or g.dtype is not np.float32:
        raise Rejected
    x = _quantized(g, feature_map(g, 4))
    channels = g.values[x].shape[1]
    kind = pick(g.choices, ("Conv", "Conv", "Relu", "Add", "Concat", "AveragePool", "Transpose"))
    if kind == "Conv":
        filters, size = pick(g.choices, (3, 8, 16)), pick(g.choices, (1, 3))
        numbers = np.random.default_rng(between(g.choices, 0, 999)).integers(-90, 90, (filters, channels, size, size))
        per_channel = g.opset >= 13 and chance(g.choices, 50)
        scale = np.full(filters if per_channel else (), 0.02, np.float32)
        zero = np.zeros(scale.shape, np.int8)
        w = g.add("DequantizeLinear", [g.constant(numbers.astype(np.int8)), g.constant(scale), g.constant(zero)],
                  **({"axis": 0} if per_channel else {}))  # fmt: skip
        y = g.add("Conv", [x, w, *([g.weight((filters,), 0.5)] if chance(g.choices, 50) else [])])
    elif kind in ("Add", "Concat"):
        y = g.add(kind, [x, x], **({"axis": 1} if kind == "Concat" else {}))
    elif kind == "AveragePool":
        y = g.add(kind, [x], kernel_shape=[1, 1])
    else:
        y = g.add(kind, [x], **({"perm": [0, 2, 3, 1]} if kind == "Transpose" else {}))
    _quantized(g, y)


def _quantized(g: GraphBuilder, x: str) -> str:
    """QuantizeLinear and DequantizeLinear."""
    largest = float(np.abs(g.values[x]).max(initial=1.0))
    kind = pick(g.choices, (np.int8, np.uint8))
    scale = g.constant(np.asarray(largest / 100, np.float32))
    zero = g.constant(np.asarray(0 if kind is np.int8 else 128, kind))
    return g.add("DequantizeLinear", [g.add("QuantizeLinear", [x, scale, zero]), scale, zero])


def _mean(g: GraphBuilder, x: str, axes: Sequence[int]) -> str:
    if g.opset < 18:
        return g.add("ReduceMean", [x], axes=axes, keepdims=1)
    return g.add("ReduceMean", [x, g.constant(list(axes))], keepdims=1)


def _axes_op(g: GraphBuilder, kind: str, x: str, axes: Sequence[int]) -> str:
    if g.opset < 13:
        return g.add(kind, [x], axes=axes)
    return g.add(kind, [x, g.constant(list(axes))])


def _reshaped(g: GraphBuilder, x: str, shape: Sequence[int]) -> str:
    """A Reshape by a constant, with copied or inferred extents."""
    numbers, current = list(shape), g.values[x].shape
    if chance(g.choices, 30):
        numbers = [0 if at < len(current) and current[at] == dim and dim else dim for at, dim in enumerate(numbers)]
    if numbers and -1 not in numbers and chance(g.choices, 30):
        numbers[between(g.choices, 0, len(numbers) - 1)] = -1
    attributes: dict[str, Any] = {}
    return g.add("Reshape", [x, g.constant(numbers)], **attributes)


def _other_shape(g: GraphBuilder, shape: Sequence[int]) -> list[int]:
    if 0 in shape:
        raise Rejected
    found = list(shape)
    for _ in range(between(g.choices, 1, 2)):
        at = between(g.choices, 0, len(found)) if found else 0
        if chance(g.choices, 50) and at + 1 < len(found):
            found[at : at + 2] = [found[at] * found[at + 1]]
        elif at < len(found):
            factor = pick(g.choices, [each for each in range(1, found[at] + 1) if found[at] % each == 0])
            found[at : at + 1] = [factor, found[at] // factor]
        else:
            found.append(1)
    if len(found) > 6:
        raise Rejected
    return found


MOTIFS: list[tuple[Maker, int]] = [
    (transpose, 12), (reshape, 10), (shuffle, 3), (tokens, 4), (attention, 3), (gate, 4),
    (recurrent, 3), (excite, 3), (group_norm, 2), (layer_norm, 2), (affines, 8), (maps, 5),
    (shape_arithmetic, 4), (expand, 3), (quantized, 4),
]  # fmt: skip
