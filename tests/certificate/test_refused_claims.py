"""Results whose blocks, lemmas or tested claims do not hold: the checker refuses their certificates."""

import numpy as np
import onnx
import pytest
from attacks import accepted, assert_refused, floats, model, weights

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.check import Claim
from layoutopt.errors import LayoutoptError

# Arrays in blocks


def test_concatenated_rows_of_blocks() -> None:
    shape = "float[1,8,4,4] x", "float[1,8,8,4] y"
    nodes = "p = Reshape(x, s) q = Transpose<perm=[0,1,3,4,2]>(p) b = Concat<axis=2>(q, q)"
    back = "t = Transpose<perm=[0,1,4,2,3]>(b) y = Reshape(t, u)"
    original = model(*shape, f"{nodes} {back}", s=[1, 1, 8, 4, 4], u=[1, 8, 8, 4])
    nodes = "a = com.microsoft.nchwc.ReorderInput(x) b = Concat<axis=2>(a, a)"
    assert_refused(original, model(*shape, f"{nodes} y = com.microsoft.nchwc.ReorderOutput<channels=8>(b)"))


def test_broadcast_over_blocks() -> None:
    shape, rows = ("float[1,16,16,4] x", "float[1,16,16,4] y"), weights(16, 1, 1)
    nodes = (
        "a = com.microsoft.nchwc.ReorderInput(x) b = Add(a, c) y = com.microsoft.nchwc.ReorderOutput<channels=16>(b)"
    )
    assert_refused(model(*shape, "y = Add(x, c)", c=rows.reshape(16, 1)), model(*shape, nodes, c=rows))


def test_reshape_that_copies_extents_of_blocks() -> None:
    shape = "float[1,16,2,2] x", "float[1,2,1] y"
    nodes = "p = Reshape(x, s) q = Transpose<perm=[0,1,3,4,2]>(p) u = Reshape(q, t) y = ReduceSum(u, ax)"
    original = model(*shape, nodes, s=[1, 2, 8, 2, 2], t=[1, 2, 32], ax=[2])
    nodes = "a = com.microsoft.nchwc.ReorderInput(x) b = Reshape(a, t) y = ReduceSum(b, ax)"
    assert_refused(original, model(*shape, nodes, t=[0, 0, -1], ax=[2]))


def test_block_of_no_machine() -> None:
    shape, w = ("float[1,16,5,5] x", "float[1,16,5,5] y"), weights(16, 16, 1, 1)
    nodes = "a = com.microsoft.nchwc.Conv(x, w) y = com.microsoft.nchwc.ReorderOutput<channels=16>(a)"
    assert_refused(model(*shape, "y = Conv(x, w)", w=w), model(*shape, nodes, w=w), block=1)


# Lemmas


def test_phase_that_is_broadcast() -> None:
    def phases(taps: int) -> onnx.ModelProto:
        own, other = np.zeros((1, 1, taps, 1), np.float32), np.zeros((1, 1, 2, 1), np.float32)
        own[0, 0, 1], other[0, 0, 1] = 3, 3
        strided = "Conv<strides=[2,1]>"
        nodes = f"a = {strided}(x, w) b = {strided}(z, w) p = Add(a, b) c = {strided}(x, u) d = {strided}(z, v) q = Add(c, d)"
        shape = "float[1,1,4,1] x, float[1,1,4,1] z", "float[1,2,2,1] y"
        return model(
            *shape, f"{nodes} y = Concat<axis=1>(p, q)", w=np.full((1, 1, 1, 1), 3, np.float32), u=own, v=other
        )

    assert_refused(phases(2), phases(4))


# Tested claims


def test_tested_value_of_another_shape() -> None:
    original = model("float[2,3] x", "float[3,2] y", "h = Relu(x) y = Transpose(h)")
    result = model("float[2,3] x", "float[3,2] y", "q = Relu(x) h = Reshape(q, s) y = Transpose(h)", s=[3, 2])
    claims = [Claim("h", "h", maps.identity((2, 3)), is_tested=True), Claim.identity("y", (3, 2))]
    assert_refused(original, result, claims)


def test_tested_value_of_another_type() -> None:
    original = model("float[2,3] x", "float[2,3] y", "h = Relu(x) y = Mul(h, c)", c=floats(3))
    nodes = "q = Relu(x) h = Cast<to=10>(q) y = Mul(h, c)"
    result = model("float[2,3] x", "float16[2,3] y", nodes, c=np.float16([3]))
    claims = [Claim("h", "h", maps.identity((2, 3)), is_tested=True), Claim.identity("y", (2, 3))]
    assert_refused(original, result, claims)


def test_tested_value_of_another_size() -> None:
    original = model("float[2,3] x", "float[2,3] y", "h = Relu(x) y = Mul(h, c)", c=floats(3))
    result = model("float[2,3] x", "float[2,3] y", "h = Relu(x) k = Concat<axis=0>(h, h) y = Mul(h, c)", c=floats(3))
    claims = [Claim("k", "h", maps.identity((2, 3)), is_tested=True), Claim.identity("y", (2, 3))]
    assert_refused(original, result, claims)


# Models that break assumptions of rules


def _shift() -> onnx.ModelProto:
    nodes = "h = Add(x, t) q = Transpose<perm=[0,1,4,2,3]>(h) u = Reshape(q, s) y = Conv(u, w)"
    shift, w = floats(1, 2).reshape(1, 2, 1, 1, 1), weights(4, 4, 1, 1)
    return model("float[1,2,3,3,2] x", "float[1,4,3,3] y", nodes, t=shift, s=[1, 4, 3, 3], w=w)


UNUSUAL = {
    "identity matrix": lambda: model("float[2,3] x", "float[2,3] y", "h = EyeLike<dtype=1>(x) y = Add(x, h)"),
    "shift of blocks": _shift,
    "quantized constant": lambda: model(
        "float[3] x", "float[3] y", "h = DequantizeLinear(q, s) y = Add(x, h)", q=np.uint8([1, 2, 3]), s=np.float32(0.5)
    ),
    "one hot": lambda: model(
        "float[3] x", "float[1,3] y", "h = OneHot(k, d, v) y = Add(x, h)", k=[0], d=[3], v=floats(0, 1)
    ),
    "symbolic channels": lambda: model(
        "float[1,C,3,3] x", "float[1,D,3,3] y", "y = com.microsoft.nchwc.ReorderInput(x)"
    ),
    "no element": lambda: model("float[3] x", "float[3] y", "h = Gather(c, k) y = Add(x, h)", c=floats(1), k=[5]),
    "cycle": lambda: model("float[3] x", "float[3] y", "y = Relu(z) z = Relu(y)"),
    "long chain": lambda: model(
        "float[3] h0", "float[3] y", " ".join(f"h{k + 1} = Relu(h{k})" for k in range(1500)) + " y = Relu(h1500)"
    ),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_models_have_a_verdict_or_one_line(name: str) -> None:
    try:
        verdict = accepted(UNUSUAL[name](), UNUSUAL[name]())
    except LayoutoptError as fault:
        assert "\n" not in str(fault)
    else:
        assert not verdict.tested_nodes
