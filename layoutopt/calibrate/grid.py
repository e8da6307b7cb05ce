"""The timed kernels: ops on shapes of real networks, from 1x1 to 256x256 pixels, in all formats of the target's kernels.

The numbers of channels include few, many, odd ones and ones that are no multiple of a block; images include single pixels.
onnxruntime runs a plain convolution as a blocked one between two reorders, which its time includes.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import onnx
import onnx_ir

from layoutopt import inference
from layoutopt.cost_models import RooflineModel
from layoutopt.cost_models.roofline import formats_of
from layoutopt.formats import Format
from layoutopt.ir.graph import CAST, DOMAIN, is_cast
from layoutopt.ir.types import DType, Op, Signature, Storage, TensorType, Value
from layoutopt.kernel_times.kernels import LoweredKernel, RandomConstant
from layoutopt.ops import canonical_signature, rule_of

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
_INPUTS = (224, 64, 160, 32, 128, 192, 256, 112)  # pixels per side of images that first layers read
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
# element-wise ops; all from Sigmoid on are bound by arithmetic, each at another rate, and the last two are those into which
# onnxruntime fuses x * sigmoid(x) and Gelu by tanh
_ELEMENTWISE = (
    *("Relu(X)", "Add(X, X)", "Mul(X, X)", "Clip(X, float[]{0})", "Div(X, X)", "HardSigmoid(X)"),
    *("Sigmoid(X)", "Tanh(X)", "Erf(X)", "Gelu(X)", "HardSwish(X)", "Sqrt(X)", "Softplus(X)"),
    *("com.microsoft.QuickGelu(X)", "com.microsoft.FastGelu(X)"),
)
_RESIZES = (
    'mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"',
    'mode = "linear"',
    'mode = "linear", coordinate_transformation_mode = "align_corners"',
)
_TENSOR = re.compile(r"(\*?)(float|int64)\[([\d,]*)\](\{[^}]*\})?")


@dataclass(frozen=True)
class KernelCase:
    """A kernel to time, which the cost model prices.

    Attributes:
        op: the op with its signature; CastData for a conversion.
    """

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


def kernel_cases(model: RooflineModel) -> list[KernelCase]:
    """The kernels for a target: every op in the formats of each of its kernels, and conversions between them."""
    cases = list(_conversions(model.spec.block(DType.FLOAT32)))
    for op in _parsed([*_convolutions(), *_images(), *_rows(), *_elements()]):
        rule = rule_of(op)
        assert rule is not None
        found = [rule.signature(op, dict(formats)) for formats in model.preferred_formats(op)]
        for signature in [each for each in found if isinstance(each, Signature)] or [canonical_signature(op)]:
            case = op.copy(op.inputs, op.outputs)
            case.signature = signature
            cases.append(KernelCase(case))
    return list({case.key: case for case in cases}.values())


def _parsed(calls: Iterable[str]) -> list[Op]:
    """Ops from calls in ONNX's text with the types of the operands: constants begin with `*`, or have elements in braces."""
    inputs: list[str] = []
    constants: list[str] = []
    nodes: list[str] = []
    random: set[str] = set()

    def declared(match: re.Match[str]) -> str:
        name = f"v{len(inputs) + len(constants)}"
        extents = f"[{match[3]}]" if match[3] else ""
        if match[1]:
            random.add(name)
        (constants if match[4] else inputs).append(f"{match[2]}{extents} {name}{f' = {match[4]}' if match[4] else ''}")
        return name

    nodes += [f"y{number} = {_TENSOR.sub(declared, call)}" for number, call in enumerate(calls)]
    imports = ", ".join(f'"{domain}" : {version}' for domain, version in _OPSETS.items())
    model = onnx.parser.parse_model(
        f"<ir_version: 10, opset_import: [{imports}]> "
        f"kernels ({', '.join(inputs)}) => () <{', '.join(constants)}> {{ {' '.join(nodes)} }}"
    )
    for number in range(len(nodes)):
        model.graph.output.add().name = f"y{number}"
    graph = inference.lift(onnx_ir.from_proto(model))
    for value in graph.inputs:
        if value.name in random:
            value.data = RandomConstant(tuple(map(int, value.shape or ())))
    return list(graph.ops)


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


def _convolutions() -> Iterator[str]:
    for c, o, side, kernel, stride, group in _convolution_shapes():
        pad = kernel // 2 if kernel % 2 else 0
        fields = f"group = {group}, pads = {[pad] * 4}, strides = {[stride] * 2}"
        operands = f"float[1,{c},{side},{side}], *float[{o},{c // group},{kernel},{kernel}], *float[{o}]"
        yield f"Conv <{fields}> ({operands})"


def _images() -> Iterator[str]:
    """Pooling, resampling, Concat, normalisation and reduction of images, and their products with numbers per channel."""
    for number, (c, side) in enumerate(_IMAGES):
        x, kernel = f"float[1,{c},{side},{side}]", 2 + number % 2
        yield f"GlobalAveragePool({x})"
        yield f"{('MaxPool', 'AveragePool')[number // 2 % 2]} <kernel_shape = {[kernel] * 2}, strides = [2, 2]> ({x})"
        yield f"Concat <axis = 1> ({x}, float[1,{c // 2},{side},{side}])"
        if number % 2 == 0:
            yield from (f"Resize <{fields}> ({x}, , float[4]{{1, 1, 2, 2}})" for fields in _RESIZES if number)
            yield f"ReduceMean({x}, int64[2]{{2, 3}})"
            yield f"InstanceNormalization({x}, *float[{c}], *float[{c}])"
            yield f"{('Mul', 'Add')[number // 2 % 2]}({x}, float[1,{c},1,1])"


def _rows() -> Iterator[str]:
    """Products of matrices, normalisation, reduction and Softmax of rows."""
    for n, m, k in _TOKENS:
        x = f"float[{n},{m},{k}]"
        yield from (f"MatMul({x}, *float[{k},{o}])" for o in (k, 4 * k if k < 768 else k // 4))
        yield f"LayerNormalization <axis = -1> ({x}, *float[{k}], *float[{k}])"
        yield f"ReduceMean({x}, int64[1]{{-1}})"
    for h, m, k, o in _BATCHED:
        yield f"MatMul(float[1,{h},{m},{k}], float[1,{h},{k},{o}])"
        yield f"Softmax <axis = -1> (float[1,{h},{m},{o}])"


def _elements() -> Iterator[str]:
    shapes = [*((1, c, side, side) for c, side in _IMAGES), *_TOKENS]
    for number, call in enumerate(_ELEMENTWISE):
        for shape in shapes[number % 2 :: 2]:
            yield call.replace("X", f"float[{','.join(map(str, shape))}]")


def _conversions(block: int) -> Iterator[KernelCase]:
    blocked = f"NCHW{block}c"
    for c, side in _IMAGES:
        for pair in (("NCHW", "NHWC"), ("NCHW", blocked), ("NHWC", blocked)):
            if c != block or pair != ("NHWC", blocked):  # the same bytes
                yield _conversion((1, c, side, side), *pair)
                yield _conversion((1, c, side, side), *reversed(pair))
    for h, m, k, _ in (each for each in _BATCHED if each[0] > 1):  # with one head, no byte moves
        yield _conversion((1, m, h, k), "NCHW", "NHCW")
        yield _conversion((1, m, h, k), "NCHW", "NHWC")


def _conversion(shape: tuple[int, ...], a: str, b: str) -> KernelCase:
    source, target = (Storage(Format.parse(each, "NCHW")) for each in (a, b))
    x, y = (Value(name, TensorType(DType.FLOAT32, shape)) for name in "xy")
    op = Op(CAST, (x,), (y,), domain=DOMAIN, version=_OPSETS[DOMAIN])
    op.signature = Signature((source,), (target,))
    return KernelCase(op)
