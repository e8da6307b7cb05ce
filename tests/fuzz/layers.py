"""Steps that add one op to a random graph, with random operands, shapes and attributes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from layoutopt.ops import rules
from layoutopt.ops.interfaces import BroadcastingOp

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


def conv_transpose(g: GraphBuilder) -> None:
    """A transposed convolution, also with groups and output padding."""
    x = feature_map(g)
    _, channels, *image = g.values[x].shape
    group = weighted(g.choices, [(1, 4), (pick(g.choices, _divisors(channels)), 1)])
    kernel = [pick(g.choices, (1, 2, 3)) for _ in image]
    filters = pick(g.choices, (1, 2, 3, 8, 16))
    attributes: dict[str, Any] = {"group": group}
    if chance(g.choices, 60):
        attributes["strides"] = [2] * len(image)
        if chance(g.choices, 30):
            attributes["output_padding"] = [1] * len(image)
    if chance(g.choices, 30):
        attributes["pads"] = [pick(g.choices, (0, 1)) for _ in range(2 * len(image))]
    bias = [g.weight((filters * group,), 0.5)] if chance(g.choices, 50) else []
    g.add("ConvTranspose", [x, g.weight((channels, filters, *kernel), 0.3), *bias], **attributes)


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


def gemm(g: GraphBuilder) -> None:
    """A Gemm with random transposition and a broadcast addend."""
    a = g.pick(2) if g.readable(2) else feature_map(g, 2)
    turned = chance(g.choices, 25)
    rows, inner = g.values[a].shape[::-1] if turned else g.values[a].shape
    features = pick(g.choices, (1, 3, 8, 17))
    attributes: dict[str, Any] = {"transA": 1} if turned else {}
    if chance(g.choices, 60):
        attributes["transB"] = 1
    if chance(g.choices, 25):
        attributes |= {"alpha": 0.5, "beta": pick(g.choices, (1.0, 2.0, 0.0))}
    b = g.weight((features, inner) if attributes.get("transB") else (inner, features), max(inner, 1) ** -0.5)
    shape = pick(g.choices, ((features,), (1, features), (rows, 1), (rows, features), (1,), ()))
    c = [g.weight(shape, 0.5)] if g.opset < 11 or chance(g.choices, 75) else []
    g.add("Gemm", [a, b, *c], **attributes)


def normalization(g: GraphBuilder) -> None:
    """A normalisation per channel, sample or layer."""
    kind = pick(
        g.choices, ("BatchNormalization", "BatchNormalization", "InstanceNormalization", "LRN", "last", "group")
    )
    if kind == "last":
        x = g.pick()
        last = g.values[x].shape[-1] if g.values[x].ndim else 1
        op = "RMSNormalization" if g.opset >= 23 and chance(g.choices, 40) else "LayerNormalization"
        bias = [g.weight((last,), 0.5)] if op == "LayerNormalization" and chance(g.choices, 70) else []
        g.add(op, [x, g.weight((last,), 0.5), *bias], axis=-1)
        return
    x = feature_map(g)
    channels = g.values[x].shape[1]
    scale, shift = g.weight((channels,), 0.5), g.weight((channels,), 0.5)
    if kind == "BatchNormalization":
        variance = g.constant((np.abs(g.array((channels,))) + g.dtype(0.5)).astype(g.dtype))
        g.add(kind, [x, scale, shift, g.weight((channels,), 0.5), variance], epsilon=pick(g.choices, (1e-5, 1e-3)))
    elif kind == "InstanceNormalization":
        g.add(kind, [x, scale, shift], epsilon=0.1)
    elif kind == "LRN":
        g.add(kind, [x], size=pick(g.choices, (1, 3, 5)), bias=pick(g.choices, (1.0, 2.0)))
    else:
        groups = pick(g.choices, _divisors(channels))
        g.add("GroupNormalization", [x, scale, shift], num_groups=groups, epsilon=0.1)


def unary(g: GraphBuilder) -> None:
    """A unary op with a rule."""
    kinds = [
        kind for kind, rule in rules().items() if rule.family == "elementwise" and not isinstance(rule, BroadcastingOp)
    ]
    kind = pick(g.choices, ["Relu", "Relu", "Sigmoid", "Identity", *kinds])
    domain, _, op_type = kind.rpartition("::")
    x = g.pick(kind=weighted(g.choices, [("f", 9), ("iub", 1)]))
    attributes: dict[str, Any] = {}
    if op_type in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu") and chance(g.choices, 50):
        attributes["alpha"] = pick(g.choices, (0.5, 1.0, 2.0))
    g.add(op_type, [x], domain, **attributes)


def binary(g: GraphBuilder) -> None:
    """A broadcasting op with another value or a constant."""
    kinds = [kind for kind, rule in rules().items() if isinstance(rule, BroadcastingOp)]
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


def softmax(g: GraphBuilder) -> None:
    """A Softmax along a random axis, with the semantics of the opset."""
    x = g.pick()
    attributes = {"axis": axis_of(g, x)} if chance(g.choices, 80) else {}
    g.add(pick(g.choices, ("Softmax", "Softmax", "LogSoftmax", "Hardmax")), [x], **attributes)


def reduction(g: GraphBuilder) -> None:
    """A reduction along axes from an attribute or an input, or along all axes."""
    kinds = [kind for kind, rule in rules().items() if rule.family == "reduction"]
    kind, x = pick(g.choices, ["ReduceMean", "ReduceSum", "ReduceMax", *kinds]), g.pick()
    keep = between(g.choices, 0, 1)
    if kind.startswith("Arg"):
        g.add(kind, [x], axis=axis_of(g, x), keepdims=keep)
        return
    axes = sorted({axis_of(g, x) % g.values[x].ndim for _ in range(between(g.choices, 1, 3))})
    if g.values[x].ndim == 4 and chance(g.choices, 30):
        axes = [2, 3]
    if chance(g.choices, 30):
        axes = [axis - g.values[x].ndim for axis in axes]
    since = 13 if kind == "ReduceSum" else 18
    none = chance(g.choices, 10)
    if g.opset < since:
        g.add(kind, [x], keepdims=keep, **({} if none else {"axes": axes}))
    elif none:
        g.add(kind, [x], keepdims=keep, noop_with_empty_axes=between(g.choices, 0, 1))
    else:
        g.add(kind, [x, g.constant(axes)], keepdims=keep)


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


def split(g: GraphBuilder) -> None:
    """A Split into equal or unequal parts."""
    x = g.pick()
    axis = axis_of(g, x)
    extent = g.values[x].shape[axis]
    if extent < 2:
        raise Rejected
    first = between(g.choices, 1, extent - 1)
    if extent % 2 == 0 and chance(g.choices, 50):
        attributes = {"num_outputs": 2} if g.opset >= 18 else {}
        g.add_many("Split", [x], 2, axis=axis, **attributes)
    elif g.opset < 13:
        g.add_many("Split", [x], 2, axis=axis, split=[first, extent - first])
    else:
        g.add_many("Split", [x, g.constant([first, extent - first])], 2, axis=axis)


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


def pad(g: GraphBuilder) -> None:
    """A Pad in every mode, with negative pads."""
    x = g.pick()
    rank = g.values[x].ndim
    pads = [weighted(g.choices, [(0, 6), (1, 5), (2, 2), (-1, 1)]) for _ in range(2 * rank)]
    if rank > 2 and chance(g.choices, 60):
        pads[:2], pads[rank : rank + 2] = [0, 0], [0, 0]
    attributes: dict[str, Any] = {}
    if chance(g.choices, 40):
        attributes["mode"] = pick(g.choices, ("constant", "edge", "reflect", *(["wrap"] if g.opset >= 19 else [])))
    value = pick(g.choices, (0.0, 0.0, 1.5, -1.0))
    if g.opset < 11 and not rank:
        raise Rejected
    if g.opset < 11:
        g.add("Pad", [x], pads=pads, value=value, **attributes)
        return
    inputs = [x, g.constant(pads)]
    if chance(g.choices, 60):
        inputs.append(g.constant(np.asarray(value, g.values[x].dtype)))
    if g.opset >= 18 and chance(g.choices, 20):
        axes = sorted({axis_of(g, x) % rank for _ in range(2)})
        inputs = [x, g.constant([pads[at] for at in axes] * 2), "", g.constant(axes)]
    g.add("Pad", inputs, **attributes)


def gather(g: GraphBuilder) -> None:
    """A Gather by one or several indices, also negative ones."""
    x = g.pick(kind=weighted(g.choices, [("f", 9), ("iub", 1)]))
    axis = axis_of(g, x)
    extent = g.values[x].shape[axis]
    shape = pick(g.choices, ((), (1,), (3,), (2, 2)))
    indices = np.asarray([between(g.choices, -extent, extent - 1) for _ in range(int(np.prod(shape)))], np.int64)
    g.add("Gather", [x, g.constant(indices.reshape(shape))], axis=axis)


def resize(g: GraphBuilder) -> None:
    """A Resize up or down, by scales or sizes."""
    x = feature_map(g)
    shape = g.values[x].shape
    scales = [1.0, 1.0, *(pick(g.choices, (2.0, 1.0, 3.0, 0.5)) for _ in shape[2:])]
    mode = pick(g.choices, ("nearest", "linear"))
    if g.opset < 9:
        g.add("Upsample", [x], mode=mode, scales=scales)
    elif g.opset < 11:
        g.add("Resize" if g.opset == 10 else "Upsample", [x, g.constant(np.asarray(scales, np.float32))], mode=mode)
    else:
        ways = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
        attributes = {"mode": mode, "coordinate_transformation_mode": pick(g.choices, ways)}
        if mode == "nearest":
            attributes["nearest_mode"] = pick(g.choices, ("floor", "round_prefer_floor"))
        empty = "" if g.opset >= 13 or chance(g.choices, 50) else g.constant(np.zeros(0, np.float32))
        sizes = [max(1, int(dim * scale)) for dim, scale in zip(shape, scales, strict=True)]
        if chance(g.choices, 40):
            g.add("Resize", [x, empty, "", g.constant(sizes)], **attributes)
        else:
            g.add("Resize", [x, empty, g.constant(np.asarray(scales, np.float32))], **attributes)


def depth_to_space(g: GraphBuilder) -> None:
    """SpaceToDepth and DepthToSpace."""
    x = feature_map(g, 4)
    if g.values[x].shape[1] % 4 == 0 and chance(g.choices, 60):
        attributes = {"mode": pick(g.choices, ("DCR", "CRD"))} if g.opset >= 11 else {}
        g.add("DepthToSpace", [x], blocksize=2, **attributes)
    else:
        g.add("SpaceToDepth", [x], blocksize=2)


def clip(g: GraphBuilder) -> None:
    """A Clip with bounds as attributes or inputs, each optional."""
    x, low, high = g.pick(), pick(g.choices, (0.0, -1.0, 0.25)), pick(g.choices, (6.0, 1.0))
    has_low, has_high = chance(g.choices, 70), chance(g.choices, 70)
    if g.opset < 11:
        g.add("Clip", [x], **({"min": low} if has_low else {}), **({"max": high} if has_high else {}))
        return
    bounds = [
        g.constant(np.asarray(each, g.values[x].dtype)) if has else ""
        for each, has in ((low, has_low), (high, has_high))
    ]
    g.add("Clip", [x, *(bounds[:1] if not has_high else bounds)])


def cast(g: GraphBuilder) -> None:
    """A Cast to another element type."""
    x = g.pick(kind="fiub")
    kinds = ("FLOAT", "FLOAT", "FLOAT16", "INT32", "BOOL", "INT64", "DOUBLE")
    g.add("Cast", [x], to=onnx.TensorProto.DataType.Value(pick(g.choices, kinds)))


def compare(g: GraphBuilder) -> None:
    """Comparisons and ops on booleans."""
    x = g.pick()
    g.add(pick(g.choices, ("Greater", "Less")), [x, broadcast_operand(g, x)])


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
    (conv, 14), (conv_transpose, 2), (pool, 5), (matmul, 8), (gemm, 3), (normalization, 6), (unary, 9), (binary, 12),
    (softmax, 3), (reduction, 5), (concat, 5), (split, 3), (cut, 4), (pad, 4), (gather, 3), (resize, 3),
    (depth_to_space, 2), (clip, 2), (cast, 2), (compare, 1),
]  # fmt: skip
