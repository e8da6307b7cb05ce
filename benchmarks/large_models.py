"""Models with gigabytes of weights, for `large.py`: real shapes, weights as files with holes.

A weight is a hole in the file of external data, which reads as zeros, except for a few blocks of random numbers at its ends.
So outputs depend on inputs and on every weight, and a model of 13 GB takes 0.3 GB of disk.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PAGE = 4096
BLOCK = 1 << 16  # bytes of random numbers at each end of a weight
SEQUENCE, PAST = 1, 32  # tokens of a step, and in the cache
TOTAL = SEQUENCE + PAST


@dataclass
class LargeModel:
    """Builds a model, and the file of its weights."""

    folder: Path
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    end: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.data = (self.folder / "model.data").open("wb")

    def add(self, kind: str, *inputs: str, name: str = "", outputs: int = 1, domain: str = "", **attributes) -> str:
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{name}.op", domain=domain, **attributes))
        return name

    def constant(self, array: object) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, name: str, dtype: np.dtype, *shape: int, scale: float = 0.02, rows: int = 0) -> str:
        """A weight of which the first and last block, and the beginning of every one of `rows` rows, are not zero."""
        dtype, size = np.dtype(dtype), int(np.prod(shape))
        nbytes = size * dtype.itemsize
        self.end += -self.end % PAGE
        starts = [0, max(0, nbytes - BLOCK) // dtype.itemsize * dtype.itemsize]
        starts += [row * nbytes // rows for row in range(rows)]
        for start in dict.fromkeys(starts):
            count = min(PAGE if start not in starts[:2] else BLOCK, nbytes - start) // dtype.itemsize
            self.data.seek(self.end + start)
            self.data.write(self.numbers(dtype, count, scale).tobytes())
        tensor = TensorProto(name=name, dims=shape, data_type=helper.np_dtype_to_tensor_dtype(dtype))
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "model.data"), ("offset", self.end), ("length", nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self.weights.append(tensor)
        self.end += nbytes
        return name

    def numbers(self, dtype: np.dtype, count: int, scale: float) -> np.ndarray:
        if dtype == np.uint8:
            return self.random.integers(0, 256, count, np.uint8)
        return (self.random.standard_normal(count, np.float32) * scale).astype(dtype)

    def save(self) -> Path:
        self.data.truncate(self.end)
        self.data.close()
        graph = helper.make_graph(self.nodes, "large", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        path = self.folder / "model.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
        return path


@dataclass(frozen=True)
class DecoderSizes:
    """The sizes of a decoder; by default those of the Llama models with 7 billion parameters."""

    layers: int = 32
    width: int = 4096
    heads: int = 32
    inner: int = 11008
    words: int = 32000
    positions: int = 2048


def decoder(folder: Path, layers: int, *, is_int4: bool, sizes: DecoderSizes = DecoderSizes()) -> Path:
    """A decoder as exporters write it: RMSNorm, rotary embeddings, a cache of keys and values, a gated MLP.

    Args:
        folder: for the files.
        layers: the number of layers.
        is_int4: whether matrices have 4 bits (MatMulNBits) and activations are float32; otherwise everything is float16.
        sizes: the other sizes.
    """
    net, dtype = LargeModel(folder), np.dtype(np.float32 if is_int4 else np.float16)
    element = helper.np_dtype_to_tensor_dtype(dtype)
    each = sizes.width // sizes.heads
    for name in ("input_ids", "position_ids"):
        net.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, [1, SEQUENCE]))
    table = net.weight("embedding", np.float16, sizes.words, sizes.width, scale=1.0, rows=sizes.words)
    x = net.add("Gather", table, "input_ids")
    x = net.add("Cast", x, to=TensorProto.FLOAT) if is_int4 else x
    rotary = _rotary(net, sizes, each, dtype)
    mask = _mask(net, layers and "past_key_0", dtype)

    def matrix(name: str, y: str, inside: int, outside: int) -> str:
        if not is_int4:
            return net.add("MatMul", y, net.weight(name, dtype, inside, outside))
        packed = net.weight(f"{name}.packed", np.uint8, outside, inside // 32, 16)
        scales = net.weight(f"{name}.scales", np.float32, outside * inside // 32, scale=0.01)
        sizes_of = {"K": inside, "N": outside, "bits": 4, "block_size": 32}
        return net.add("MatMulNBits", y, packed, scales, domain="com.microsoft", **sizes_of)

    def normal(name: str, y: str) -> str:
        gain = net.constant(net.random.uniform(0.5, 1.5, sizes.width).astype(dtype))
        wide = y if is_int4 else net.add("Cast", y, to=TensorProto.FLOAT)
        mean = net.add("ReduceMean", net.add("Pow", wide, two), axis, keepdims=1)
        root = net.add("Sqrt", net.add("Add", mean, small))
        scaled = net.add("Div", wide, root)
        return net.add("Mul", scaled if is_int4 else net.add("Cast", scaled, to=element), gain, name=name)

    two, small, axis = net.constant(np.float32(2)), net.constant(np.float32(1e-5)), net.constant([-1])
    split, merge = net.constant([0, 0, sizes.heads, each]), net.constant([0, 0, sizes.width])
    scale = net.constant(dtype.type(each**-0.5))
    for layer in range(layers):
        y = normal(f"normal_{layer}", x)
        q, k, v = (
            net.add("Transpose", net.add("Reshape", matrix(f"{n}_{layer}", y, sizes.width, sizes.width), split),
                    perm=[0, 2, 1, 3])
            for n in "qkv"
        )  # fmt: skip
        q, k = rotary(q), rotary(k)
        for name, new in (("key", k), ("value", v)):
            shape = [1, sizes.heads, PAST, each]
            net.inputs.append(helper.make_tensor_value_info(f"past_{name}_{layer}", element, shape))
            net.add("Concat", f"past_{name}_{layer}", new, name=f"present_{name}_{layer}", axis=2)
            info = helper.make_tensor_value_info(f"present_{name}_{layer}", element, [1, sizes.heads, TOTAL, each])
            net.outputs.append(info)
        keys = net.add("Transpose", f"present_key_{layer}", perm=[0, 1, 3, 2])
        scores = net.add("Add", net.add("Mul", net.add("MatMul", q, keys), scale), mask)
        mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), f"present_value_{layer}")
        joined = net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
        x = net.add("Add", x, matrix(f"o_{layer}", joined, sizes.width, sizes.width))
        y = normal(f"inner_{layer}", x)
        gate = matrix(f"gate_{layer}", y, sizes.width, sizes.inner)
        gated = net.add("Mul", gate, net.add("Sigmoid", gate))
        up = net.add("Mul", gated, matrix(f"up_{layer}", y, sizes.width, sizes.inner))
        x = net.add("Add", x, matrix(f"down_{layer}", up, sizes.inner, sizes.width))
    net.add("Cast", matrix("words", normal("normal", x), sizes.width, sizes.words), name="logits", to=TensorProto.FLOAT)
    net.outputs.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, SEQUENCE, sizes.words]))
    return net.save()


def _rotary(net: LargeModel, sizes: DecoderSizes, each: int, dtype: np.dtype) -> Callable[[str], str]:
    """A function that rotates the halves of every head by angles of the positions."""
    frequencies = 10000.0 ** (-np.arange(0, each, 2) / each)
    angles = np.outer(np.arange(sizes.positions), np.concatenate([frequencies, frequencies]))
    axis, half, whole, zero = (net.constant([n]) for n in (1, each // 2, each, 0))
    last = net.constant([3])
    cosine, sine = (
        net.add("Unsqueeze", net.add("Gather", net.constant(table.astype(dtype)), "position_ids"), axis)
        for table in (np.cos(angles), np.sin(angles))
    )

    def rotate(x: str) -> str:
        first, second = net.add("Slice", x, zero, half, last), net.add("Slice", x, half, whole, last)
        turned = net.add("Concat", net.add("Neg", second), first, axis=-1)
        return net.add("Add", net.add("Mul", x, cosine), net.add("Mul", turned, sine))

    return rotate


def _mask(net: LargeModel, cache: str, dtype: np.dtype) -> str:
    """0 where a position may read a key, and the smallest number elsewhere."""
    zero, one = net.constant(np.int64(0)), net.constant(np.int64(1))
    past = net.add("Gather", net.add("Shape", cache), net.constant(np.int64(2)))
    new = net.add("Gather", net.add("Shape", "input_ids"), one)
    keys = net.add("Range", zero, net.add("Add", past, new), one)
    rows = net.add("Unsqueeze", net.add("Range", past, net.add("Add", past, new), one), net.constant([1]))
    allowed = net.add("LessOrEqual", keys, rows)
    return net.add("Where", allowed, net.constant(dtype.type(0)), net.constant(np.finfo(dtype).min))


def convolutions(folder: Path, blocks: int, channels: int = 2048, side: int = 7) -> Path:
    """Residual blocks of two 3x3 convolutions in float32, each with a filter of 151 MB."""
    net = LargeModel(folder)
    net.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, side, side]))
    net.outputs.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels, side, side]))
    x = "x"
    for block in range(blocks):
        y = x
        for half in range(2):
            filters = net.weight(f"filters_{block}_{half}", np.float32, channels, channels, 3, 3)
            bias = net.constant(net.numbers(np.dtype(np.float32), channels, 0.1))
            y = net.add("Conv", y, filters, bias, kernel_shape=[3, 3], pads=[1] * 4)
            y = net.add("Relu", y) if half == 0 else y
        x = net.add("Relu", net.add("Add", x, y))
    net.add("Identity", x, name="y")
    return net.save()


MODELS: dict[str, tuple[Callable[[Path, int], Path], int]] = {
    "decoder-float16": (lambda folder, layers: decoder(folder, layers, is_int4=False), 32),
    "decoder-int4": (lambda folder, layers: decoder(folder, layers, is_int4=True), 32),
    "convolutions": (convolutions, 36),
}
"""Functions that write a model of a number of layers or blocks, and that number for the full size."""
