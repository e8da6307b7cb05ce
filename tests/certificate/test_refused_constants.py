"""Results with other constants, initializers or extents than their originals: the checker refuses their certificates."""

import numpy as np
import onnx
import pytest
from attacks import assert_refused, floats, model, weights
from onnx import helper, numpy_helper

# Constants


def added(*numbers: float) -> onnx.ModelProto:
    nodes = " ".join(f"h{k + 1} = Add(h{k}, c{k})" for k in range(len(numbers)))
    constants = {f"c{k}": floats(number) for k, number in enumerate(numbers)}
    return model("float[4] h0", "float[4] y", f"{nodes} y = Relu(h{len(numbers)})", **constants)


def test_infinite_constant() -> None:
    assert_refused(added(1.0), added(np.inf))


def test_cancelling_constants_hide_the_input() -> None:
    assert_refused(added(0.0), added(1e10, -1e10))


def test_cancelling_constants_hide_a_difference() -> None:
    assert_refused(added(5.0), added(5.0 + 2**30, -(2.0**30) + 500))


def test_cancelling_filters() -> None:
    w, big = weights(2, 2, 3, 3), np.full((2, 2, 3, 3), 2.0**30, np.float32)
    shape = "float[1,2,5,5] x", "float[1,2,3,3] y"
    original = model(*shape, "y = Conv(x, w)", w=w)
    nodes = "a = Conv(x, w) b = Conv(x, v) c = Conv(x, u) d = Add(a, b) y = Add(d, c)"
    assert_refused(original, model(*shape, nodes, w=w, v=big, u=-big))


def test_products_out_of_range() -> None:
    shape = "float[4] x", "float[4] y"
    nodes = "a = Mul(x, c) b = Mul(a, c) d = Mul(b, e) y = Mul(d, e)"
    assert_refused(model(*shape, "y = Identity(x)"), model(*shape, nodes, c=floats(2.0**100), e=floats(2.0**-100)))


def test_infinite_scale_of_filters() -> None:
    shape, w = ("float[1,2,1,1] x", "float[1,1,1,1] y"), floats(1, -1).reshape(1, 2, 1, 1)
    original = model(*shape, "h = Conv(x, w) y = Mul(h, c)", w=w, c=floats(np.inf))
    assert_refused(original, model(*shape, "y = Conv(x, w)", w=w * np.float32(np.inf)))


def test_number_beyond_float16() -> None:
    shape = "float16[2] x", "float16[2] y"
    original = model(*shape, "k = Cast<to=10>(c) y = Mul(x, k)", c=[70000])
    result = model(*shape, "h = Mul(x, c) y = Mul(h, d)", c=np.float16([35000]), d=np.float16([2]))
    assert_refused(original, result)


def test_other_weight_in_bfloat16() -> None:
    def scaled(factor: float) -> onnx.ModelProto:
        message = model("float[4] x", "float[4] y", "h = Cast<to=16>(x) k = Mul(h, c) y = Cast<to=1>(k)")
        message.graph.initializer.append(helper.make_tensor("c", onnx.TensorProto.BFLOAT16, [1], [factor]))
        return message

    assert_refused(scaled(1.5), scaled(1.578125))


def test_comparison_of_rounded_constants() -> None:
    shape = "float[4] x, float[4] w", "float[4] y"
    nodes = "s = Add(a, b) e = Equal(s, o) y = Where(e, x, w)"  # 1 + 2^-25 is 1 in float32
    original = model(*shape, nodes, a=floats(1), b=floats(2**-25), o=floats(1))
    assert_refused(original, model(*shape, "y = Where(n, x, w)", n=np.array([False])))


def test_large_integers() -> None:
    def combined(factor: int) -> onnx.ModelProto:
        nodes = "a = Mul(x, two) b = Mul(y, k) c = Add(a, b) o = Mul(c, z)"
        return model("int64[1] x, int64[1] y, int64[1] z", "int64[1] o", nodes, two=[2], k=[factor])

    assert_refused(combined(2**60), combined(2**60 + 2))


# Inputs and initializers


def test_initializer_that_a_user_can_override() -> None:
    def summed(name: str) -> onnx.ModelProto:
        return model("float[4] x, float[1] w", "float[4] y", f"y = Add(x, {name})", w=floats(1), c=floats(1))

    assert_refused(summed("w"), summed("c"))


def test_sparse_initializer_of_the_same_name() -> None:
    result = added(1.0)
    sparse = result.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(floats(7), "c0"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.asarray([0]), "i"))
    sparse.dims.append(1)
    assert_refused(added(1.0), result)


# Extents


@pytest.mark.parametrize("name", ["4", "\u00b2", "N*\u00b2"])
def test_names_of_extents_that_are_numbers(name: str) -> None:
    def flattened(extent: int) -> onnx.ModelProto:
        nodes = "h = Reshape(x, s) y = ReduceSum<keepdims=0>(h, a)"
        message = model("float[A,3] x", "float y", nodes, s=[extent], a=[0])
        message.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
        return message

    assert_refused(flattened(-1), flattened(12))


def test_name_of_an_extent_that_is_a_product() -> None:
    def flattened(extent: int) -> onnx.ModelProto:
        nodes = "h = Reshape(x, s) y = ReduceSum<keepdims=0>(h, a)"
        message = model("float[A,3] x", "float[3] y", nodes, s=[-1, extent, 3], a=[0, 1])
        message.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N*2"
        return message

    assert_refused(flattened(1), flattened(2))
