"""Samples for the laws of layout rules that onnx has no tests of: old opsets, odd channels, broadcasts, infinities."""

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state

from layoutopt.testing import Feed, Sample, make_sample
from layoutopt.testing import random_array as random

onnxruntime.set_default_logger_severity(4)  # some kernels warn of themselves, every time


def made(text: str, **options: Any) -> Sample:
    """As `make_sample`, also at opsets that are too new for onnxruntime."""
    return make_sample(text, load=session, **options)


def run(model: onnx.ModelProto, feed: Feed) -> list[np.ndarray]:
    """The outputs of a model."""
    return session(model.SerializeToString()).run(None, feed)  # type: ignore[no-any-return]


class _Reference:
    """A runner of a model in onnx's own evaluator, which is slow."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._evaluator = ReferenceEvaluator(model)

    def run(self, names: None, feed: Feed) -> list[np.ndarray]:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's warnings about garbage in padding
            return list(self._evaluator.run(names, feed))


@lru_cache(maxsize=1)
def _newest_opset() -> int:
    """The newest opset that onnxruntime supports, released or not."""
    schemas = onnxruntime_pybind11_state.get_all_operator_schema()
    return max(schema.since_version for schema in schemas if not schema.domain)


def session(model: bytes) -> onnxruntime.InferenceSession | _Reference:
    """A runner of the unchanged model in onnxruntime, or in onnx's evaluator if onnxruntime lacks its opset or a kernel.

    onnxruntime 1.31 expands Swish without optimisations, 1.32 does not.
    """
    proto = onnx.load_from_string(model)
    if max(opset.version for opset in proto.opset_import if not opset.domain) > _newest_opset():
        return _Reference(proto)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
        try:
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except onnxruntime_pybind11_state.NotImplemented:
            return _Reference(proto)


_FAMILIES: list[Callable[[], Iterator[Sample]]] = []


def family(samples: Callable[[], Iterator[Sample]]) -> Callable[[], Iterator[Sample]]:
    """Decorator: samples of ops that belong together."""
    _FAMILIES.append(samples)
    return samples


@lru_cache(maxsize=1)
def handmade() -> dict[str, list[Sample]]:
    """The samples of all families by op type."""
    found: dict[str, list[Sample]] = {}
    for sample in (sample for samples in _FAMILIES for sample in samples()):
        node = sample.model.graph.node[0]
        found.setdefault(f"{node.domain}::{node.op_type}".removeprefix("::"), []).append(sample)
    return found


def ints(*numbers: int, kind: type = np.int64) -> np.ndarray:
    return np.asarray(numbers, dtype=kind)


def floats(*numbers: float) -> np.ndarray:
    return np.asarray(numbers, dtype=np.float32)


@family
def _convolutions() -> Iterator[Sample]:
    x = (2, 17, 5, 5)
    yield made("y = Conv <pads=[1,1,1,1]> (x, w, b)", x=x, w=(19, 17, 3, 3), b=(19,))
    yield made('y = Conv <strides=[2,2], auto_pad="SAME_UPPER"> (x, w)', x=x, w=(8, 17, 3, 3))
    yield made("y = Conv <dilations=[2,2]> (x, w)", x=x, w=(1, 17, 2, 2))
    yield made("y = Conv (x, w)", x=(1, 16, 1, 1), w=(32, 16, 1, 1))
    yield made('y = Conv <auto_pad="SAME_UPPER"> (x, w, b)', x=(1, 5, 6), w=(3, 5, 1), b=(3,))
    yield made("y = Conv <pads=[1,0,0,0]> (x, w, b)", x=(2, 5, 3, 4), w=(7, 5, 1, 1), b=(7,))
    yield made("y = Conv <strides=[2,2]> (x, w)", x=(2, 5, 3, 4), w=(7, 5, 1, 1))
    yield made("y = Conv <group=17> (x, w, b)", x=x, w=(17, 1, 3, 3), b=(17,))
    yield made("y = Conv <group=5> (x, w)", x=(1, 5, 4, 4), w=(10, 1, 3, 3))
    yield made("y = Conv <group=2> (x, w, b)", x=(1, 32, 4, 4), w=(48, 16, 2, 2), b=(48,))
    yield made("y = Conv <group=2> (x, w)", x=(1, 6, 4, 4), w=(10, 3, 2, 2))
    yield made("y = Conv (x, w, b)", x=(2, 5, 9), w=(6, 5, 3), b=(6,))
    yield made("y = Conv <strides=[1,2,1]> (x, w)", x=(1, 3, 4, 4, 4), w=(5, 3, 2, 2, 2))
    yield made("y = Conv <pads=[1,0,0,1]> (x, w, b)", x=(1, 3, 4, 4), w=(5, 3, 3, 3), b=(5,), opset=8)
    text = "y = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, w, b)"
    yield made(text, x=(1, 5, 3, 3), w=(5, 7, 3, 3), b=(7,))
    yield made("y = ConvTranspose <group=2> (x, w)", x=(1, 6, 3, 3), w=(6, 4, 2, 2))
    yield made("y = ConvTranspose <group=2> (x, w)", x=(1, 16, 3, 3), w=(16, 8, 2, 2))
    yield made("y = ConvTranspose <pads=[1,1]> (x, w)", x=(1, 5, 6), w=(5, 3, 3))


@family
def _matrices() -> Iterator[Sample]:
    for a, b in (
        *(((5, 7), (7, 3)), ((2, 5, 7), (7, 3)), ((2, 3, 5), (2, 5, 4)), ((2, 1, 5, 7), (3, 7, 4))),
        *(((2, 5, 7), (7,)), ((7,), (2, 7, 4)), ((1, 8), (8, 1)), ((16, 8, 8), (8, 16))),
        *(((8, 1, 4, 8), (1, 1, 8, 4)), ((4, 8), (2, 8, 8)), ((4, 2, 8, 4), (4, 2, 4, 8))),
    ):
        yield made("y = MatMul (a, b)", a=a, b=b)
    for c in ((5, 3), (3,), (1, 3), (5, 1), (1,), ()):
        yield made("y = Gemm <alpha=0.5, beta=2.0> (a, b, c)", a=(5, 7), b=(7, 3), c=c)
    heads = "y = com.microsoft.MultiHeadAttention <num_heads=2> (q, k, v)"
    yield made(heads, q=(2, 5, 8), k=(2, 7, 8), v=(2, 7, 12))
    yield made("y = Gemm <transA=1, transB=1> (a, b)", a=(7, 5), b=(3, 7))
    yield made("y = Gemm <transB=1> (a, b, c)", a=(3, 5), b=(4, 5), c=(4,))
    yield made("y = Gemm <alpha=2.0> (a, b)", a=(3, 5), b=(5, 4))
    yield made("y = Gemm <transB=1> (a, b, c)", a=(5, 7), b=(3, 7), c=(3,), opset=7)


@family
def _elementwise() -> Iterator[Sample]:
    shapes = [
        ((2, 17, 3, 3), (17, 1, 1)),
        ((2, 16, 3, 3), (2, 16, 1, 1)),
        ((2, 1, 3, 3), (2, 17, 3, 3)),
        ((3, 5), (5,)),
        ((3, 5), (1, 5)),
        ((3, 1), (1, 5)),
        ((2, 17, 2), ()),
    ]
    for kind in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Mean", "Min", "PRelu"):
        for a, b in shapes:
            if kind != "PRelu" or np.broadcast_shapes(a, b) == a:
                positive = np.abs(random(a, f"{kind}{a}")) + 0.5
                yield made(f"y = {kind} (a, b)", a=positive if kind == "Pow" else a, b=b)
    yield made("y = Mul (x, x)", x=(2, 17, 3, 3))
    yield made("y = Add (x, x)", x=(2, 17, 3, 3))
    yield made("y = Sum (a, b, c)", a=(2, 17, 1, 3), b=(17, 3, 1), c=(1,))
    yield made("y = Sum (a, b)", a=(2, 5, 3), b=(2, 5, 3), opset=7)
    mask = random((2, 17, 3, 3), "mask") > 0
    for other in ((), (17, 1, 1), (2, 17, 3, 3)):
        yield made("y = Where (c, a, b)", c=mask, a=(2, 17, 3, 3), b=other)
    yield made("y = Where (c, a, b)", c=mask, a=(2, 17, 3, 3), b=np.float32(-np.inf))
    yield made("y = Where (c, a, b)", c=mask[:, :1], a=(1, 17, 1, 1), b=(2, 17, 3, 3))
    yield made("y = Max (a, b)", a=(2, 17, 3, 3), b=np.float32(np.inf))
    whole = np.arange(2 * 5 * 4).reshape(2, 5, 4).astype(np.int32)
    for kind in ("Div", "Mod"):
        yield made(f"y = {kind} (a, b)", a=whole, b=whole + 1, out=onnx.TensorProto.INT32)
        yield made(f"y = {kind} (a, b)", a=whole, b=ints(-1, kind=np.int32), out=onnx.TensorProto.INT32)
    x = (2, 17, 3, 3)
    for kind in ("Relu", "Sigmoid", "Exp", "Elu", "Identity", "HardSigmoid", "LeakyRelu", "Selu"):
        yield made(f"y = {kind} (x)", x=x)
        yield made(f"y = {kind} (x)", x=(2, 1, 3, 3))
    yield made("y = LeakyRelu <alpha=2.0> (x)", x=x)
    yield made("y = Mish (x)", x=x, opset=18)
    for kind in ("Gelu", "FastGelu", "QuickGelu <alpha=1.0>", "QuickGelu <alpha=-3.0>"):
        yield made(f"y = com.microsoft.{kind} (x)", x=x)
        yield made(f"y = com.microsoft.{kind} (x)", x=(2, 1, 3, 3))
    yield made("y = Cast <to=7> (x)", x=x, out=onnx.TensorProto.INT64)
    yield made("y = CastLike (x, t)", x=x, t=np.float16(1), out=onnx.TensorProto.FLOAT16)
    yield made("y = CastLike (x, t)", x=x, t=ints(1, 2, 3), out=onnx.TensorProto.INT64)
    yield made("y = Clip <min=-0.5, max=0.5> (x)", x=x, opset=7)
    yield made("y = Clip <min=0.25> (x)", x=x, opset=10)
    yield made("y = Clip (x, low, high)", x=x, low=np.float32(0), high=np.float32(6))
    yield made("y = Clip (x, , high)", x=x, high=np.float32(-1), opset=11)
    yield made("y = Clip (x, low)", x=x, low=np.float32(1e30))
    yield made("y = Dropout <ratio=0.5> (x)", x=x, opset=7)
    yield made("y = Dropout (x)", x=x, opset=10)
    yield made("y = Dropout (x, r)", x=x, r=np.float32(0.5), opset=12)
    yield made("y = Dropout (x, r, t)", x=x, r=np.float32(0.5), t=np.bool_(False), opset=13)
    yield made("y = Dropout (x, , t)", x=x, t=np.bool_(False), opset=13)


@family
def _along_axes() -> Iterator[Sample]:
    kinds = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    for kind in (f"Reduce{each}" for each in kinds):
        for keep in (0, 1):
            x = np.abs(random((2, 17, 4, 3), kind)) + 0.1
            yield made(f"y = {kind} <axes=[1], keepdims={keep}> (x)", x=x, opset=11)
            yield made(f"y = {kind} <axes=[-2,-1], keepdims={keep}> (x)", x=x, opset=11)
            yield made(f"y = {kind} <axes=[1,3], keepdims={keep}> (x)", x=x[:, :16], opset=11)
        yield made(f"y = {kind} (x)", x=x, opset=11)
    yield made("y = ReduceSum <keepdims=0> (x, a)", x=(2, 17, 4), a=ints(-2), opset=13)
    yield made("y = ReduceSum <noop_with_empty_axes=1> (x, a)", x=(2, 17, 4), a=ints(), opset=13)
    yield made("y = ReduceSum <noop_with_empty_axes=1> (x)", x=(2, 17, 4), opset=13)
    for kind in ("Softmax", "LogSoftmax", "Hardmax"):
        yield made(f"y = {kind} (x)", x=(3, 17), opset=11)
        yield made(f"y = {kind} <axis=3> (x)", x=(2, 17, 3, 4), opset=11)
        yield made(f"y = {kind} <axis=1> (x)", x=(2, 17, 3, 1), opset=11)
        yield made(f"y = {kind} <axis=2> (x)", x=(4, 17, 3, 1), opset=11)
        yield made(f"y = {kind} <axis=1> (x)", x=(2, 17, 3, 4))
        yield made(f"y = {kind} <axis=-1> (x)", x=(2, 17, 3, 4))
    for kind in ("ArgMax", "ArgMin"):
        yield made(f"y = {kind} <axis=1, keepdims=0> (x)", x=(2, 17, 3, 4), out=onnx.TensorProto.INT64)
        yield made(f"y = {kind} <axis=-1> (x)", x=(2, 17, 3, 4), out=onnx.TensorProto.INT64, opset=11)


@family
def _rearrangements() -> Iterator[Sample]:
    yield made("y = Concat <axis=1> (a, b)", a=(2, 16, 3, 3), b=(2, 17, 3, 3))
    yield made("y = Concat <axis=-3> (a, b, c)", a=(2, 1, 3, 3), b=(2, 1, 3, 3), c=(2, 2, 3, 3))
    yield made("y = Concat <axis=2> (a, b, a)", a=(2, 17, 3, 3), b=(2, 17, 1, 3))
    yield made("a, b = Split <axis=1, split=[16,17]> (x)", x=(2, 33, 3, 3), opset=11)
    yield made("a, b = Split <axis=1> (x, s)", x=(2, 33, 3, 3), s=ints(16, 17), opset=13)
    yield made("a, b = Split <axis=-3> (x)", x=(2, 32, 3, 3), opset=13)
    yield made("a, b = Split <axis=1, num_outputs=2> (x)", x=(2, 31, 3, 3), opset=18)
    yield made("a, b, c = Split <axis=2> (x)", x=(2, 17, 3, 3), opset=7)
    for kind in (np.int64, np.int32):
        s, e, a = ints(1, -2, kind=kind), ints(3, 9, kind=kind), ints(2, -1, kind=kind)
        yield made("y = Slice (x, s, e, a)", x=(2, 17, 4, 4), s=s, e=e, a=a)
        yield made("y = Slice (x, s, e)", x=(4, 4, 17), s=s, e=e, opset=10)
        yield made("y = Slice (x, s, e, a, t)", x=(2, 17, 4, 4), s=e, e=s, a=a, t=ints(-1, -1, kind=kind))
    for value in (0.0, 1.5, -np.inf):
        pads, number = ints(0, 0, 1, 0, 0, 0, 2, 1), np.float32(value)
        yield made("y = Pad (x, p, v)", x=(2, 17, 3, 3), p=pads, v=number)
        yield made("y = Pad (x, p, v)", x=(2, 17, 3, 3), p=pads, v=number, opset=11)
    yield made("y = Pad (x, p, , a)", x=(2, 17, 3, 3), p=ints(1, 1, 1, 1), a=ints(-1, 2), opset=18)
    yield made("y = Pad (x, p)", x=(2, 1, 3, 3), p=ints(0, 1, 0, 0, 0, 1, 0, 0))
    yield made("y = Gather <axis=1> (x, i)", x=(2, 17, 3, 3), i=ints(4))
    yield made("y = Gather <axis=-1> (x, i)", x=(2, 17, 3, 3), i=np.int64(1))
    yield made("y = Gather (x, i)", x=(5, 17), i=ints(4, -1, 0))
    yield made("y = Gather (x, i)", x=(5, 1, 17), i=np.asarray([[4, -1, 0], [1, 2, 3]]))
    yield made("y = Gather <axis=1> (x, i)", x=(5, 4, 17), i=np.asarray([[3, -1, 0], [1, 2, 3]]))
    yield made("y = Gather <axis=1> (x, i)", x=(5, 1, 17), i=np.asarray([[0], [0]]))
    for repeats in ((1, 1, 1, 1), (1, 2, 1, 3), (2, 1, 1, 2), (3, 1, 1, 1)):
        yield made("y = Tile (x, r)", x=(2, 17, 3, 1), r=ints(*repeats))
        yield made("y = Tile (x, r)", x=(1, 1, 3, 4), r=ints(*repeats))
    yield made("y = Transpose (x)", x=(2, 17, 3, 3))
    yield made("y = Transpose <perm=[0,2,3,1]> (x)", x=(2, 16, 1, 1))
    yield made("y = Reshape (x, s)", x=(2, 32, 3, 3), s=ints(2, 2, 16, 9))
    yield made("y = Reshape (x, s)", x=(2, 17, 3, 3), s=ints(0, 17, -1))
    yield made("y = Flatten (x)", x=(2, 17, 1, 1), opset=9)
    for opset in (7, 11):
        yield made("y = Squeeze <axes=[2]> (x)", x=(2, 17, 1, 3), opset=opset)
        yield made("y = Unsqueeze <axes=[0,3]> (x)", x=(2, 17, 3), opset=opset)


@family
def _windows() -> Iterator[Sample]:
    x = (2, 17, 4, 4)
    yield made('y = Upsample <scales=[1.0,1.0,2.0,2.0], mode="nearest"> (x)', x=x, opset=7)
    yield made('y = Upsample <mode="linear"> (x, s)', x=x, s=floats(1, 1, 2, 3), opset=9)
    yield made("y = Resize (x, s)", x=x, s=floats(1, 1, 2, 0.5), opset=10)
    yield made("y = Resize (x, r, s)", x=x, r=floats(), s=floats(1, 1, 2, 2), opset=11)
    yield made("y = Resize (x, , s)", x=x, s=floats(1, 1.05, 2, 2), opset=13)
    for mode in ("nearest", "linear", "cubic"):
        node = f'y = Resize <mode="{mode}"> (x, , , z)'
        yield made(node, x=x, z=ints(2, 17, 6, 7), opset=13)
    yield made('y = Resize <mode="linear"> (x, , , z)', x=(2, 17, 1, 1), z=ints(2, 17, 6, 7), opset=13)
    yield made("y = Resize <axes=[2,3]> (x, , , z)", x=x, z=ints(6, 7), opset=18)
    policy = 'y = Resize <axes=[2,3], keep_aspect_ratio_policy="not_larger"> (x, , , z)'
    yield made(policy, x=x, z=ints(6, 7), opset=18)
    policy = 'y = Resize <keep_aspect_ratio_policy="not_larger", mode="linear"> (x, , , z)'
    yield made(policy, x=(2, 17, 4, 5), z=ints(9, 17, 9, 9), opset=18)
    policy = 'y = Resize <keep_aspect_ratio_policy="not_smaller", axes=[2, 3], mode="linear"> (x, , , z)'
    yield made(policy, x=(2, 17, 4, 5), z=ints(6, 8), opset=18)
    for kind in ("GlobalLpPool", "GlobalAveragePool", "GlobalMaxPool"):
        yield made(f"y = {kind} (x)", x=x)
        yield made(f"y = {kind} (x)", x=(3, 16, 5))
    for kind in ("MaxPool", "AveragePool", "LpPool"):
        yield made(f"y = {kind} <kernel_shape=[2,2], strides=[2,2]> (x)", x=x, opset=8)
        yield made(f"y = {kind} <kernel_shape=[3,3], pads=[1,1,1,1]> (x)", x=x, opset=7)
        yield made(f'y = {kind} <kernel_shape=[2,2], auto_pad="SAME_LOWER"> (x)', x=(3, 5, 5, 3), opset=10)
        yield made(f"y = {kind} <kernel_shape=[3], strides=[2]> (x)", x=(3, 17, 7), opset=11)
        yield made(f"y = {kind} <kernel_shape=[2,1,2]> (x)", x=(1, 5, 3, 3, 3))
    for kind in ("MaxPool", "AveragePool"):
        yield made(f"y = {kind} <kernel_shape=[3,3], strides=[2,2], ceil_mode=1> (x)", x=x)
    yield made("y = AveragePool <kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1> (x)", x=x)
    yield made("y = MaxPool <kernel_shape=[2,2], dilations=[2,2]> (x)", x=x)
    yield made("y, i = MaxPool <kernel_shape=[2,2]> (x)", x=x, types=(onnx.TensorProto.FLOAT, onnx.TensorProto.INT64))


@family
def _normalizations() -> Iterator[Sample]:
    x, c = (3, 17, 2, 2), (17,)
    var = np.abs(random(c, "var")) + 0.1
    for opset in (7, 9, 14):
        yield made("y = BatchNormalization (x, s, b, m, v)", x=x, s=c, b=c, m=c, v=var, opset=opset)
        yield made("y = BatchNormalization (x, s, b, m, v)", x=(3, 17), s=c, b=c, m=c, v=var, opset=opset)
    yield made("y = InstanceNormalization (x, s, b)", x=x, s=c, b=c)
    yield made("y = InstanceNormalization <epsilon=0.0> (x, s, b)", x=(3, 17, 5), s=c, b=c)
    yield made("y = LRN <size=3> (x)", x=x)
    yield made("y = LRN <size=3, bias=0.0> (x)", x=x)
    yield made("y = LayerNormalization (x, s, b)", x=(3, 5, 17), s=c, b=c)
    yield made("y = LayerNormalization (x, s)", x=(2, 4, 5, 17), s=(1, 17))
    yield made("y = LayerNormalization <axis=2, epsilon=0.0> (x, s)", x=(2, 5, 4, 6), s=(4, 6))
    yield made("y = RMSNormalization (x, s)", x=(3, 5, 17), s=c, opset=23)
    text = "y = {}GroupNormalization <num_groups=4, epsilon=0.01> (x, s, b)"
    exported = """<domain: "layoutopt", opset_import: ["" : 21]> GroupNormalization <num_groups, epsilon> (x, s, b) => (y) {
        y = GroupNormalization <num_groups: int = @num_groups, epsilon: float = @epsilon> (x, s, b)
    }"""
    for domain, function in (("", ""), ("layoutopt.", exported)):
        for shape in ((3, 16, 2, 2), (2, 32, 5), (1, 8, 2, 3, 2)):
            c = (shape[1],)
            yield made(text.format(domain), x=shape, s=c, b=c, opset=21, function=function)
