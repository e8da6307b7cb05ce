"""The timed kernels: ops on a grid of shapes of real networks, from 1x1 to 256x256 pixels.

The numbers of channels include few, many, odd ones and ones that are no multiple of a block; images include single pixels.
Every family is timed in the formats that plans use: blocked as the dialect `onnxruntime` lowers it, plain as stock onnxruntime
runs it. onnxruntime runs a plain convolution as a blocked one between two reorders, which its time includes.
"""

from collections.abc import Iterator

from layoutopt.calibrate.kernel_case import KernelCase, KernelOperand
from layoutopt.calibrate.kernel_shapes import (
    BATCHED,
    CASTS,
    CONCATS,
    DENSE,
    DEPTHWISE,
    FEW_CHANNELS,
    GLOBAL_POOLS,
    GROUPED,
    HEADS,
    IMAGES,
    ODD_CHANNELS,
    PER_CHANNEL,
    POINTWISE,
    POOLS,
    PRODUCTS,
    RESIZED,
    SOFTMAXES,
    SQUEEZE_EXCITATION,
    TOKENS,
    TRANSPOSED_ONLY,
)
from layoutopt.ir.graph import CAST
from layoutopt.ir.types import Attribute

# element-wise ops that are bound by memory
_MEMORY_BOUND_OPS = (
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
)
# element-wise ops that are bound by arithmetic, each at another rate
_COMPUTE_BOUND_OPS = ("Sigmoid", "Tanh", "Erf", "Gelu", "HardSwish", "Sqrt", "Softplus")
# ops of com.microsoft, into which stock onnxruntime fuses x * sigmoid(x) and Gelu by tanh
_CONTRIB_OPS = ("QuickGelu", "FastGelu")
_BINARY = {"Add", "Mul", "Sub", "Div"}


def kernel_cases(block: int, is_quick: bool = False) -> list[KernelCase]:
    """The grid for a machine with `block` channels per block.

    Args:
        block: channels of a block.
        is_quick: whether to return a third of every family, or half of a family of up to five kernels.
    """
    everything: dict[str, list[KernelCase]] = {}
    for case in (*_convolutions(block), *_images(block), *_matrices(), *_elements(block), *_row_ops(), *_moves(block)):
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
) -> KernelCase:
    x, w, y = formats
    out = (side + 2 * pad - kernel) // stride + 1
    fields: dict[str, Attribute] = {
        "group": group,
        "kernel_shape": (kernel, kernel),
        "strides": (stride, stride),
        "pads": (pad,) * 4,
    }
    inputs = (
        KernelOperand((1, c, side, side), x),
        KernelOperand((o, c // group, kernel, kernel), w, is_constant=True),
        KernelOperand((o,), is_constant=True),
    )
    return KernelCase(family, "Conv", inputs, KernelOperand((1, o, out, out), y), fields)


def _convolutions(block: int) -> Iterator[KernelCase]:
    b = f"NCHW{block}c"
    dense, single = f"{b}{block}n", f"NCHW{block}n"
    for c, o, side in POINTWISE:
        yield _conv("convolution, blocked", c, o, side, 1, 1, (b, dense, b), 0)
        yield _conv("convolution, plain", c, o, side, 1, 1, ("", "", ""), 0)
    for c, o, side, kernel, stride in DENSE:
        yield _conv("convolution, blocked", c, o, side, kernel, stride, (b, dense, b), kernel // 2)
        yield _conv("convolution, plain", c, o, side, kernel, stride, ("", "", ""), kernel // 2)
    for c, o in SQUEEZE_EXCITATION:
        yield _conv("convolution, blocked", c, o, 1, 1, 1, (b, dense, b), 0)
        yield _conv("convolution, plain", c, o, 1, 1, 1, ("", "", ""), 0)
    for c, side, kernel, stride in DEPTHWISE:
        yield _conv("convolution, blocked depthwise", c, c, side, kernel, stride, (b, single, b), kernel // 2, c)
        yield _conv("convolution, plain depthwise", c, c, side, kernel, stride, ("", "", ""), kernel // 2, c)
    for c, o, side, kernel, stride, pad in FEW_CHANNELS:
        yield _conv("convolution, first", c, o, side, kernel, stride, ("", single, b), pad)
        yield _conv("convolution, plain", c, o, side, kernel, stride, ("", "", ""), pad)
    for c, side, group in GROUPED:
        if c // group % block == 0:
            yield _conv("convolution, blocked", c, c, side, 3, 1, (b, dense, b), 1, group)
        yield _conv("convolution, plain", c, c, side, 3, 1, ("", "", ""), 1, group)


def _images(block: int) -> Iterator[KernelCase]:
    """Pooling and resampling."""
    for name, format in (("blocked", f"NCHW{block}c"), ("plain", "")):
        for c, side, kernel, stride in POOLS:
            fields: dict[str, Attribute] = {"kernel_shape": (kernel, kernel), "strides": (stride, stride)}
            out = (side - kernel) // stride + 1
            for op_type in ("MaxPool", "AveragePool"):
                x, y = KernelOperand((1, c, side, side), format), KernelOperand((1, c, out, out), format)
                yield KernelCase(f"pooling, {name}", op_type, (x,), y, fields)
        for c, side in GLOBAL_POOLS:
            x, y = KernelOperand((1, c, side, side), format), KernelOperand((1, c, 1, 1), format)
            yield KernelCase(f"global pooling, {name}", "GlobalAveragePool", (x,), y)
        for mode, coordinates in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")):
            for c, side, scale in RESIZED:
                x, y = (
                    KernelOperand((1, c, side, side), format),
                    KernelOperand((1, c, side * scale, side * scale), format),
                )
                scales = KernelOperand((4,), is_constant=True, scales=(1.0, 1.0, float(scale), float(scale)))
                fields = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
                fields = fields if mode == "nearest" else {key: fields[key] for key in list(fields)[:2]}
                yield KernelCase(f"resize {mode}, {name}", "Resize", (x, None, scales), y, fields)


def _matrices() -> Iterator[KernelCase]:
    for n, h, m, k, o in PRODUCTS:
        lead = (n, h) if h > 1 else (n,)
        a, b = KernelOperand((*lead, m, k)), KernelOperand((k, o), is_constant=True)
        yield KernelCase("matrix product", "MatMul", (a, b), KernelOperand((*lead, m, o)))
    for h, m, k, o in BATCHED:
        yield KernelCase(
            "matrix product",
            "MatMul",
            (KernelOperand((1, h, m, k)), KernelOperand((1, h, k, o))),
            KernelOperand((1, h, m, o)),
        )
    for h, m, k, o in (*BATCHED, *TRANSPOSED_ONLY):
        for one, other in (("NCWH", ""), ("", "NCWH"), ("NCWH", "NCWH")):
            a, b = KernelOperand((1, h, m, k), one), KernelOperand((1, h, k, o), other)
            family = f"matrix product, {'both' if one == other else 'first' if one else 'second'} transposed"
            yield KernelCase(family, "MatMul", (a, b), KernelOperand((1, h, m, o)))


def _elements(block: int) -> Iterator[KernelCase]:
    for number, op_type in enumerate((*_MEMORY_BOUND_OPS, *_COMPUTE_BOUND_OPS)):
        for position, shape in enumerate((*IMAGES, *TOKENS)):
            if (position + number) % 2 and op_type in _MEMORY_BOUND_OPS[4:]:
                continue
            x = KernelOperand(shape)
            inputs: tuple[KernelOperand | None, ...] = (x, x) if op_type in _BINARY else (x,)
            if op_type == "Clip":
                inputs = (x, KernelOperand((), is_constant=True), None)
            yield KernelCase(
                "element-wise, light" if op_type in _MEMORY_BOUND_OPS else f"element-wise, {op_type}",
                op_type,
                inputs,
                x,
            )
    for op_type in _CONTRIB_OPS:
        for shape in (*IMAGES, *TOKENS):
            yield KernelCase(
                f"element-wise, {op_type}",
                op_type,
                (KernelOperand(shape),),
                KernelOperand(shape),
                domain="com.microsoft",
            )
    for number, (c, side) in enumerate(PER_CHANNEL):
        for format in ("", "NHWC", f"NCHW{block}c"):
            x = KernelOperand((1, c, side, side), format)
            yield KernelCase("per channel", ("Mul", "Add")[number % 2], (x, KernelOperand((1, c, 1, 1), format)), x)


def _row_ops() -> Iterator[KernelCase]:
    """Normalisation, Softmax, reductions, concatenation."""
    for shape in TOKENS:
        parameters = (KernelOperand(shape[-1:], is_constant=True),) * 2
        yield KernelCase(
            "layer normalization",
            "LayerNormalization",
            (KernelOperand(shape), *parameters),
            KernelOperand(shape),
            {"axis": -1},
        )
        mean = KernelOperand((*shape[:-1], 1))
        axes = KernelOperand((1,), is_constant=True, numbers=(-1,))
        yield KernelCase("reduction", "ReduceMean", (KernelOperand(shape), axes), mean)
    for c, side in GLOBAL_POOLS:
        x, axes = KernelOperand((1, c, side, side)), KernelOperand((2,), is_constant=True, numbers=(2, 3))
        yield KernelCase("reduction", "ReduceMean", (x, axes), KernelOperand((1, c, 1, 1)))
    for c, side in ((32, 56), (256, 14), (512, 28), (128, 64), (64, 16)):
        x, parameters = KernelOperand((1, c, side, side)), (KernelOperand((c,), is_constant=True),) * 2
        yield KernelCase("instance normalization", "InstanceNormalization", (x, *parameters), x)
    for scores in SOFTMAXES:
        yield KernelCase("softmax", "Softmax", (KernelOperand(scores),), KernelOperand(scores), {"axis": -1})


def _moves(block: int) -> Iterator[KernelCase]:
    blocked = f"NCHW{block}c"
    for name, format in (("blocked", blocked), ("plain", "")):
        for c, d, side in CONCATS:
            if format and (c % block or d % block):
                continue
            parts = (KernelOperand((1, c, side, side), format), KernelOperand((1, d, side, side), format))
            yield KernelCase(
                f"concat, {name}", "Concat", parts, KernelOperand((1, c + d, side, side), format), {"axis": 1}
            )
    for shape in CASTS:
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
            yield KernelCase(family, CAST, (KernelOperand((1, *shape), a),), KernelOperand((1, *shape), b))
    for c, side in ODD_CHANNELS:
        for a, b in (("", blocked), (blocked, "")):
            image = (1, c, side, side)
            yield KernelCase("reorder, odd channels", CAST, (KernelOperand(image, a),), KernelOperand(image, b))
    for heads in HEADS:
        yield KernelCase("transpose of heads", CAST, (KernelOperand(heads),), KernelOperand(heads, "NHCW"))
        yield KernelCase("transpose of keys", CAST, (KernelOperand(heads),), KernelOperand(heads, "NHWC"))
