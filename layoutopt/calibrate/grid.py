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

# images: channels, pixels per side
_IMAGES = (
    (64, 112),
    (256, 56),
    (512, 14),
    (960, 7),
    (96, 56),
    (240, 28),
    (64, 7),
    (1280, 7),
    (17, 30),
    (128, 28),
    (24, 56),
    (32, 8),
)
# images that first layers read: pixels per side
_INPUTS = (224, 64, 160, 32, 128, 192, 256, 112)
# sequences: batch, tokens, channels
_TOKENS = (
    (1, 197, 384),
    (1, 3136, 96),
    (1, 784, 192),
    (1, 49, 768),
    (1, 196, 1152),
    (1, 1500, 384),
    (1, 16, 64),
    (64, 49, 96),
)
# products of two activations: heads, M, K, N
_BATCHED = (
    (6, 197, 64, 197),
    (6, 197, 197, 64),
    (12, 49, 32, 49),
    (64, 64, 32, 64),
    (8, 100, 32, 625),
    (3, 16, 64, 16),
    (2, 784, 32, 49),
    (64, 49, 32, 49),
    (1, 3136, 32, 128),
    (1, 196, 160, 640),
    (1, 8, 64, 64),
)

# element-wise ops that are bound by memory
_MEMORY_BOUND_OPS = ("Relu", "Add", "Mul", "Clip", "Div", "HardSigmoid")
# element-wise ops that are bound by arithmetic, each at another rate; the last two are those into which stock onnxruntime fuses
# x * sigmoid(x) and Gelu by tanh
_COMPUTE_BOUND_OPS = ("Sigmoid", "Tanh", "Erf", "Gelu", "HardSwish", "Sqrt", "Softplus", "QuickGelu", "FastGelu")
_CONTRIB_OPS = ("QuickGelu", "FastGelu")
_BINARY = {"Add", "Mul", "Div"}


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


def kernel_cases(block: int) -> list[KernelCase]:
    """The grid for a machine with `block` channels per block."""
    found = (*_convolutions(block), *_images(block), *_matrices(), *_elements(block), *_row_ops(), *_moves(block))
    return list({case.key: case for case in found}.values())


def _tensor(shape: Sequence[int], format: str = "", *, is_constant: bool = False) -> Value:
    """A float32 tensor; the letters N, C, H, W of a format are the axes in this order, also of filters."""
    storage = Storage(Format.parse(format, "NCHW"[: len(shape)]) if format else Format.canonical(len(shape)))
    data = RandomConstant(tuple(shape)) if is_constant else None
    return Value("x", TensorType(DType.FLOAT32, tuple(shape)), storage=storage, data=data)


def _image(channels: int, side: int, format: str = "") -> Value:
    return _tensor((1, channels, side, side), format)


def _numbers(*numbers: float) -> Value:
    """A constant of given elements: axes or scales."""
    array: Array = np.asarray(numbers, np.int64 if all(isinstance(each, int) for each in numbers) else np.float32)
    return Value("x", TensorType(DType.of(array), array.shape), data=ArrayData(array))


def _case(family: str, op_type: str, inputs: Sequence[Value | None], y: Value, **attributes: Attribute) -> KernelCase:
    domain = DOMAIN if op_type == CAST else "com.microsoft" if op_type in _CONTRIB_OPS else ""
    op = Op(op_type, tuple(inputs), (y,), domain=domain, version=_OPSETS[domain], attributes=attributes)
    op.signature = Signature(tuple(None if each is None else each.storage for each in inputs), (y.storage,))
    return KernelCase(family, op)


def _convolution_shapes() -> Iterator[tuple[int, int, int, int, int, int]]:
    """Channels in and out, pixels per side, kernel size, stride and groups, of convolutions of images and of first layers."""
    for number, (c, side) in enumerate(_IMAGES):
        stride = 1 + number % 2
        yield c, 2 * c, side, 1, 1, 1
        yield c, max(c // 4, 16), side, 1, stride, 1
        yield c, max(c // 4, 16), 1, 1, 1, 1
        yield min(c, 256), min(c, 256), side, 3, 1, 1
        yield c, c // 2 + 8, side, (3, 5)[stride - 1], stride, 1
        yield c, c, side, (3, 5, 7)[number % 3], stride, c
        yield c, c, side, 3, 1, (4 if c % 64 == 0 else 1)
    for number, side in enumerate(_INPUTS):
        for kernel, stride in ((3, 1 + side // 128), (7, 2), (4, 4)):
            yield (3, 3, 1, 4)[number % 4], (32, 64, 24, 96)[(number + kernel) % 4], side, kernel, stride, 1


def _convolutions(block: int) -> Iterator[KernelCase]:
    b = f"NCHW{block}c"
    dense, single = f"{b}{block}n", f"NCHW{block}n"
    for c, o, side, kernel, stride, group in _convolution_shapes():
        kind = " depthwise" if group == c > 1 else ""
        blocked = (b, single, b) if kind else (b, dense, b)
        choices = [(f"plain{kind}", ("", "", "")), (f"blocked{kind}", blocked)]
        if c < 8:
            choices[1] = ("first", ("", single, b))
        elif not kind and group > 1 and c // group % block:
            del choices[1]
        pad = kernel // 2 if kernel % 2 else 0
        out = (side + 2 * pad - kernel) // stride + 1
        for name, (x, w, y) in choices:
            filter, bias = (
                _tensor((o, c // group, kernel, kernel), w, is_constant=True),
                _tensor((o,), is_constant=True),
            )
            yield _case(
                f"convolution, {name}",
                "Conv",
                [_image(c, side, x), filter, bias],
                _image(o, out, y),
                group=group,
                kernel_shape=(kernel,) * 2,
                strides=(stride,) * 2,
                pads=(pad,) * 4,
            )


def _images(block: int) -> Iterator[KernelCase]:
    """Pooling and resampling."""
    for name, format in (("blocked", f"NCHW{block}c"), ("plain", "")):
        for number, (c, side) in enumerate(_IMAGES):
            x, mean = _image(c, side, format), _image(c, 1, format)
            yield _case(f"global pooling, {name}", "GlobalAveragePool", [x], mean)
            kernel, out = 2 + number % 2, (side - 2 - number % 2) // 2 + 1
            window: dict[str, Attribute] = {"kernel_shape": (kernel,) * 2, "strides": (2, 2)}
            pool = ("MaxPool", "AveragePool")[number // 2 % 2]
            yield _case(f"pooling, {name}", pool, [x], _image(c, out, format), **window)
        for mode, coordinates in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")):
            fields: dict[str, Attribute] = {"mode": mode, "coordinate_transformation_mode": coordinates}
            if mode == "nearest":
                fields["nearest_mode"] = "floor"
            for c, side in _IMAGES[2::2]:
                inputs = [_image(c, side, format), None, _numbers(1.0, 1.0, 2.0, 2.0)]
                yield _case(f"resize {mode}, {name}", "Resize", inputs, _image(c, 2 * side, format), **fields)


def _matrices() -> Iterator[KernelCase]:
    for n, m, k in _TOKENS:
        for o in (k, 4 * k if k < 768 else k // 4):
            inputs = [_tensor((n, m, k)), _tensor((k, o), is_constant=True)]
            yield _case("matrix product", "MatMul", inputs, _tensor((n, m, o)))
    for h, m, k, o in _BATCHED:
        for name, a, b in (
            ("", "", ""),
            (", first transposed", "NCWH", ""),
            (", second transposed", "", "NCWH"),
            (", both transposed", "NCWH", "NCWH"),
        ):
            inputs = [_tensor((1, h, m, k), a), _tensor((1, h, k, o), b)]
            yield _case(f"matrix product{name}", "MatMul", inputs, _tensor((1, h, m, o)))


def _elements(block: int) -> Iterator[KernelCase]:
    for number, op_type in enumerate((*_MEMORY_BOUND_OPS, *_COMPUTE_BOUND_OPS)):
        for shape in (*((1, c, side, side) for c, side in _IMAGES[number % 2 :: 2]), *_TOKENS[number % 2 :: 2]):
            others: list[Value | None] = [_tensor(shape)] if op_type in _BINARY else []
            if op_type == "Clip":
                others = [_tensor((), is_constant=True), None]
            family = "element-wise, light" if op_type in _MEMORY_BOUND_OPS else f"element-wise, {op_type}"
            yield _case(family, op_type, [_tensor(shape), *others], _tensor(shape))
    for number, (c, side) in enumerate(_IMAGES[::2]):
        for format in ("", "NHWC", f"NCHW{block}c"):
            inputs = [_image(c, side, format), _image(c, 1, format)]
            yield _case("per channel", ("Mul", "Add")[number % 2], inputs, _image(c, side, format))


def _row_ops() -> Iterator[KernelCase]:
    """Normalisation, Softmax, reductions."""

    def with_parameters(x: Value, extent: int) -> list[Value]:
        return [x, _tensor((extent,), is_constant=True), _tensor((extent,), is_constant=True)]

    for shape in _TOKENS:
        inputs = with_parameters(_tensor(shape), shape[-1])
        yield _case("layer normalization", "LayerNormalization", inputs, _tensor(shape), axis=-1)
        yield _case("reduction", "ReduceMean", [_tensor(shape), _numbers(-1)], _tensor((*shape[:-1], 1)))
    for c, side in _IMAGES[::2]:
        yield _case("reduction", "ReduceMean", [_image(c, side), _numbers(2, 3)], _image(c, 1))
        inputs = with_parameters(_image(c, side), c)
        yield _case("instance normalization", "InstanceNormalization", inputs, _image(c, side))
    for h, m, _, o in _BATCHED:
        yield _case("softmax", "Softmax", [_tensor((1, h, m, o))], _tensor((1, h, m, o)), axis=-1)


def _moves(block: int) -> Iterator[KernelCase]:
    blocked = f"NCHW{block}c"
    for c, side in _IMAGES:
        for name, format in (("blocked", blocked), ("plain", "")):
            if not format or not c % (2 * block):
                parts = [_image(c, side, format), _image(c // 2, side, format)]
                yield _case(f"concat, {name}", "Concat", parts, _image(c + c // 2, side, format), axis=1)
        for a, b, family in (
            ("", "NHWC", "transpose NCHW to NHWC"),
            ("NHWC", "", "transpose NHWC to NCHW"),
            ("", blocked, "reorder NCHW to blocked"),
            (blocked, "", "reorder blocked to NCHW"),
            ("NHWC", blocked, "reorder NHWC to blocked"),
            (blocked, "NHWC", "reorder blocked to NHWC"),
        ):
            if c != block or {a, b} != {"NHWC", blocked}:  # the same bytes
                yield _cast(family, (1, c, side, side), a, b)
    for h, m, k, _ in (each for each in _BATCHED if each[0] > 1):  # with one head, no byte moves
        yield _cast("transpose of heads", (1, m, h, k), "", "NHCW")
        yield _cast("transpose of keys", (1, m, h, k), "", "NHWC")


def _cast(family: str, shape: Sequence[int], a: str, b: str) -> KernelCase:
    return _case(family, CAST, [_tensor(shape, a)], _tensor(shape, b))
