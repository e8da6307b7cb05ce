"""Results with operators, constants, initializers or extents that compute something else: their certificates are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from attacks import assert_refused, floats, model, weights
from onnx import helper, numpy_helper

Pair = tuple[onnx.ModelProto, onnx.ModelProto]
X, Y, Z = ("float[4] x", "float[4] y"), ("float[4] x", "float y"), ("float[4] x, float[4] w", "float[4] y")


def pair(shape: tuple[str, str], nodes: str, first: Any, second: Any, opset: int = 17) -> Pair:
    """The nodes with one set of constants, and with another."""
    return model(*shape, nodes, opset, **first), model(*shape, nodes, opset, **second)


def recurrent(outputs: list[str]) -> onnx.ModelProto:
    nodes = "h = LSTM<hidden_size=2>(x, w, r) y = Reshape(h, s)"
    w, r = np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)
    message = model("float[1,2,3] x", "float[4] y", nodes, w=w, r=r, s=[-1])
    message.graph.node[0].output[:] = outputs
    return message


def extent(axis: int) -> onnx.ModelProto:
    nodes = f"h = Shape<start={axis}, end={axis + 1}>(x) y = ReduceMax<keepdims=0>(h)"
    return model("float[N,M] x", "int64 y", nodes)


def added(*numbers: float) -> onnx.ModelProto:
    nodes = " ".join(f"h{k + 1} = Add(h{k}, c{k})" for k in range(len(numbers)))
    constants = {f"c{k}": floats(number) for k, number in enumerate(numbers)}
    return model("float[4] h0", "float[4] y", f"{nodes} y = Relu(h{len(numbers)})", **constants)


def first_rows_of_one_row_that_is_broadcast() -> Pair:
    shape, w, v = ("float[1,2,3,3] x, float[1,2,3,1] z", "float[1,2,2,1] y"), weights(2, 2, 3, 3), weights(2, 2, 3, 1)
    nodes = "a = Conv(x, w) b = Conv<pads=[0,0,2,0]>(z, v) s = Add(a, b) y = Slice(s, f, e, ax)"
    original = model(*shape, nodes, w=w, v=v, f=[0], e=[2], ax=[2])
    nodes = "a = Conv<pads=[0,0,1,0]>(x, w) b = Conv<pads=[0,0,1,0]>(z, v) y = Add(a, b)"
    return original, model(*shape, nodes, w=w, v=v)


def cancelling_filters() -> Pair:
    w, big = weights(2, 2, 3, 3), np.full((2, 2, 3, 3), 2.0**30, np.float32)
    shape = "float[1,2,5,5] x", "float[1,2,3,3] y"
    nodes = "a = Conv(x, w) b = Conv(x, v) c = Conv(x, u) d = Add(a, b) y = Add(d, c)"
    return model(*shape, "y = Conv(x, w)", w=w), model(*shape, nodes, w=w, v=big, u=-big)


def infinite_scale_of_filters() -> Pair:
    shape, w = ("float[1,2,1,1] x", "float[1,1,1,1] y"), floats(1, -1).reshape(1, 2, 1, 1)
    original = model(*shape, "h = Conv(x, w) y = Mul(h, c)", w=w, c=floats(np.inf))
    return original, model(*shape, "y = Conv(x, w)", w=w * np.float32(np.inf))


def number_beyond_float16() -> Pair:
    shape = "float16[2] x", "float16[2] y"
    original = model(*shape, "k = Cast<to=10>(c) y = Mul(x, k)", c=[70000])
    return original, model(*shape, "h = Mul(x, c) y = Mul(h, d)", c=np.float16([35000]), d=np.float16([2]))


def scaled_in_bfloat16(factor: float) -> onnx.ModelProto:
    message = model("float[4] x", "float[4] y", "h = Cast<to=16>(x) k = Mul(h, c) y = Cast<to=1>(k)")
    message.graph.initializer.append(helper.make_tensor("c", onnx.TensorProto.BFLOAT16, [1], [factor]))
    return message


def large_integers() -> Pair:
    nodes, shape = "a = Mul(x, t) b = Mul(y, k) c = Add(a, b) o = Mul(c, z)", "int64[1] x, int64[1] y, int64[1] z"
    return pair((shape, "int64[1] o"), nodes, {"t": [2], "k": [2**60]}, {"t": [2], "k": [2**60 + 2]})


def initializer_that_a_user_can_override(name: str) -> onnx.ModelProto:
    return model("float[4] x, float[1] w", "float[4] y", f"y = Add(x, {name})", w=floats(1), c=floats(1))


def sparse_initializer_of_the_same_name() -> Pair:
    result = added(1.0)
    sparse = result.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(floats(7), "c0"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.asarray([0]), "i"))
    sparse.dims.append(1)
    return added(1.0), result


def flattened(name: str, target: list[int], axes: list[int]) -> onnx.ModelProto:
    """A sum over axes of an image whose first extent has a name."""
    y = "float y" if len(axes) == len(target) else "float[3] y"
    nodes = "h = Reshape(x, s) y = ReduceSum<keepdims=0>(h, a)"
    message = model("float[A,3] x", y, nodes, s=target, a=axes)
    message.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    return message


SUM, SUM_OF_SLICE = "ReduceSum<keepdims=0, axes=[0]>", "h = Slice(x, b, e) y = ReduceSum<keepdims=0>(h)"
GUARDED = "h = Log(x) n = IsNaN(h) y = Where(n, z, h)"
SQUARE = "h = Mul(x, x) y = ReduceSum<keepdims=0>(h)"
PRODUCTS = "a = Mul(x, c) b = Mul(a, c) d = Mul(b, e) y = Mul(d, e)"
ROUNDED = "s = Add(a, b) e = Equal(s, o) y = Where(e, x, w)"  # 1 + 2^-25 is 1 in float32
RESULTS: dict[str, Callable[[], Pair]] = {
    "second output": lambda: (recurrent(["", "h", ""]), recurrent(["", "", "h"])),
    "third output": lambda: (recurrent(["", "h"]), recurrent(["", "", "h"])),
    "part of a shape": lambda: (extent(0), extent(1)),
    **{
        f"slice to {end} is empty": lambda end=end: pair(Y, SUM_OF_SLICE, {"b": [0], "e": [end]}, {"b": [0], "e": [4]})
        for end in (-(2**31), -(2**63))
    },
    "squeeze of an extent that can be 1": lambda: (
        model("float[N,4] x", "float[4] y", f"h = Squeeze(x) y = {SUM}(h)", 12),
        model("float[N,4] x", "float[4] y", f"y = {SUM}(x)", 12),
    ),
    "power that broadcasts": lambda: (
        model(*Y, "h = Pow(x, c) y = ReduceSum<keepdims=0>(h)", c=np.full((2, 4), 2, np.float32)),
        model(*Y, SQUARE),
    ),
    **{
        f"{op} over no axis": lambda op=op: (
            model(*X, f"y = {op}<noop_with_empty_axes=1>(x)", 18),
            model(*X, "y = Identity(x)", 18),
        )
        for op in ("ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
    },
    "no guard against nan": lambda: (model(*X, GUARDED, z=floats(0)), model(*X, "y = Log(x)")),
    "first rows of one row that is broadcast": first_rows_of_one_row_that_is_broadcast,
    "infinite constant": lambda: (added(1.0), added(np.inf)),
    "cancelling constants hide the input": lambda: (added(0.0), added(1e10, -1e10)),
    "cancelling constants hide a difference": lambda: (added(5.0), added(5.0 + 2**30, -(2.0**30) + 500)),
    "cancelling filters": cancelling_filters,
    "products out of range": lambda: (
        model(*X, "y = Identity(x)"),
        model(*X, PRODUCTS, c=floats(2.0**100), e=floats(2.0**-100)),
    ),
    "infinite scale of filters": infinite_scale_of_filters,
    "number beyond float16": number_beyond_float16,
    "other weight in bfloat16": lambda: (scaled_in_bfloat16(1.5), scaled_in_bfloat16(1.578125)),
    "comparison of rounded constants": lambda: (
        model(*Z, ROUNDED, a=floats(1), b=floats(2**-25), o=floats(1)),
        model(*Z, "y = Where(n, x, w)", n=np.array([False])),
    ),
    "large integers": large_integers,
    "initializer that a user can override": lambda: (
        initializer_that_a_user_can_override("w"),
        initializer_that_a_user_can_override("c"),
    ),
    "sparse initializer of the same name": sparse_initializer_of_the_same_name,
    **{
        f"extent of the name {name}": lambda name=name: (flattened(name, [-1], [0]), flattened(name, [12], [0]))
        for name in ("4", "\u00b2", "N*\u00b2")
    },
    "extent whose name is a product": lambda: (
        flattened("N*2", [-1, 1, 3], [0, 1]),
        flattened("N*2", [-1, 2, 3], [0, 1]),
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_another_result_is_refused(name: str) -> None:
    assert_refused(*RESULTS[name]())
