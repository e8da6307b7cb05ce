"""Results, claims and models that the checker of certificates refuses."""

from collections.abc import Callable, Sequence
from operator import setitem
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from parsed_models import parsed

from layoutopt.certificate.checker.check import Certificate, Claim, Verdict, check
from layoutopt.certificate.checker.model import of_message
from layoutopt.certificate.producer import measure
from layoutopt.errors import CertificateError, LayoutoptError

HEAD = '<ir_version: 8, opset_import: ["" : {}, "com.microsoft" : 1, "com.microsoft.nchwc" : 1]>'
RANDOM = np.random.default_rng(0)


def model(inputs: str, outputs: str, nodes: str, opset: int = 17, **arrays: Any) -> onnx.ModelProto:
    """A model with these initializers; lists of numbers are int64."""
    return parsed(f"{HEAD.format(opset)} graph ({inputs}) => ({outputs}) {{ {nodes} }}", **arrays)


def floats(*numbers: float) -> np.ndarray[Any, Any]:
    return np.asarray(numbers, np.float32)


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=shape).astype(np.float32)


def accepted(
    original: onnx.ModelProto, result: onnx.ModelProto, claims: Sequence[Claim] = (), block: int = 8
) -> Verdict:
    """The verdict on the claims, by default that every output is that of the original."""
    first, second = of_message(original), of_message(result)
    outputs = [Claim.identity(name, first.types.get(name, ((), 1))[0]) for name in second.outputs]
    head = {"layoutopt_version": "0", "certificate": 2, "original": first.digest, "result": second.digest}
    certificate = Certificate(**head, block=block, claims=tuple(claims or outputs))
    verdict = check(certificate, first, second, allow_tested=True)
    measure(first, second, [claim for claim, _ in verdict.tested.values()])
    return verdict


def assert_refused(
    original: onnx.ModelProto, result: onnx.ModelProto, claims: Sequence[Claim] = (), block: int = 8
) -> None:
    """Assert that the certificate is refused in one line."""
    with pytest.raises(LayoutoptError) as caught:
        accepted(original, result, claims, block)
    assert "\n" not in str(caught.value)


# Results whose blocks, lemmas or tested claims do not hold: the checker refuses their certificates. Arrays in blocks:


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


MATRIX = "float[2,3] x"
TESTED = {
    "shape": (
        model(MATRIX, "float[3,2] y", "h = Relu(x) y = Transpose(h)"),
        model(MATRIX, "float[3,2] y", "q = Relu(x) h = Reshape(q, s) y = Transpose(h)", s=[3, 2]),
    ),
    "type": (
        model(MATRIX, "float[2,3] y", "h = Relu(x) y = Mul(h, c)", c=floats(3)),
        model(MATRIX, "float16[2,3] y", "q = Relu(x) h = Cast<to=10>(q) y = Mul(h, c)", c=np.float16([3])),
    ),
    "size": (
        model(MATRIX, "float[2,3] y", "h = Relu(x) y = Mul(h, c)", c=floats(3)),
        model(MATRIX, "float[2,3] y", "q = Relu(x) h = Concat<axis=0>(q, q) y = Mul(q, c)", c=floats(3)),
    ),
}


@pytest.mark.parametrize("another", TESTED)
def test_tested_value_of_another(another: str) -> None:
    original, result = TESTED[another]
    claims = [Claim.identity("h", (2, 3), tested=True)]
    claims.append(Claim.identity("y", (3, 2) if another == "shape" else (2, 3)))
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


# Models with parts that the checker does not model: they are refused in one line, also if both are the same.


Model = onnx.ModelProto
X = "float[4] x", "float[4] y"


def relu() -> Model:
    return model(*X, "h = Add(x, c) y = Relu(h)", c=floats(1, 2, 3, 4))


def with_function(domain: str = "local", default: bool = False) -> Model:
    attribute = "<alpha: float = 0.5>" if default else ""
    body = "b = LeakyRelu<alpha: float = @alpha>(a)" if default else "b = Neg(a)"
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17, "{domain}" : 1]> g (float[4] x) => (float[4] y) {{ y = {domain}.F(x) }}'
        f' <domain: "{domain}", opset_import: ["" : 17]> F {attribute} (a) => (b) {{ {body} }}'
    )


def with_bodies() -> Model:
    bodies = (
        "<else_branch = b () => (float[3] e) { e = Sub(h, k) }, then_branch = a () => (float[3] t) { t = Sub(k, h) }>"
    )
    return model("float[3] x, bool c", "float[3] y", f"h = Exp(x) k = Neg(x) y = If (c) {bodies}")


def foreign_operator() -> Model:
    return parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g (float[4] x) => (float[4] y)'
        " { y = ai.onnx.ml.Scaler<offset = [0.0], scale = [1.0]>(x) }"
    )


def changed(change: Callable[[Model], object], build: Callable[[], Model] = relu) -> Callable[[], Model]:
    def build_changed() -> Model:
        message = build()
        change(message)
        return message

    return build_changed


def attribute_twice(message: Model) -> None:
    message.graph.node[1].op_type = "LeakyRelu"
    message.graph.node[1].attribute.extend(helper.make_attribute("alpha", each) for each in (0.5, 0.25))


def no_elements(message: Model) -> None:
    for value in (*message.graph.input, *message.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 0


def attribute_of_another_type(message: Model) -> None:
    message.graph.node[1].op_type = "LeakyRelu"
    message.graph.node[1].attribute.append(helper.make_attribute("alpha", 1))


def untyped_value(message: Model) -> None:
    message.graph.value_info.append(helper.make_tensor_value_info("h", onnx.TensorProto.UNDEFINED, [4]))


AGAIN = numpy_helper.from_array(floats(4, 3, 2, 1), "c")
damaged = changed(lambda message: setattr(message.graph.initializer[0], "raw_data", bytes(15)))
UNMODELLED: dict[str, Callable[[], Model]] = {
    "function": with_function,
    "function with a default": lambda: with_function(default=True),
    "function of the name of a domain": lambda: with_function("ai.onnx.ml"),
    "bodies": with_bodies,
    "foreign operator": foreign_operator,
    "attribute twice": changed(attribute_twice),
    "constant twice": changed(lambda message: message.graph.initializer.append(AGAIN)),
    "damaged data": damaged,
    "negative extent": changed(lambda message: setitem(message.graph.initializer[0].dims, 0, -4)),
    "no elements": changed(no_elements),
    "training": changed(lambda message: message.training_info.add()),
    "contradicting type": changed(
        lambda message: setattr(message.graph.output[0].type.tensor_type, "elem_type", onnx.TensorProto.INT64)
    ),
    "attribute of another type": changed(attribute_of_another_type),
    "two opsets": changed(lambda message: message.opset_import.append(helper.make_opsetid("ai.onnx", 11))),
    "untyped value": changed(untyped_value),
    "pads and auto_pad": lambda: model(
        "float[1,1,8] x",
        "float[1,1,8] y",
        'y = Conv<auto_pad = "SAME_UPPER", pads = [1, 1]>(x, w)',
        w=np.ones((1, 1, 3), np.float32),
    ),
    "random numbers": lambda: model(*X, "h = RandomNormalLike(x) y = Add(x, h)"),
    "training mode": lambda: model(*X, "y = Dropout(x, r, t)", r=np.float32(0.5), t=np.array(True)),
    "text": lambda: model("string[4] x", "string[4] y", "y = Identity(x)"),
}


@pytest.mark.parametrize("name", [name for name in UNMODELLED if name != "text"])
def test_a_model_with_another_part_is_refused(name: str) -> None:
    assert_refused(UNMODELLED[name](), UNMODELLED[name]())


def test_a_damaged_model_has_the_exit_code_of_certificates() -> None:
    with pytest.raises(CertificateError, match="c: has damaged data"):
        of_message(damaged())


def test_a_wrong_declared_rank_is_not_read() -> None:
    """Shapes are inferred from those of the inputs; those that a model declares for other values are not trusted."""
    message = relu()
    message.graph.value_info.append(helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [2, 2]))
    assert not accepted(message, relu()).tested


# Defaults of inputs


def with_default(*numbers: float) -> Model:
    message = model("float[4] x, float[1] w", "float[4] y", "y = Add(x, w)")
    message.graph.initializer.extend(numpy_helper.from_array(floats(number), "w") for number in numbers)
    return message


def test_an_input_with_a_default_is_refused() -> None:
    for others in ((1,), (2,), ()):
        assert_refused(with_default(1), with_default(*others))


# Arithmetic of floating-point numbers is not exact

ARITHMETIC = {
    "weight as a sum": ("k = Add(big, c) y = Mul(x, k)", "y = Mul(x, c)", {"big": 5e5, "c": -5e5 + 1.45}, {"c": 1.0}),
    "sum that cancels": ("h = Add(x, big) y = Sub(h, big)", "y = Identity(x)", {"big": 5e11}, {}),
    "difference that cancels": (
        "h = Sub(x, big) k = Add(h, c) y = Relu(k)",
        "h = Add(x, c) y = Relu(h)",
        {"big": 5e5, "c": 5e5 + 1.0},
        {"c": 1.0},
    ),
    "mask": (
        "h = Sub(x, big) k = Add(h, big) l = Add(k, c) y = Softmax(l)",
        "h = Add(x, c) y = Softmax(h)",
        {"big": 5e11, "c": 4e5},
        {"c": -1e9},
    ),
    "product that overflows": ("h = Mul(x, c) y = Mul(h, d)", "y = Identity(x)", {"c": 2.0**120, "d": 2.0**-120}, {}),
    "products that overflow": (
        "h = Mul(x, c) k = Mul(h, c) l = Mul(k, d) y = Mul(l, d)",
        "y = Identity(x)",
        {"c": 2.0**16, "d": 2.0**-16},
        {},
    ),
    "product that vanishes": (
        "h = Mul(x, d) k = Mul(h, d) l = Mul(k, c) m = Mul(l, c) y = Relu(m)",
        "y = Relu(x)",
        {"c": 2.0**16, "d": 2.0**-64},
        {},
    ),
    "small sum that is scaled": (
        "h = Mul(x, d) k = Add(h, one) l = Sub(k, one) y = Mul(l, c)",
        "y = Identity(x)",
        {"c": 2.0**16, "d": 2.0**-16, "one": 60.0},
        {},
    ),
    "small sum behind an operator": (
        "h = Mul(x, d) r = Relu(h) k = Add(r, a) l = Sub(k, b) m = ReduceMean(l) n = Sub(l, m) y = Mul(n, c)",
        "h = Mul(x, d) r = Relu(h) l = Add(r, e) m = ReduceMean(l) n = Sub(l, m) y = Mul(n, c)",
        {"c": 1e4, "d": 1e-4, "a": 8.0, "b": 7.99},
        {"c": 1e4, "d": 1e-4, "e": 0.01},
    ),
    "limit of a comparison": (
        "g = Greater(x, c) y = Where(g, x, z)",
        "g = Greater(x, c) y = Where(g, x, z)",
        {"c": 1.0},
        {"c": 1.0000001},
    ),
    "order of a sum": ("h = Add(x, z) k = Sub(h, z) y = Relu(k)", "h = Sub(z, z) k = Add(x, h) y = Relu(k)", {}, {}),
    "minus zero": ("h = Add(x, c) y = Reciprocal(h)", "y = Reciprocal(x)", {"c": 0.0}, {}),
    "sign of zero": ("h = Mul(x, c) y = Reciprocal(h)", "h = Mul(x, c) y = Reciprocal(h)", {"c": 0.0}, {"c": -0.0}),
    "not a number": ("y = Max(x, c)", "y = Identity(x)", {"c": np.nan}, {}),
    "zero times x": ("h = Mul(x, c) y = Add(h, z)", "y = Identity(z)", {"c": 0.0}, {}),
    "clipped": ("y = Relu(x)", "y = Clip(x, c, d)", {}, {"c": 0.0, "d": 10.0}),
    "empty range": ("y = Clip(x, c, d)", "y = Clip(x, d, c)", {"c": 3.0, "d": 1.0}, {"c": 3.0, "d": 1.0}),
    "rounded twice": ("h = Cast<to=10>(x) y = Cast<to=1>(h)", "y = Identity(x)", {}, {}),
    "denormal": ("y = Mul(x, c)", "y = Mul(x, c)", {"c": 1.4e-44}, {"c": 2.8e-44}),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_is_not_exact(name: str) -> None:
    original, result, constants, others = ARITHMETIC[name]
    shape = "float[4] x, float[4] z", "float[4] y"
    assert_refused(
        model(*shape, original, **{key: np.float32(number) for key, number in constants.items()}),
        model(*shape, result, **{key: np.float32(number) for key, number in others.items()}),
    )


def test_a_result_cancels_no_more_than_its_original() -> None:
    """The sum of both constants is that of the original, but rounding loses what the convolution computes."""
    shape, w = ("float[1,1,4,4] x", "float[1,1,4,4] y"), np.ones((1, 1, 1, 1), np.float32)
    original = model(*shape, "h = Conv(x, w) k = Add(h, c) y = Relu(k)", w=w, c=np.float32(0.5))
    nodes = "h = Conv(x, w) k = Add(h, a) l = Add(k, b) y = Relu(l)"
    assert not accepted(original, model(*shape, nodes, w=w, a=np.float32(1), b=np.float32(-0.5))).tested
    assert_refused(original, model(*shape, nodes, w=w, a=np.float32(7.5), b=np.float32(-7)))


def test_integers_that_overflow() -> None:
    shape = "float[2,3] x", "float[6] y"
    nodes = "s = Add(a, b) t = Add(s, b) y = Reshape(x, t)"
    original = model(*shape, nodes, a=[2**62], b=[2**62 + 3])  # 6 + 3 * 2**62, which is no shape
    assert_refused(original, model(*shape, "y = Reshape(x, t)", t=[6]))


def test_a_slice_backwards_is_no_copy() -> None:
    nodes = "y = Slice(x, a, b, c, d)"
    original = model(*X, nodes, a=[-1], b=[-5], c=[0], d=[-1])
    assert_refused(original, model(*X, "y = Identity(x)"))


def test_a_model_of_older_rules_has_no_default() -> None:
    """Before version 4 of ONNX's files, an initializer that is an input too is a constant."""
    original = with_default(1)
    original.ir_version = 3
    assert not accepted(original, model("float[4] x", "float[4] y", "y = Add(x, w)", w=floats(1))).tested


# Results with operators, constants, initializers or extents that compute something else: their certificates are refused.


Pair = tuple[onnx.ModelProto, onnx.ModelProto]
RESULT_X, Y, Z = ("float[4] x", "float[4] y"), ("float[4] x", "float y"), ("float[4] x, float[4] w", "float[4] y")


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
            model(*RESULT_X, f"y = {op}<noop_with_empty_axes=1>(x)", 18),
            model(*RESULT_X, "y = Identity(x)", 18),
        )
        for op in ("ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
    },
    "no guard against nan": lambda: (model(*RESULT_X, GUARDED, z=floats(0)), model(*RESULT_X, "y = Log(x)")),
    "first rows of one row that is broadcast": first_rows_of_one_row_that_is_broadcast,
    "infinite constant": lambda: (added(1.0), added(np.inf)),
    "cancelling constants hide the input": lambda: (added(0.0), added(1e10, -1e10)),
    "cancelling constants hide a difference": lambda: (added(5.0), added(5.0 + 2**30, -(2.0**30) + 500)),
    "cancelling filters": cancelling_filters,
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
