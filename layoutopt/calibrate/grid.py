"""The timed kernels: ops on a grid of shapes of real networks, from 1x1 to 256x256 pixels.

The numbers of channels include few, many, odd ones and ones that are no multiple of a block; images include single pixels.
Every family is timed in the formats that plans use: blocked as the dialect `onnxruntime` lowers it, plain as stock onnxruntime
runs it. onnxruntime runs a plain convolution as a blocked one between two reorders, which its time includes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layoutopt.cost_models import RooflineModel
from layoutopt.cost_models.roofline import formats_of
from layoutopt.formats import Format
from layoutopt.ir.graph import CAST, DOMAIN, is_cast
from layoutopt.ir.types import Array, ArrayData, Attribute, DType, Op, Signature, Storage, TensorType, Value
from layoutopt.kernel_times.kernels import LoweredKernel, RandomConstant

_OPSETS = {"": 20, "com.microsoft": 1, DOMAIN: 1}

# The comment above each table lists its columns. Kernel sizes, strides and scales are those of both spatial axes.
# fmt: off
# convolutions: channels in, channels out, pixels per side, kernel size, stride, groups
_CONVOLUTIONS = (
    (64, 64, 56, 1, 1, 1), (64, 256, 56, 1, 1, 1), (256, 64, 56, 1, 1, 1), (128, 128, 28, 1, 1, 1),
    (512, 128, 28, 1, 1, 1), (256, 256, 14, 1, 1, 1), (1024, 256, 14, 1, 1, 1), (512, 512, 7, 1, 1, 1),
    (96, 576, 14, 1, 1, 1), (160, 960, 7, 1, 1, 1), (24, 144, 56, 1, 1, 1), (40, 240, 28, 1, 1, 1),
    (240, 40, 28, 1, 1, 1), (16, 96, 112, 1, 1, 1), (17, 35, 30, 1, 1, 1),
    (96, 24, 1, 1, 1, 1), (240, 64, 1, 1, 1, 1), (480, 120, 1, 1, 1, 1), (672, 168, 1, 1, 1, 1),
    (1152, 48, 1, 1, 1, 1), (64, 240, 1, 1, 1, 1),
    (64, 64, 56, 3, 1, 1), (64, 128, 56, 3, 2, 1), (128, 128, 28, 3, 1, 1), (256, 256, 14, 3, 1, 1),
    (512, 512, 7, 3, 1, 1), (32, 32, 112, 3, 1, 1), (24, 24, 64, 3, 1, 1), (96, 48, 20, 3, 1, 1),
    (17, 35, 30, 3, 1, 1), (192, 32, 28, 3, 1, 1), (64, 64, 7, 3, 1, 1), (48, 96, 28, 3, 2, 1),
    (128, 32, 14, 3, 1, 1), (16, 16, 96, 3, 1, 1), (64, 64, 28, 5, 1, 1), (128, 128, 14, 1, 2, 1),
    (512, 1024, 14, 1, 2, 1),
    (128, 128, 56, 3, 1, 8), (256, 256, 28, 3, 1, 8), (512, 512, 14, 3, 1, 32), (256, 256, 28, 3, 1, 16),
    (128, 128, 28, 3, 1, 4),
    (32, 32, 112, 3, 1, 32), (96, 96, 112, 3, 2, 96), (144, 144, 56, 3, 1, 144), (240, 240, 28, 5, 1, 240),
    (480, 480, 14, 3, 1, 480), (672, 672, 14, 5, 2, 672), (960, 960, 7, 3, 1, 960), (96, 96, 56, 7, 1, 96),
    (192, 192, 28, 7, 1, 192), (384, 384, 14, 7, 1, 384), (768, 768, 7, 7, 1, 768), (72, 72, 28, 5, 1, 72),
    (17, 17, 30, 3, 1, 17), (128, 128, 64, 3, 1, 128), (16, 16, 56, 3, 2, 16),
    (3, 32, 224, 3, 2, 1), (3, 64, 224, 7, 2, 1), (3, 16, 224, 3, 2, 1), (3, 96, 224, 4, 4, 1), (3, 64, 64, 3, 1, 1),
    (1, 32, 112, 3, 1, 1), (4, 128, 32, 3, 1, 1), (3, 32, 224, 7, 4, 1), (3, 24, 224, 3, 2, 1), (3, 32, 128, 3, 1, 1),
    (3, 64, 112, 7, 2, 1), (3, 48, 192, 3, 2, 1), (3, 32, 256, 3, 2, 1), (1, 64, 64, 5, 1, 1), (4, 320, 32, 3, 1, 1),
    (4, 64, 64, 3, 1, 1), (3, 40, 160, 3, 2, 1), (6, 32, 64, 3, 1, 1), (3, 16, 112, 3, 2, 1), (3, 64, 160, 5, 1, 1),
)
# channels, pixels per side, kernel size, stride
_POOLS = (
    (64, 112, 3, 2), (128, 56, 2, 2), (256, 28, 2, 2), (48, 28, 3, 1), (96, 35, 3, 2), (512, 14, 2, 2), (17, 30, 2, 2),
)
# channels, pixels per side
_GLOBAL_POOLS = (
    (64, 56), (96, 28), (240, 14), (480, 14), (672, 7), (960, 7), (1280, 7), (2048, 7), (17, 20),
)
# channels, pixels per side, scale
_RESIZED = (
    (64, 28, 2), (128, 14, 2), (256, 7, 4), (32, 56, 2), (48, 10, 2), (512, 16, 2),
)
# products with a constant: batch, heads, M, K, N
_PRODUCTS = (
    (1, 64, 49, 384, 1536), (1, 1, 196, 384, 1152), (1, 1, 196, 1536, 384), (1, 1, 49, 768, 3072),
    (1, 1, 3136, 96, 384), (1, 1, 784, 192, 768), (1, 1, 1500, 384, 384), (1, 1, 100, 256, 2048), (1, 1, 1, 1280, 1000),
    (1, 1, 1, 2048, 1000), (1, 1, 16, 64, 64), (1, 1, 256, 144, 144), (1, 1, 1024, 32, 128), (1, 1, 197, 384, 384),
    (1, 1, 100, 256, 256), (1, 1, 625, 256, 256), (1, 1, 49, 1024, 256), (1, 1, 3136, 32, 128), (1, 1, 784, 64, 64),
    (1, 64, 49, 96, 288),
)
# products of two activations: heads, M, K, N
_BATCHED = (
    (6, 197, 64, 197), (6, 197, 197, 64), (12, 49, 32, 49), (64, 64, 32, 64), (8, 100, 32, 625), (3, 16, 64, 16),
    (2, 784, 32, 49), (64, 49, 32, 49), (5, 196, 32, 49),
)
# products that are timed with transposed operands only: heads, M, K, N
_TRANSPOSED_ONLY = (
    (1, 3136, 32, 128), (1, 784, 64, 256), (1, 196, 160, 640), (1, 49, 256, 1024), (1, 3136, 96, 384), (4, 16, 32, 16),
    (2, 64, 32, 64), (1, 8, 64, 64), (16, 16, 32, 16), (1, 16, 144, 16), (4, 49, 32, 49),
)
# shapes of element-wise operands: images
_IMAGES = (
    (1, 64, 112, 112), (1, 256, 56, 56), (1, 512, 14, 14), (1, 960, 7, 7), (1, 240, 28, 28), (1, 96, 112, 112),
    (1, 64, 7, 7),
)
# shapes of element-wise and normalised operands: sequences
_TOKENS = (
    (1, 197, 384), (1, 3136, 96), (1, 784, 192), (1, 49, 768), (1, 196, 1152), (1, 1500, 384), (1, 16, 64),
)
# shapes of the operands of Softmax
_SOFTMAXES = (
    (1, 6, 197, 197), (1, 12, 49, 49), (64, 3, 49, 49), (1, 8, 100, 625), (1, 2, 784, 49), (1, 1000),
)
# channels of both operands, pixels per side
_CONCATS = (
    (64, 32, 56), (128, 32, 28), (256, 256, 14), (512, 32, 14), (48, 48, 28), (992, 32, 7), (64, 64, 112),
    (768, 32, 14), (320, 160, 20),
)
# conversions: channels, height, width
_CASTS = (
    (64, 112, 112), (64, 56, 56), (256, 56, 56), (128, 28, 28), (96, 56, 56), (256, 14, 14), (768, 7, 7), (960, 7, 7),
    (24, 56, 56), (40, 28, 28), (1280, 7, 7), (16, 64, 64), (512, 16, 16), (32, 8, 8),
)
# conversions with padding: channels, pixels per side
_ODD_CHANNELS = (
    (17, 30), (35, 14), (3, 56),
)
# transposed activations of attention: batch, tokens, heads, channels
_HEADS = (
    (1, 197, 6, 64), (1, 49, 12, 32), (64, 49, 3, 32), (1, 625, 8, 32), (1, 1500, 6, 64), (1, 784, 2, 32),
    (1, 100, 8, 32),
)
# channels, pixels per side
_PER_CHANNEL = (
    (96, 56), (240, 28), (480, 14), (672, 7), (64, 112), (768, 7),
)
# fmt: on

# element-wise ops that are bound by memory
_MEMORY_BOUND_OPS = ("Relu", "Add", "Mul", "Sub", "Clip", "Div", "Neg", "Abs", "HardSigmoid", "LeakyRelu", "Exp")
# element-wise ops that are bound by arithmetic, each at another rate; the last two are those into which stock onnxruntime fuses
# x * sigmoid(x) and Gelu by tanh
_COMPUTE_BOUND_OPS = ("Sigmoid", "Tanh", "Erf", "Gelu", "HardSwish", "Sqrt", "Softplus", "QuickGelu", "FastGelu")
_CONTRIB_OPS = ("QuickGelu", "FastGelu")
_BINARY = {"Add", "Mul", "Sub", "Div"}


@dataclass(frozen=True)
class KernelCase:
    """A kernel to time, which the cost model prices.

    Attributes:
        family: the family of kernels, a row of the agreement table.
        op: the op with its signature; CastData for a conversion.
    """

    family: str
    op: Op

    @cached_property
    def kernel(self) -> LoweredKernel:
        """The kernel as a model of its own."""
        assert self.op.signature is not None
        found = LoweredKernel.of(self.op, formats_of(self.op, self.op.signature), _OPSETS)
        assert found is not None, f"{self.op.kind} does not run alone"
        return found

    @property
    def key(self) -> str:
        """The op, its operands and attributes in one line."""
        return self.kernel.key

    def price(self, model: RooflineModel) -> float:
        """The price of the cost model, in seconds."""
        x, signature = self.op.inputs[0], self.op.signature
        assert x is not None and signature is not None
        if not is_cast(self.op):
            return model.kernel_seconds(self.op, signature)
        source, target = signature.inputs[0], signature.outputs[0]
        assert source is not None and target is not None
        return model.conversion_seconds(x, source, target)


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


def _tensor(shape: Sequence[int], format: str = "", *, is_constant: bool = False) -> Value:
    """A float32 tensor; the letters N, C, H, W of a format are the axes in this order, also of filters."""
    storage = Storage(Format.parse(format, "NCHW"[: len(shape)]) if format else Format.canonical(len(shape)))
    data = RandomConstant(tuple(shape)) if is_constant else None
    return Value("x", TensorType(DType.FLOAT32, tuple(shape)), storage=storage, data=data)


def _numbers(*numbers: float) -> Value:
    """A constant of given elements: axes or scales."""
    array: Array = np.asarray(numbers, np.int64 if all(isinstance(each, int) for each in numbers) else np.float32)
    return Value("x", TensorType(DType.of(array), array.shape), data=ArrayData(array))


def _case(
    family: str, op_type: str, inputs: Sequence[Value | None], y: Value, domain: str = "", **attributes: Attribute
) -> KernelCase:
    op = Op(op_type, tuple(inputs), (y,), domain=domain, version=_OPSETS[domain], attributes=attributes)
    op.signature = Signature(tuple(None if each is None else each.storage for each in inputs), (y.storage,))
    return KernelCase(family, op)


def _convolutions(block: int) -> Iterator[KernelCase]:
    b = f"NCHW{block}c"
    dense, single = f"{b}{block}n", f"NCHW{block}n"
    for c, o, side, kernel, stride, group in _CONVOLUTIONS:
        kind = " depthwise" if group == c > 1 else ""
        blocked = (b, single, b) if kind else (b, dense, b)
        choices = [(f"plain{kind}", ("", "", "")), (f"blocked{kind}", blocked)]
        if c < block and group == 1 and c < 8:
            choices[1] = ("first", ("", single, b))
        elif not kind and group > 1 and c // group % block:
            del choices[1]
        pad = kernel // 2 if kernel % 2 else 0
        out = (side + 2 * pad - kernel) // stride + 1
        for name, (x, w, y) in choices:
            inputs = (
                _tensor((1, c, side, side), x),
                _tensor((o, c // group, kernel, kernel), w, is_constant=True),
                _tensor((o,), is_constant=True),
            )
            yield _case(
                f"convolution, {name}",
                "Conv",
                inputs,
                _tensor((1, o, out, out), y),
                group=group,
                kernel_shape=(kernel,) * 2,
                strides=(stride,) * 2,
                pads=(pad,) * 4,
            )


def _images(block: int) -> Iterator[KernelCase]:
    """Pooling and resampling."""
    for name, format in (("blocked", f"NCHW{block}c"), ("plain", "")):
        for c, side, kernel, stride in _POOLS:
            x, out = _tensor((1, c, side, side), format), (side - kernel) // stride + 1
            window: dict[str, Attribute] = {"kernel_shape": (kernel,) * 2, "strides": (stride,) * 2}
            for op_type in ("MaxPool", "AveragePool"):
                yield _case(f"pooling, {name}", op_type, [x], _tensor((1, c, out, out), format), **window)
        for c, side in _GLOBAL_POOLS:
            x, y = _tensor((1, c, side, side), format), _tensor((1, c, 1, 1), format)
            yield _case(f"global pooling, {name}", "GlobalAveragePool", [x], y)
        for mode, coordinates in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")):
            fields: dict[str, Attribute] = {"mode": mode, "coordinate_transformation_mode": coordinates}
            for c, side, scale in _RESIZED:
                x, y = (_tensor((1, c, each, each), format) for each in (side, side * scale))
                scales = _numbers(1.0, 1.0, float(scale), float(scale))
                rounding: dict[str, Attribute] = {"nearest_mode": "floor"} if mode == "nearest" else {}
                yield _case(f"resize {mode}, {name}", "Resize", [x, None, scales], y, **fields, **rounding)


def _matrices() -> Iterator[KernelCase]:
    for n, h, m, k, o in _PRODUCTS:
        lead = (n, h) if h > 1 else (n,)
        inputs = (_tensor((*lead, m, k)), _tensor((k, o), is_constant=True))
        yield _case("matrix product", "MatMul", inputs, _tensor((*lead, m, o)))
    for h, m, k, o in (*_BATCHED, *_TRANSPOSED_ONLY):
        for name, a, b in (
            ("", "", ""),
            (", first transposed", "NCWH", ""),
            (", second transposed", "", "NCWH"),
            (", both transposed", "NCWH", "NCWH"),
        ):
            if name or (h, m, k, o) in _BATCHED:
                inputs = (_tensor((1, h, m, k), a), _tensor((1, h, k, o), b))
                yield _case(f"matrix product{name}", "MatMul", inputs, _tensor((1, h, m, o)))


def _elements(block: int) -> Iterator[KernelCase]:
    for number, op_type in enumerate((*_MEMORY_BOUND_OPS, *_COMPUTE_BOUND_OPS)):
        is_light = op_type in _MEMORY_BOUND_OPS
        domain = "com.microsoft" if op_type in _CONTRIB_OPS else ""
        for position, shape in enumerate((*_IMAGES, *_TOKENS)):
            if is_light and number > 3 and (position + number) % 2:
                continue
            others: list[Value | None] = [_tensor(shape)] if op_type in _BINARY else []
            if op_type == "Clip":
                others = [_tensor((), is_constant=True), None]
            family = "element-wise, light" if is_light else f"element-wise, {op_type}"
            yield _case(family, op_type, [_tensor(shape), *others], _tensor(shape), domain)
    for number, (c, side) in enumerate(_PER_CHANNEL):
        for format in ("", "NHWC", f"NCHW{block}c"):
            x, y = _tensor((1, c, side, side), format), _tensor((1, c, side, side), format)
            yield _case("per channel", ("Mul", "Add")[number % 2], [x, _tensor((1, c, 1, 1), format)], y)


def _row_ops() -> Iterator[KernelCase]:
    """Normalisation, Softmax, reductions."""
    for shape in _TOKENS:
        parameters = (_tensor(shape[-1:], is_constant=True), _tensor(shape[-1:], is_constant=True))
        inputs = (_tensor(shape), *parameters)
        yield _case("layer normalization", "LayerNormalization", inputs, _tensor(shape), axis=-1)
        yield _case("reduction", "ReduceMean", [_tensor(shape), _numbers(-1)], _tensor((*shape[:-1], 1)))
    for c, side in _GLOBAL_POOLS:
        x = _tensor((1, c, side, side))
        yield _case("reduction", "ReduceMean", [x, _numbers(2, 3)], _tensor((1, c, 1, 1)))
    for c, side in ((32, 56), (256, 14), (512, 28), (128, 64), (64, 16)):
        image, parameters = (1, c, side, side), (_tensor((c,), is_constant=True), _tensor((c,), is_constant=True))
        inputs = (_tensor(image), *parameters)
        yield _case("instance normalization", "InstanceNormalization", inputs, _tensor(image))
    for scores in _SOFTMAXES:
        yield _case("softmax", "Softmax", [_tensor(scores)], _tensor(scores), axis=-1)


def _moves(block: int) -> Iterator[KernelCase]:
    blocked = f"NCHW{block}c"
    for name, format in (("blocked", blocked), ("plain", "")):
        for c, d, side in _CONCATS:
            if not format or not (c % block or d % block):
                parts = [_tensor((1, each, side, side), format) for each in (c, d)]
                yield _case(f"concat, {name}", "Concat", parts, _tensor((1, c + d, side, side), format), axis=1)
    for c, height, width in _CASTS:
        for a, b, family in (
            ("", "NHWC", "transpose NCHW to NHWC"),
            ("NHWC", "", "transpose NHWC to NCHW"),
            ("", blocked, "reorder NCHW to blocked"),
            (blocked, "", "reorder blocked to NCHW"),
            ("NHWC", blocked, "reorder NHWC to blocked"),
            (blocked, "NHWC", "reorder blocked to NHWC"),
        ):
            if c != block or {a, b} != {"NHWC", blocked}:  # the same bytes
                yield _cast(family, (1, c, height, width), a, b)
    for c, side in _ODD_CHANNELS:
        for a, b in (("", blocked), (blocked, "")):
            yield _cast("reorder, odd channels", (1, c, side, side), a, b)
    for heads in _HEADS:
        yield _cast("transpose of heads", heads, "", "NHCW")
        yield _cast("transpose of keys", heads, "", "NHWC")


def _cast(family: str, shape: Sequence[int], a: str, b: str) -> KernelCase:
    return _case(family, CAST, [_tensor(shape, a)], _tensor(shape, b), DOMAIN)
