"""Models with parts that the checker does not model: they are refused in one line, also if both are the same."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from attacks import accepted, assert_refused, floats, model
from onnx import helper, numpy_helper, parser

from layoutopt.certificate.checker.model import of_message
from layoutopt.errors import CertificateError

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


def changed(change: Callable[[Model], None], build: Callable[[], Model] = relu) -> Callable[[], Model]:
    def build_changed() -> Model:
        message = build()
        change(message)
        return message

    return build_changed


def attribute_twice(message: Model) -> None:
    message.graph.node[1].op_type = "LeakyRelu"
    message.graph.node[1].attribute.extend(helper.make_attribute("alpha", each) for each in (0.5, 0.25))


def constant_twice(message: Model) -> None:
    message.graph.initializer.append(numpy_helper.from_array(floats(4, 3, 2, 1), "c"))


def damaged(message: Model) -> None:
    tensor = message.graph.initializer[0]
    tensor.raw_data = tensor.raw_data[:-1]


def negative_extent(message: Model) -> None:
    message.graph.initializer[0].dims[0] = -4


def no_elements(message: Model) -> None:
    for value in (*message.graph.input, *message.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 0


def training(message: Model) -> None:
    message.training_info.add()


def contradicting_type(message: Model) -> None:
    message.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64


def attribute_of_another_type(message: Model) -> None:
    message.graph.node[1].op_type = "LeakyRelu"
    message.graph.node[1].attribute.append(helper.make_attribute("alpha", 1))


def untyped_value(message: Model) -> None:
    message.graph.value_info.append(helper.make_tensor_value_info("h", onnx.TensorProto.UNDEFINED, [4]))


def two_opsets(message: Model) -> None:
    message.opset_import.append(helper.make_opsetid("ai.onnx", 11))


UNMODELLED: dict[str, Callable[[], Model]] = {
    "function": with_function,
    "function with a default": lambda: with_function(default=True),
    "function of the name of a domain": lambda: with_function("ai.onnx.ml"),
    "bodies": with_bodies,
    "foreign operator": foreign_operator,
    "attribute twice": changed(attribute_twice),
    "constant twice": changed(constant_twice),
    "damaged data": changed(damaged),
    "negative extent": changed(negative_extent),
    "no elements": changed(no_elements),
    "training": changed(training),
    "contradicting type": changed(contradicting_type),
    "attribute of another type": changed(attribute_of_another_type),
    "untyped value": changed(untyped_value),
    "two opsets": changed(two_opsets),
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
        of_message(changed(damaged)())


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


def test_a_default_is_compared() -> None:
    assert not accepted(with_default(1), with_default(1)).tested
    for other in ((2,), ()):
        assert_refused(with_default(1), with_default(*other))
    assert_refused(with_default(0.0), with_default(-0.0))


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
