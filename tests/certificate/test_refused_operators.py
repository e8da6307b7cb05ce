"""Results with operators, bodies or functions that compute something else: the checker refuses their certificates."""

import numpy as np
import onnx
import pytest
from attacks import assert_refused, floats, model, weights
from onnx import parser

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


def test_body_with_another_outer_value() -> None:
    def chosen(outer: str) -> onnx.ModelProto:
        bodies = (
            "<then_branch = a () => (float[3] t) { t = Relu(h) }, else_branch = b () => (float[3] e) { e = Neg(h) }>"
        )
        return model("float[3] x, bool c", "float[3] y", f"h = {outer}(x) y = If (c) {bodies}")

    assert_refused(chosen("Exp"), chosen("Sigmoid"))


# Bodies and functions


def test_name_that_a_body_has_for_its_own_value() -> None:
    def chosen(operand: str) -> onnx.ModelProto:
        then = "a () => (float[3] t) { q = Floor(k) t = Add(q, h) }"
        bodies = f"<then_branch = {then}, else_branch = b () => (float[3] e) {{ e = Neg(h) }}>"
        message = model("float[3] x, bool c", "float[3] y", f"k = Exp(x) h = Neg(x) y = If (c) {bodies}")
        body = next(each.g for each in message.graph.node[2].attribute if each.name == "then_branch")
        body.node[0].output[0] = "captured 0"
        body.node[1].input[0] = operand
        return message

    assert_refused(chosen("captured 0"), chosen("k"))


def called(op: str, domain: str, name: str, call: str, version: int = 17) -> onnx.ModelProto:
    """A model that calls a function of its own."""
    imports = f'"" : 17, "com.microsoft" : 1, "{domain or "local"}" : 1'
    function = f'<domain: "local", opset_import: ["" : {version}]> {name} (a) => (b) {{ b = {op}(a) }}'
    message = parser.parse_model(
        f"<ir_version: 8, opset_import: [{imports}]> g (float[3] x, bool c) => (float[3] y) {{ h = Exp(x) {call} }} {function}"
    )
    message.functions[0].domain = domain
    return message


@pytest.mark.parametrize(("domain", "name"), [("", "Relu"), ("com.microsoft", "Gelu")])
def test_function_with_the_name_of_an_operator(domain: str, name: str) -> None:
    original = called("Neg", domain, name, f"y = {domain + '.' if domain else ''}{name}(h)")
    assert_refused(original, model("float[3] x, bool c", "float[3] y", "h = Exp(x) y = Neg(h)"))


def test_function_that_is_called_in_a_body() -> None:
    bodies = (
        "<then_branch = s () => (float[3] t) { t = local.F(h) }, else_branch = r () => (float[3] e) { e = Relu(h) }>"
    )
    assert_refused(*(called(op, "local", "F", f"y = If (c) {bodies}", 13) for op in ("Neg", "Abs")))


def test_loop_over_blocks() -> None:
    def maxima(nodes: str) -> onnx.ModelProto:
        steps = "d = Identity(c) w = Identity(v) p = Softmax<axis=2>(v) q = ReduceMax<keepdims=0>(p) t = Add(s, q)"
        body = f"b (int64 i, bool c, float[] v, float s) => (bool d, float[] w, float t) {{ {steps} }}"
        loop = f"vf, y = Loop(m, go, first, z) <body = {body}>"
        scalars = {"m": np.int64(2), "go": np.bool_(True), "z": np.float32(0)}
        arrays = {name: np.asarray(number) for name, number in scalars.items()}
        message = model("float[1,8,4,4] x", "float y", f"{nodes} {loop}", s5=[1, 1, 8, 4, 4], **arrays)
        graph = message.graph.node[-1].attribute[0].g
        for value in (graph.input[2], graph.output[1]):
            value.type.tensor_type.ClearField("shape")
        return message

    original = maxima("p = Reshape(x, s5) first = Transpose<perm=[0,1,3,4,2]>(p)")
    assert_refused(original, maxima("first = com.microsoft.nchwc.ReorderInput(x)"))


def test_random_numbers_of_two_bodies() -> None:
    def difference(second: str) -> onnx.ModelProto:
        draw = "RandomNormal<shape=[3]>()"
        body = f"<then_branch = a () => (float[3] t) {{ t = {draw} }}, else_branch = b () => (float[3] e) {{ e = {draw} }}>"
        nodes = f"h = If (c) {body} k = If (c) {body} d = Sub(h, {second}) y = Add(x, d)"
        return model("float[3] x, bool c", "float[3] y", nodes)

    assert_refused(difference("k"), difference("h"))


def test_first_rows_of_one_row_that_is_broadcast() -> None:
    shape, w, v = ("float[1,2,3,3] x, float[1,2,3,1] z", "float[1,2,2,1] y"), weights(2, 2, 3, 3), weights(2, 2, 3, 1)
    nodes = "a = Conv(x, w) b = Conv<pads=[0,0,2,0]>(z, v) s = Add(a, b) y = Slice(s, f, e, ax)"
    original = model(*shape, nodes, w=w, v=v, f=[0], e=[2], ax=[2])
    nodes = "a = Conv<pads=[0,0,1,0]>(x, w) b = Conv<pads=[0,0,1,0]>(z, v) y = Add(a, b)"
    assert_refused(original, model(*shape, nodes, w=w, v=v))
