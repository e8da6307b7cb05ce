"""The timed kernels: a grid of shapes of real networks, from 1x1 to 112x112 pixels.

There are few, many, odd and unblocked numbers of channels, and large, small and single-pixel images. Every family is timed in
the formats of plans: blocked as lowered by the dialect `onnxruntime`, plain as stock onnxruntime runs it by default.
onnxruntime blocks a plain convolution by itself, so its time includes the reorders.
"""

from collections.abc import Iterator

from layoutopt.calibrate.kernel_case import Case, Operand
from layoutopt.ir.cast import CAST
from layoutopt.ir.types import Attribute

# channels in, channels out, pixels on a side of the input
_IMAGES = (
    *((64, 64, 56), (64, 256, 56), (256, 64, 56), (128, 128, 28), (512, 128, 28), (256, 256, 14), (1024, 256, 14)),
    *(
        (512, 512, 7),
        (96, 576, 14),
        (160, 960, 7),
        (24, 144, 56),
        (40, 240, 28),
        (240, 40, 28),
        (16, 96, 112),
        (17, 35, 30),
    ),
)
_DENSE = (
    *((64, 64, 56, 3, 1), (64, 128, 56, 3, 2), (128, 128, 28, 3, 1), (256, 256, 14, 3, 1), (512, 512, 7, 3, 1)),
    *(
        (32, 32, 112, 3, 1),
        (24, 24, 64, 3, 1),
        (96, 48, 20, 3, 1),
        (17, 35, 30, 3, 1),
        (192, 32, 28, 3, 1),
        (64, 64, 7, 3, 1),
    ),
    *(
        (48, 96, 28, 3, 2),
        (128, 32, 14, 3, 1),
        (16, 16, 96, 3, 1),
        (64, 64, 28, 5, 1),
        (128, 128, 14, 1, 2),
        (512, 1024, 14, 1, 2),
    ),
)
_GATES = ((96, 24), (240, 64), (480, 120), (672, 168), (1152, 48), (64, 240))
_DEPTHWISE = (
    *(
        (32, 112, 3, 1),
        (96, 112, 3, 2),
        (144, 56, 3, 1),
        (240, 28, 5, 1),
        (480, 14, 3, 1),
        (672, 14, 5, 2),
        (960, 7, 3, 1),
    ),
    *(
        (96, 56, 7, 1),
        (192, 28, 7, 1),
        (384, 14, 7, 1),
        (768, 7, 7, 1),
        (72, 28, 5, 1),
        (17, 30, 3, 1),
        (128, 64, 3, 1),
        (16, 56, 3, 2),
    ),
)
_FIRST = (
    *((3, 32, 224, 3, 2, 1), (3, 64, 224, 7, 2, 3), (3, 16, 224, 3, 2, 1), (3, 96, 224, 4, 4, 0), (3, 64, 64, 3, 1, 1)),
    *(
        (1, 32, 112, 3, 1, 1),
        (4, 128, 32, 3, 1, 1),
        (3, 32, 224, 7, 4, 3),
        (3, 24, 224, 3, 2, 1),
        (3, 32, 128, 3, 1, 1),
    ),
    *((3, 64, 112, 7, 2, 3), (3, 48, 192, 3, 2, 1), (3, 32, 256, 3, 2, 1), (1, 64, 64, 5, 1, 2), (4, 320, 32, 3, 1, 1)),
    *((4, 64, 64, 3, 1, 1), (3, 40, 160, 3, 2, 1), (6, 32, 64, 3, 1, 1), (3, 16, 112, 3, 2, 1), (3, 64, 160, 5, 1, 2)),
)
_GROUPED = ((128, 56, 8), (256, 28, 8), (512, 14, 32), (256, 28, 16), (128, 28, 4))
_POOLS = (
    (64, 112, 3, 2),
    (128, 56, 2, 2),
    (256, 28, 2, 2),
    (48, 28, 3, 1),
    (96, 35, 3, 2),
    (512, 14, 2, 2),
    (17, 30, 2, 2),
)
_MEANS = ((64, 56), (96, 28), (240, 14), (480, 14), (672, 7), (960, 7), (1280, 7), (2048, 7), (17, 20))
_RESIZED = ((64, 28, 2), (128, 14, 2), (256, 7, 4), (32, 56, 2), (48, 10, 2), (512, 16, 2))
_PRODUCTS = (
    *(
        (1, 64, 49, 384, 1536),
        (1, 1, 196, 384, 1152),
        (1, 1, 196, 1536, 384),
        (1, 1, 49, 768, 3072),
        (1, 1, 3136, 96, 384),
    ),
    *(
        (1, 1, 784, 192, 768),
        (1, 1, 1500, 384, 384),
        (1, 1, 100, 256, 2048),
        (1, 1, 1, 1280, 1000),
        (1, 1, 1, 2048, 1000),
    ),
    *((1, 1, 16, 64, 64), (1, 1, 256, 144, 144), (1, 1, 1024, 32, 128), (1, 1, 197, 384, 384), (1, 1, 100, 256, 256)),
    *((1, 1, 625, 256, 256), (1, 1, 49, 1024, 256), (1, 1, 3136, 32, 128), (1, 1, 784, 64, 64), (1, 64, 49, 96, 288)),
)
_BATCHED = (
    (6, 197, 64, 197),
    (6, 197, 197, 64),
    (12, 49, 32, 49),
    (64, 64, 32, 64),
    (8, 100, 32, 625),
    (3, 16, 64, 16),
    (2, 784, 32, 49),
    (64, 49, 32, 49),
    (5, 196, 32, 49),
)
_SKINNY = (
    *(
        (1, 3136, 32, 128),
        (1, 784, 64, 256),
        (1, 196, 160, 640),
        (1, 49, 256, 1024),
        (1, 3136, 96, 384),
        (4, 16, 32, 16),
    ),
    *((2, 64, 32, 64), (1, 8, 64, 64), (16, 16, 32, 16), (1, 16, 144, 16), (4, 49, 32, 49)),
)
_FLAT = (
    (1, 64, 112, 112),
    (1, 256, 56, 56),
    (1, 512, 14, 14),
    (1, 960, 7, 7),
    (1, 240, 28, 28),
    (1, 96, 112, 112),
    (1, 64, 7, 7),
)
_TOKENS = ((1, 197, 384), (1, 3136, 96), (1, 784, 192), (1, 49, 768), (1, 196, 1152), (1, 1500, 384), (1, 16, 64))
_SCORES = ((1, 6, 197, 197), (1, 12, 49, 49), (64, 3, 49, 49), (1, 8, 100, 625), (1, 2, 784, 49), (1, 1000))
_CATS = (
    (64, 32, 56),
    (128, 32, 28),
    (256, 256, 14),
    (512, 32, 14),
    (48, 48, 28),
    (992, 32, 7),
    (64, 64, 112),
    (768, 32, 14),
    (320, 160, 20),
)
_CASTS = (
    *(
        (64, 112, 112),
        (64, 56, 56),
        (256, 56, 56),
        (128, 28, 28),
        (96, 56, 56),
        (256, 14, 14),
        (768, 7, 7),
        (960, 7, 7),
    ),
    *((24, 56, 56), (40, 28, 28), (1280, 7, 7), (16, 64, 64), (512, 16, 16), (32, 8, 8)),
)
_ODD = ((17, 30), (35, 14), (3, 56))
_HEADS = (
    (1, 197, 6, 64),
    (1, 49, 12, 32),
    (64, 49, 3, 32),
    (1, 625, 8, 32),
    (1, 1500, 6, 64),
    (1, 784, 2, 32),
    (1, 100, 8, 32),
)

_LIGHT = (
    "Relu",
    "Add",
    "Mul",
    "Sub",
    "Clip",
    "Div",
    "Neg",
    "Abs",
    "HardSigmoid",
    "LeakyRelu",
    "Exp",
)  # as fast as memory
_HEAVY = ("Sigmoid", "Tanh", "Erf", "Gelu", "HardSwish", "Sqrt", "Softplus")  # each with a speed of its own
_FUSED = (
    "QuickGelu",
    "FastGelu",
)  # of com.microsoft: what stock onnxruntime makes of x * sigmoid(x) and of Gelu by tanh
_BINARY = {"Add", "Mul", "Sub", "Div"}
_SCALED = ((96, 56), (240, 28), (480, 14), (672, 7), (64, 112), (768, 7))


def cases(block: int, is_quick: bool = False) -> list[Case]:
    """The grid for a machine with `block` channels per block.

    Args:
        block: channels of a block.
        is_quick: about a quarter of it, the same in every family.
    """
    everything: dict[str, list[Case]] = {}
    for case in (*_convolutions(block), *_images(block), *_matrices(), *_elements(block), *_rows(), *_moves(block)):
        everything.setdefault(case.family, []).append(case)
    chosen = [group[:: 3 if len(group) > 5 else 2] if is_quick else group for group in everything.values()]
    return list({case.key: case for group in chosen for case in group}.values())


def _conv(
    family: str,
    c: int,
    o: int,
    side: int,
    kernel: int,
    stride: int,
    formats: tuple[str, str, str],
    pad: int,
    group: int = 1,
) -> Case:
    x, w, y = formats
    out = (side + 2 * pad - kernel) // stride + 1
    fields: dict[str, Attribute] = {
        "group": group,
        "kernel_shape": (kernel, kernel),
        "strides": (stride, stride),
        "pads": (pad,) * 4,
    }
    inputs = (
        Operand((1, c, side, side), x),
        Operand((o, c // group, kernel, kernel), w, is_constant=True),
        Operand((o,), is_constant=True),
    )
    return Case(family, "Conv", inputs, Operand((1, o, out, out), y), fields)


def _convolutions(block: int) -> Iterator[Case]:
    b = f"NCHW{block}c"
    dense, single = f"{b}{block}n", f"NCHW{block}n"
    for c, o, side in _IMAGES:
        yield _conv("convolution, blocked", c, o, side, 1, 1, (b, dense, b), 0)
        yield _conv("convolution, plain", c, o, side, 1, 1, ("", "", ""), 0)
    for c, o, side, kernel, stride in _DENSE:
        yield _conv("convolution, blocked", c, o, side, kernel, stride, (b, dense, b), kernel // 2)
        yield _conv("convolution, plain", c, o, side, kernel, stride, ("", "", ""), kernel // 2)
    for c, o in _GATES:
        yield _conv("convolution, blocked", c, o, 1, 1, 1, (b, dense, b), 0)
        yield _conv("convolution, plain", c, o, 1, 1, 1, ("", "", ""), 0)
    for c, side, kernel, stride in _DEPTHWISE:
        yield _conv("convolution, blocked depthwise", c, c, side, kernel, stride, (b, single, b), kernel // 2, c)
        yield _conv("convolution, plain depthwise", c, c, side, kernel, stride, ("", "", ""), kernel // 2, c)
    for c, o, side, kernel, stride, pad in _FIRST:
        yield _conv("convolution, first", c, o, side, kernel, stride, ("", single, b), pad)
        yield _conv("convolution, plain", c, o, side, kernel, stride, ("", "", ""), pad)
    for c, side, group in _GROUPED:
        if c // group % block == 0:
            yield _conv("convolution, blocked", c, c, side, 3, 1, (b, dense, b), 1, group)
        yield _conv("convolution, plain", c, c, side, 3, 1, ("", "", ""), 1, group)


def _images(block: int) -> Iterator[Case]:
    """Pooling and resampling."""
    for name, format in (("blocked", f"NCHW{block}c"), ("plain", "")):
        for c, side, kernel, stride in _POOLS:
            fields: dict[str, Attribute] = {"kernel_shape": (kernel, kernel), "strides": (stride, stride)}
            out = (side - kernel) // stride + 1
            for op_type in ("MaxPool", "AveragePool"):
                x, y = Operand((1, c, side, side), format), Operand((1, c, out, out), format)
                yield Case(f"pooling, {name}", op_type, (x,), y, fields)
        for c, side in _MEANS:
            x, y = Operand((1, c, side, side), format), Operand((1, c, 1, 1), format)
            yield Case(f"global pooling, {name}", "GlobalAveragePool", (x,), y)
        for mode, coordinates in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")):
            for c, side, scale in _RESIZED:
                x, y = Operand((1, c, side, side), format), Operand((1, c, side * scale, side * scale), format)
                scales = Operand((4,), is_constant=True, scales=(1.0, 1.0, float(scale), float(scale)))
                fields = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
                fields = fields if mode == "nearest" else {key: fields[key] for key in list(fields)[:2]}
                yield Case(f"resize {mode}, {name}", "Resize", (x, None, scales), y, fields)


def _matrices() -> Iterator[Case]:
    for n, h, m, k, o in _PRODUCTS:
        lead = (n, h) if h > 1 else (n,)
        a, b = Operand((*lead, m, k)), Operand((k, o), is_constant=True)
        yield Case("matrix product", "MatMul", (a, b), Operand((*lead, m, o)))
    for h, m, k, o in _BATCHED:
        yield Case("matrix product", "MatMul", (Operand((1, h, m, k)), Operand((1, h, k, o))), Operand((1, h, m, o)))
    for h, m, k, o in (*_BATCHED, *_SKINNY):
        for one, other in (("NCWH", ""), ("", "NCWH"), ("NCWH", "NCWH")):
            a, b = Operand((1, h, m, k), one), Operand((1, h, k, o), other)
            family = f"matrix product, {'both' if one == other else 'first' if one else 'second'} transposed"
            yield Case(family, "MatMul", (a, b), Operand((1, h, m, o)))


def _elements(block: int) -> Iterator[Case]:
    for number, op_type in enumerate((*_LIGHT, *_HEAVY)):
        for position, shape in enumerate((*_FLAT, *_TOKENS)):
            if (position + number) % 2 and op_type in _LIGHT[4:]:
                continue
            x = Operand(shape)
            inputs: tuple[Operand | None, ...] = (x, x) if op_type in _BINARY else (x,)
            if op_type == "Clip":
                inputs = (x, Operand((), is_constant=True), None)
            yield Case("element-wise, light" if op_type in _LIGHT else f"element-wise, {op_type}", op_type, inputs, x)
    for op_type in _FUSED:
        for shape in (*_FLAT, *_TOKENS):
            yield Case(f"element-wise, {op_type}", op_type, (Operand(shape),), Operand(shape), domain="com.microsoft")
    for number, (c, side) in enumerate(_SCALED):
        for format in ("", "NHWC", f"NCHW{block}c"):
            x = Operand((1, c, side, side), format)
            yield Case("per channel", ("Mul", "Add")[number % 2], (x, Operand((1, c, 1, 1), format)), x)


def _rows() -> Iterator[Case]:
    """Normalisation, Softmax, reductions, concatenation."""
    for shape in _TOKENS:
        parameters = (Operand(shape[-1:], is_constant=True),) * 2
        yield Case(
            "layer normalization", "LayerNormalization", (Operand(shape), *parameters), Operand(shape), {"axis": -1}
        )
        mean = Operand((*shape[:-1], 1))
        axes = Operand((1,), is_constant=True, numbers=(-1,))
        yield Case("reduction", "ReduceMean", (Operand(shape), axes), mean)
    for c, side in _MEANS:
        x, axes = Operand((1, c, side, side)), Operand((2,), is_constant=True, numbers=(2, 3))
        yield Case("reduction", "ReduceMean", (x, axes), Operand((1, c, 1, 1)))
    for c, side in ((32, 56), (256, 14), (512, 28), (128, 64), (64, 16)):
        x, parameters = Operand((1, c, side, side)), (Operand((c,), is_constant=True),) * 2
        yield Case("instance normalization", "InstanceNormalization", (x, *parameters), x)
    for scores in _SCORES:
        yield Case("softmax", "Softmax", (Operand(scores),), Operand(scores), {"axis": -1})


def _moves(block: int) -> Iterator[Case]:
    blocked = f"NCHW{block}c"
    for name, format in (("blocked", blocked), ("plain", "")):
        for c, d, side in _CATS:
            if format and (c % block or d % block):
                continue
            parts = (Operand((1, c, side, side), format), Operand((1, d, side, side), format))
            yield Case(f"concat, {name}", "Concat", parts, Operand((1, c + d, side, side), format), {"axis": 1})
    for shape in _CASTS:
        for a, b, family in (
            ("", "NHWC", "transpose NCHW to NHWC"),
            ("NHWC", "", "transpose NHWC to NCHW"),
            ("", blocked, "reorder NCHW to blocked"),
            (blocked, "", "reorder blocked to NCHW"),
            ("NHWC", blocked, "reorder NHWC to blocked"),
            (blocked, "NHWC", "reorder blocked to NHWC"),
        ):
            if shape[0] == block and {a, b} == {"NHWC", blocked}:
                continue  # the same bytes
            yield Case(family, CAST, (Operand((1, *shape), a),), Operand((1, *shape), b))
    for c, side in _ODD:
        for a, b in (("", blocked), (blocked, "")):
            image = (1, c, side, side)
            yield Case("reorder, odd channels", CAST, (Operand(image, a),), Operand(image, b))
    for heads in _HEADS:
        yield Case("transpose of heads", CAST, (Operand(heads),), Operand(heads, "NHCW"))
        yield Case("transpose of keys", CAST, (Operand(heads),), Operand(heads, "NHWC"))
