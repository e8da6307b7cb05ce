"""Published times of layouts on GPUs, and those that the cost models predict; nothing is fitted to the published ones.

    python benchmarks/published.py

A prediction is the sum over the ops of a network, each in one format and in a kernel of its own, as a framework runs them:
convolutions, batch norms, activations, residuals, pooling. In int8, convolutions include what follows them. The targets in
benchmarks/published have the rates of the GPUs.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from layoutopt.cost_models.registry import load_target
from layoutopt.cost_models.roofline import RooflineModel
from layoutopt.formats import lookup
from layoutopt.ir.types import ArrayData, DType, Op, Signature, Slot, TensorType, Value
from layoutopt.ops.signatures import signature_of

IN_0 = Slot("in", 0)
FOLDER = Path(__file__).parent / "published"
HALF = {
    "resnet50": ("Paddle 20597", 128, 0.195 / 0.16),
    "vgg16": ("Paddle 20597", 128, 0.55 / 0.32),
    "inception_v4": ("Paddle 20597", 128, 0.30 / 0.27),
    "resnet101": ("OneFlow 7890", 64, 44 / 38),
}
"""Pull request, batch size (Paddle's is not published), and the ratio of times in NCHW and NHWC, float16 on tensor cores."""
H100 = {"resnet50": 1.47, "vgg16": 1.37, "inception_v4": 1.11, "resnet101": 1.55}
"""The ratio measured with PyTorch 2.11 and cuDNN 9.19 on an H100, batch 128, without fusion (2026-11-26)."""
INT8 = {"NCHW32": 9.24, "CHWN4": 11.08}
"""Milliseconds of ResNet18 in MegEngine, int8, batch 128, RTX 2080 Ti."""


class Network:
    """The distinct ops of a network with their numbers. A value is its shape; weights have no elements but zeros."""

    def __init__(self, batch: int, dtype: DType) -> None:
        self.batch, self.dtype = batch, dtype
        self.is_fused = dtype is not DType.FLOAT16
        self.counts: dict[tuple[Any, ...], int] = {}

    def add(self, kind: str, shapes: Sequence[Sequence[int]], constants: int = 0, **attributes: object) -> None:
        """Count an op. Shapes are those of its operands, of which the last `constants` are constants, and of its result."""
        key = kind, tuple(map(tuple, shapes)), constants, tuple(attributes.items())
        self.counts[key] = self.counts.get(key, 0) + 1

    def conv(self, x: Sequence[int], out: int, kernel: Sequence[int], stride: int = 1, same: bool = True) -> list[int]:
        """A convolution with its batch norm and activation."""
        pads = [side // 2 if same else 0 for side in kernel]
        y = [self.batch, out, *((d + 2 * p - k) // stride + 1 for d, k, p in zip(x[2:], kernel, pads, strict=True))]
        weights = out, x[1], *kernel
        self.add("Conv", [x, weights, y], 1, kernel_shape=tuple(kernel), strides=(stride, stride), pads=(*pads, *pads))
        if not self.is_fused:
            self.add("BatchNormalization", [y, *[(out,)] * 4, y], 4)
            self.add("Relu", [y, y])
        return y

    def pool(self, kind: str, x: Sequence[int], kernel: int, stride: int, pad: int = 0) -> list[int]:
        side = (x[2] + 2 * pad - kernel) // stride + 1
        y = [*x[:2], side, side]
        self.add(kind, [x, y], kernel_shape=(kernel, kernel), strides=(stride, stride), pads=(pad,) * 4)
        return y

    def concat(self, *parts: Sequence[int]) -> list[int]:
        y = [self.batch, sum(part[1] for part in parts), *parts[0][2:]]
        self.add("Concat", [*parts, y], axis=1)
        return y

    def seconds(self, model: RooflineModel, layout: str) -> float:
        """The sum of the prices of all ops in a format."""
        return sum(count * price(model, self.op(*key), layout) for key, count in self.counts.items())

    def op(self, kind: str, shapes: Sequence[Any], constants: int, attributes: Sequence[Any]) -> Op:
        values = [Value(str(number), TensorType(self.dtype, shape)) for number, shape in enumerate(shapes)]
        for value, shape in list(zip(values, shapes, strict=True))[:-1][::-1][:constants]:
            value.data = ArrayData(np.broadcast_to(np.zeros((), self.dtype.numpy), shape))
        *inputs, result = values
        return Op(kind, tuple(inputs), (result,), version=17, attributes=dict(attributes))


def price(model: RooflineModel, op: Op, layout: str) -> float:
    """Seconds of an op with images in a format; a first layer reads its image in the format that its kernel prefers."""
    image = {slot: lookup(layout) for slot in op.slots() if slot.side == "out" or is_image(op.operand(slot))}
    found = []
    for formats in ({}, *model.preferred_formats(op)):
        free = {IN_0} if op.x.static_shape[1] == 3 else set()
        if all(formats.get(slot, format) == format for slot, format in image.items() if slot not in free):
            signature = signature_of(op, {**image, **formats})
            if isinstance(signature, Signature):
                found.append(model.kernel_seconds(op, signature))
    return min(found)


def is_image(value: Value | None) -> bool:
    return value is not None and value.rank == 4 and not value.is_constant


def resnet(network: Network, blocks: Sequence[int], is_deep: bool) -> None:
    x = network.conv([network.batch, 3, 224, 224], 64, (7, 7), 2)
    x = network.pool("MaxPool", x, 3, 2, 1)
    for stage, count in enumerate(blocks):
        for number in range(count):
            width, stride, before = 64 << stage, 2 if stage and not number else 1, x
            out = 4 * width if is_deep else width
            if is_deep:
                x = network.conv(network.conv(network.conv(x, width, (1, 1)), width, (3, 3), stride), out, (1, 1))
            else:
                x = network.conv(network.conv(x, width, (3, 3), stride), out, (3, 3))
            if before != x:
                network.conv(before, out, (1, 1), stride)
            if not network.is_fused:
                network.add("Add", [x, x, x])
    network.pool("AveragePool", x, 7, 1)


def vgg16(network: Network) -> None:
    x = [network.batch, 3, 224, 224]
    for count, width in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(count):
            x = network.conv(x, width, (3, 3))
        x = network.pool("MaxPool", x, 2, 2)


def inception_v4(network: Network) -> None:
    def tower(x: list[int], *layers: tuple[int, int, int], last: int = 1) -> list[int]:
        """Convolutions, each as outputs, rows and columns of the kernel; the last one of stride 2 has no pads."""
        for number, (out, *kernel) in enumerate(layers):
            is_last = last == 2 and number == len(layers) - 1
            x = network.conv(x, out, kernel, last if is_last else 1, not is_last)
        return x

    average = partial(network.pool, "AveragePool", kernel=3, stride=1, pad=1)
    x = network.conv([network.batch, 3, 299, 299], 32, (3, 3), 2, same=False)
    x = network.conv(network.conv(x, 32, (3, 3), same=False), 64, (3, 3))
    x = network.concat(network.pool("MaxPool", x, 3, 2), network.conv(x, 96, (3, 3), 2, same=False))
    left = network.conv(tower(x, (64, 1, 1)), 96, (3, 3), same=False)
    right = network.conv(tower(x, (64, 1, 1), (64, 1, 7), (64, 7, 1)), 96, (3, 3), same=False)
    x = network.concat(left, right)
    x = network.concat(tower(x, (192, 3, 3), last=2), network.pool("MaxPool", x, 3, 2))
    for _ in range(4):
        three = tower(x, (64, 1, 1), (96, 3, 3), (96, 3, 3))
        x = network.concat(tower(x, (96, 1, 1)), tower(x, (64, 1, 1), (96, 3, 3)), three, tower(average(x), (96, 1, 1)))
    long = tower(x, (192, 1, 1), (224, 3, 3), (256, 3, 3), last=2)
    x = network.concat(tower(x, (384, 3, 3), last=2), long, network.pool("MaxPool", x, 3, 2))
    for _ in range(7):
        two = tower(x, (192, 1, 1), (224, 1, 7), (256, 7, 1))
        four = tower(x, (192, 1, 1), (192, 7, 1), (224, 1, 7), (224, 7, 1), (256, 1, 7))
        x = network.concat(tower(x, (384, 1, 1)), two, four, tower(average(x), (128, 1, 1)))
    long = tower(x, (256, 1, 1), (256, 1, 7), (320, 7, 1), (320, 3, 3), last=2)
    x = network.concat(tower(x, (192, 1, 1), (192, 3, 3), last=2), long, network.pool("MaxPool", x, 3, 2))
    for _ in range(3):
        two = tower(x, (384, 1, 1))
        four = tower(x, (384, 1, 1), (448, 3, 1), (512, 1, 3))
        split = [tower(two, (256, 1, 3)), tower(two, (256, 3, 1)), tower(four, (256, 1, 3)), tower(four, (256, 3, 1))]
        x = network.concat(tower(x, (256, 1, 1)), *split, tower(average(x), (256, 1, 1)))


NETWORKS = {
    "resnet18": partial(resnet, blocks=(2, 2, 2, 2), is_deep=False),
    "resnet50": partial(resnet, blocks=(3, 4, 6, 3), is_deep=True),
    "resnet101": partial(resnet, blocks=(3, 4, 23, 3), is_deep=True),
    "vgg16": vgg16,
    "inception_v4": inception_v4,
}


def predicted(name: str, batch: int, dtype: DType, target: str, *layouts: str) -> list[float]:
    """Predicted seconds of a network in each format."""
    network = Network(batch, dtype)
    NETWORKS[name](network)
    model = load_target(target)
    return [network.seconds(model, layout) for layout in layouts]


def half(name: str, target: str = str(FOLDER / "v100.toml")) -> float:
    """The predicted ratio of the times in NCHW and NHWC in float16."""
    first, last = predicted(name, HALF[name][1], DType.FLOAT16, target, "NCHW", "NHWC")
    return first / last


def integer(*layouts: str) -> list[float]:
    """Predicted milliseconds of ResNet18 in int8 on an RTX 2080 Ti."""
    target = str(FOLDER / "rtx-2080-ti.toml")
    return [1e3 * each for each in predicted("resnet18", 128, DType.INT8, target, *layouts)]


def main() -> None:
    print(
        "| network | source | published | predicted: V100 | measured: H100 | predicted: H100 |\n|---|---|---|---|---|---|"
    )
    for name, (source, _, ratio) in HALF.items():
        found = f"{half(name):.2f} | {H100[name]:.2f} | {half(name, 'gpu-hopper'):.2f}"
        print(f"| {name} | {source} | {ratio:.2f} | {found} |")
    milliseconds = integer(*INT8)
    print("\n| int8 | published | predicted |\n|---|---|---|")
    for layout, found in zip(INT8, milliseconds, strict=True):
        print(f"| {layout} | {INT8[layout]:.2f} ms | {found:.2f} ms |")
    print(f"| ratio | {INT8['CHWN4'] / INT8['NCHW32']:.2f} | {milliseconds[1] / milliseconds[0]:.2f} |")


if __name__ == "__main__":
    main()
