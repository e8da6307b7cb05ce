"""Results with operators, bodies or functions that compute something else: the checker refuses their certificates."""

import numpy as np
import onnx
import pytest
from attacks import assert_refused, floats, model, weights

# Operators


@pytest.mark.parametrize(("first", "second"), [(["", "h", ""], ["", "", "h"]), (["", "h"], ["", "", "h"])])
def test_omitted_outputs(first: list[str], second: list[str]) -> None:
    def recurrent(outputs: list[str]) -> onnx.ModelProto:
        nodes = "h = LSTM<hidden_size=2>(x, w, r) y = Reshape(h, s)"
        w, r = np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)
        message = model("float[1,2,3] x", "float[4] y", nodes, w=w, r=r, s=[-1])
        message.graph.node[0].output[:] = outputs
        return message

    assert_refused(recurrent(first), recurrent(second))


def test_part_of_a_shape() -> None:
    def extent(axis: int) -> onnx.ModelProto:
        nodes = f"h = Shape<start={axis}, end={axis + 1}>(x) y = ReduceMax<keepdims=0>(h)"
        return model("float[N,M] x", "int64 y", nodes)

    assert_refused(extent(0), extent(1))


@pytest.mark.parametrize("end", [-(2**31), -(2**63)])
def test_slice_that_is_empty(end: int) -> None:
    def summed(stop: int) -> onnx.ModelProto:
        nodes = "h = Slice(x, b, e) y = ReduceSum<keepdims=0>(h)"
        return model("float[4] x", "float y", nodes, b=[0], e=[stop])

    assert_refused(summed(end), summed(4))


def test_squeeze_of_an_extent_that_can_be_1() -> None:
    shape, reduction = ("float[N,4] x", "float[4] y"), "ReduceSum<keepdims=0, axes=[0]>"
    original = model(*shape, f"h = Squeeze(x) y = {reduction}(h)", 12)
    assert_refused(original, model(*shape, f"y = {reduction}(x)", 12))


def test_power_that_broadcasts() -> None:
    shape = "float[4] x", "float y"
    original = model(*shape, "h = Pow(x, c) y = ReduceSum<keepdims=0>(h)", c=np.full((2, 4), 2, np.float32))
    assert_refused(original, model(*shape, "h = Mul(x, x) y = ReduceSum<keepdims=0>(h)"))


@pytest.mark.parametrize("op", ["ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_reduction_over_no_axis(op: str) -> None:
    shape = "float[4] x", "float[4] y"
    original = model(*shape, f"y = {op}<noop_with_empty_axes=1>(x)", 18)
    assert_refused(original, model(*shape, "y = Identity(x)", 18))


def test_guard_against_nan_is_left_out() -> None:
    original = model("float[4] x", "float[4] y", "h = Log(x) n = IsNaN(h) y = Where(n, z, h)", z=floats(0))
    assert_refused(original, model("float[4] x", "float[4] y", "y = Log(x)"))


def test_first_rows_of_one_row_that_is_broadcast() -> None:
    shape, w, v = ("float[1,2,3,3] x, float[1,2,3,1] z", "float[1,2,2,1] y"), weights(2, 2, 3, 3), weights(2, 2, 3, 1)
    nodes = "a = Conv(x, w) b = Conv<pads=[0,0,2,0]>(z, v) s = Add(a, b) y = Slice(s, f, e, ax)"
    original = model(*shape, nodes, w=w, v=v, f=[0], e=[2], ax=[2])
    nodes = "a = Conv<pads=[0,0,1,0]>(x, w) b = Conv<pads=[0,0,1,0]>(z, v) y = Add(a, b)"
    assert_refused(original, model(*shape, nodes, w=w, v=v))
