"""Small models whose ops alone constrain the sizes of their symbolic dimensions."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from layoutopt import inference, onnx_io
from layoutopt.ir.sizes import Sizes
from layoutopt.sample_inputs import SampleInputs, prepare_inputs

HEADS, HEAD, WIDTH, VOCABULARY, POSITIONS = 4, 16, 64, 50, 96


class _Builder:
    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(seed)

    def weight(self, *shape: int, scale: float = 0.1) -> str:
        array = (scale * self.random.normal(size=shape)).astype(np.float32)
        return self.constant(array)

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind: str, *inputs: str, to: str = "", **attributes: object) -> str:
        output = to or f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, list(inputs), [output], name=f"{kind}_{len(self.nodes)}", **attributes)
        )
        return output

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))


def decoder(layers: int = 2) -> onnx.ModelProto:
    """GPT-2 in small: Gemms, caches, a causal mask from a constant, position embeddings, an attention mask.

    The dimensions are called s0 (batch), s10 (new tokens), s53 (past) and s77 (past and new together).
    """
    b = _Builder()
    shape = b.op("Shape", "input_ids")
    batch, new = (b.op("Gather", shape, b.constant(np.int64(axis)), axis=0) for axis in (0, 1))
    past = b.op("Gather", b.op("Shape", "past.0.key"), b.constant(np.int64(2)), axis=0)
    total = b.op("Add", past, new)
    one = b.constant(np.int64(1))
    positions = b.op("Range", past, total, one)
    tokens = b.op("Gather", b.weight(VOCABULARY, WIDTH), "input_ids", axis=0)
    x = b.op("Add", tokens, b.op("Gather", b.weight(POSITIONS, WIDTH), positions, axis=0))
    mask = b.op("Cast", b.op("Unsqueeze", "attention_mask", b.ints(1, 2)), to_type=1)
    blocked = b.op("Mul", b.op("Sub", b.constant(np.float32(1)), mask), b.constant(np.float32(-10000)))
    causal = b.constant(np.tril(np.ones((1, 1, POSITIONS, POSITIONS), bool)))
    ends = (b.op("Unsqueeze", each, b.ints(0)) for each in (past, total))
    first, last = ends
    rows = b.op("Slice", causal, first, last, b.ints(2))
    allowed = b.op("Slice", rows, b.ints(0), last, b.ints(3))
    outputs = []
    for layer in range(layers):
        query, key, value = (_heads(b, _gemm(b, x, WIDTH, batch, new), batch, new) for _ in range(3))
        key = b.op("Concat", f"past.{layer}.key", key, to=f"present.{layer}.key", axis=2)
        value = b.op("Concat", f"past.{layer}.value", value, to=f"present.{layer}.value", axis=2)
        scores = b.op("MatMul", query, b.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = b.op("Where", allowed, scores, b.constant(np.float32(-1e4)))
        weights = b.op("Softmax", b.op("Add", scores, blocked), axis=-1)
        mixed = b.op("Transpose", b.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        flat = b.op("Concat", *(b.op("Unsqueeze", each, b.ints(0)) for each in (batch, new)), b.ints(WIDTH), axis=0)
        x = b.op("Add", x, _gemm(b, b.op("Reshape", mixed, flat), WIDTH, batch, new))
        hidden = b.op("Tanh", _gemm(b, x, 4 * WIDTH, batch, new))
        x = b.op("Add", x, _gemm(b, hidden, WIDTH, batch, new, wide=4 * WIDTH))
        outputs += [key, value]
    b.op("MatMul", x, b.weight(WIDTH, VOCABULARY), to="logits")
    caches = [f"past.{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["s0", "s10"]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["s0", "s77"]),
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["s0", HEADS, "s53", HEAD]) for name in caches),
    ]
    results = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, None),
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs),
    ]
    return _model(b, inputs, results)


def _gemm(b: _Builder, x: str, width: int, batch: str, new: str, wide: int = WIDTH) -> str:
    """A Gemm over all tokens, as GPT-2's Conv1D is exported."""
    flat = b.op("Reshape", x, b.ints(-1, wide))
    product = b.op("Gemm", flat, b.weight(wide, width), b.weight(width))
    target = b.op("Concat", *(b.op("Unsqueeze", each, b.ints(0)) for each in (batch, new)), b.ints(width), axis=0)
    return b.op("Reshape", product, target)


def _heads(b: _Builder, x: str, batch: str, new: str) -> str:
    axes = (b.op("Unsqueeze", each, b.ints(0)) for each in (batch, new))
    target = b.op("Concat", *axes, b.ints(HEADS), b.ints(HEAD), axis=0)
    return b.op("Transpose", b.op("Reshape", x, target), perm=[0, 2, 1, 3])


def audio() -> onnx.ModelProto:
    """A stack of convolutions over samples, as speech models begin: one step is 320 samples, the first window 400."""
    b = _Builder()
    x = b.op("Unsqueeze", "samples", b.ints(1))
    channels = 1
    for kernel, stride in ((10, 5), (8, 4), (4, 2), (4, 2), (4, 2), (2, 2)):
        x = b.op("Conv", x, b.weight(8, channels, kernel), strides=[stride], kernel_shape=[kernel])
        x = b.op("Relu", x)
        channels = 8
    b.op("Transpose", x, to="y", perm=[0, 2, 1])
    inputs = [helper.make_tensor_value_info("samples", TensorProto.FLOAT, [None, "s3"])]
    return _model(b, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])


def _model(b: _Builder, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    for node in b.nodes:
        for attribute in node.attribute:
            attribute.name = attribute.name.replace("to_type", "to")
    graph = helper.make_graph(b.nodes, "net", inputs, outputs, b.weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def written(inputs: str, body: str, outputs: str = "float[?,?] y") -> onnx.ModelProto:
    """A model in onnx's text form."""
    head = '<ir_version: 8, opset_import: ["" : 18]>'
    return parser.parse_model(f"{head} net ({inputs}) => ({outputs}) {{ {body} }}")


def prepare(model: onnx.ModelProto, **options) -> tuple[SampleInputs, Sizes]:
    """The generator of test inputs of a model, and the inferred sizes; `options` are those of `prepare_inputs`."""
    content = model.SerializeToString()
    return prepare_inputs(content, inference.lift(onnx_io.from_message(onnx_io.parse_message(content))), **options)
