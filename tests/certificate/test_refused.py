"""Results that do not compute what their originals compute: the checker refuses every certificate of them.

Certificates are made as an attacker makes them: claims that the checker itself would accept, with the lemmas that it would use.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.check import Context, Verdict, check, prove
from layoutopt.certificate.checker.model import of_message
from layoutopt.certificate.checker.schema import Certificate, Claim
from layoutopt.errors import LayoutoptError

HEAD = '<ir_version: 8, opset_import: ["" : {}, "com.microsoft" : 1, "com.microsoft.nchwc" : 1]>'
RANDOM = np.random.default_rng(0)


def model(inputs: str, outputs: str, nodes: str, opset: int = 17, **arrays: Any) -> onnx.ModelProto:
    """A model with these initializers; lists of numbers are int64."""
    message = parser.parse_model(f"{HEAD.format(opset)} graph ({inputs}) => ({outputs}) {{ {nodes} }}")
    for name, array in arrays.items():
        message.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return message


def floats(*numbers: float) -> np.ndarray[Any, Any]:
    return np.asarray(numbers, np.float32)


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=shape).astype(np.float32)


def accepted(
    original: onnx.ModelProto, result: onnx.ModelProto, claims: Sequence[Claim] = (), block: int = 8
) -> Verdict:
    """The verdict on the claims, by default that every output is that of the original, with the lemmas of their proofs."""
    first, second = of_message(original), of_message(result)
    context = Context(first, second, block)
    for name in second.inputs:
        context.accept(Claim.identity(name, first.types[name][0]))
    found = []
    for claim in claims or [Claim.identity(name, first.types[name][0]) for name in second.outputs]:
        with suppress(Exception):  # the checker is to say so
            claim = claim if claim.is_tested else replace(claim, lemmas=prove(context, claim).lemmas)
        context.accept(claim)
        found.append(claim)
    return check(Certificate(first.digest, second.digest, block, tuple(found)), first, second)


def assert_refused(
    original: onnx.ModelProto, result: onnx.ModelProto, claims: Sequence[Claim] = (), block: int = 8
) -> None:
    """Assert that the certificate is refused in one line."""
    with pytest.raises(LayoutoptError) as caught:
        accepted(original, result, claims, block)
    assert "\n" not in str(caught.value)


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


def test_guard_of_an_input_is_left_out_by_name() -> None:
    shape = "float[4] x", "float[4] y"
    original = model(*shape, "n = IsNaN(x) y = Where(n, z, x)", z=floats(0))
    assert set(accepted(original, model(*shape, "y = Identity(x)")).lemmas) == {"no-nan"}  # for finite inputs


def test_guard_of_a_masked_row_is_left_out_by_name() -> None:
    shape = "float[1,4] x", "float[1,4] y"
    original = model(*shape, "s = Softmax(x) n = IsNaN(s) y = Where(n, z, s)", z=floats(0))
    assert set(accepted(original, model(*shape, "y = Softmax(x)")).lemmas) == {"no-nan"}  # not for a row of -inf


def test_body_with_another_outer_value() -> None:
    def chosen(outer: str) -> onnx.ModelProto:
        bodies = (
            "<then_branch = a () => (float[3] t) { t = Relu(h) }, else_branch = b () => (float[3] e) { e = Neg(h) }>"
        )
        return model("float[3] x, bool c", "float[3] y", f"h = {outer}(x) y = If (c) {bodies}")

    assert_refused(chosen("Exp"), chosen("Sigmoid"))


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


# Extents


def test_negative_extents() -> None:
    def flattened(extent: int) -> onnx.ModelProto:
        nodes = "h = Reshape(x, s) y = ReduceSum<keepdims=0>(h, a)"
        message = model("float[A,B] x", "float y", nodes, s=[extent], a=[0])
        for dim in message.graph.input[0].type.tensor_type.shape.dim:
            dim.dim_value = -1
        return message

    assert_refused(flattened(-1), flattened(1))


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


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_sums_and_products_that_double(op: str) -> None:
    nodes = " ".join(f"h{k + 1} = {op}(h{k}, h{k})" for k in range(40)) + " y = Relu(h40)"
    doubled = model("float[3] h0", "float[3] y", nodes)
    assert_refused(doubled, doubled)
