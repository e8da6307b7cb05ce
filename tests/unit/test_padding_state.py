"""Padding transfer functions: cases that must be conservative, and cases that may be precise."""

from collections.abc import Mapping

import numpy as np
import pytest

from layoutopt.formats import Format
from layoutopt.ir.types import ArrayData, Attribute, DType, Op, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops import Inapplicable, rule_of
from layoutopt.ops.base import padding_cases

ZERO, FINITE, ANY = Padding
X, Y = Slot("in", 0), Slot("out", 0)
IMAGE = (2, 17, 3, 3)


def op_of(
    kind: str, *inputs: object, out: tuple[int, ...] = IMAGE, dtype: DType = DType.FLOAT32, **attributes: Attribute
) -> Op:
    """An op on values of these shapes; an array is a constant."""
    values = []
    for index, each in enumerate(inputs):
        data = ArrayData(each) if isinstance(each, np.ndarray) else None
        shape = each.shape if isinstance(each, np.ndarray) else each
        assert isinstance(shape, tuple)
        values.append(Value(f"x{index}", TensorType(dtype, shape), data=data))
    result = Value("y", TensorType(dtype, out))
    return Op(kind, tuple(values), (result,), version=17, attributes=dict(attributes))


def signatures(op: Op, known: Mapping[Slot, str]) -> list[Signature]:
    """The signatures with the given formats, with all padding states."""
    rule = rule_of(op)
    assert rule is not None
    found = rule.signature(op, {slot: Format.parse(text) for slot, text in known.items()})
    return [] if isinstance(found, Inapplicable) else padding_cases(rule, op, found)


def left(op: Op, format: str, *states: Padding, slot: Slot = X) -> Padding | None:
    """The padding state of the output for those of the inputs; None if the op refuses them."""
    for signature in signatures(op, {slot: format}):
        got = tuple(storage.padding if storage is not None else ZERO for storage in signature.inputs)
        if got == states:
            assert signature.outputs[0] is not None
            return signature.outputs[0].padding
    return None


def number(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


@pytest.mark.parametrize(
    ("op", "states", "result"),
    [
        (op_of("Relu", IMAGE), (ZERO,), ZERO),
        (op_of("Sigmoid", IMAGE), (ZERO,), FINITE),
        (op_of("Exp", IMAGE), (FINITE,), ANY),
        (op_of("Log", IMAGE), (ZERO,), ANY),
        (op_of("Selu", IMAGE), (FINITE,), ANY),
        (op_of("Mul", IMAGE, (2, 17, 1, 1)), (ZERO, FINITE), ZERO),
        (op_of("Mul", IMAGE, IMAGE), (ZERO, ANY), ANY),
        (op_of("Add", IMAGE, (17, 1, 1)), (ZERO, ZERO), ZERO),
        (op_of("Add", IMAGE, (2, 1, 3, 3)), (ZERO, ZERO), FINITE),
        (op_of("Add", IMAGE, number(0)), (FINITE, ZERO), FINITE),
        (op_of("Add", IMAGE, number(-np.inf)), (ZERO, ZERO), ANY),
        (op_of("Max", IMAGE, number(3e38)), (ZERO, ZERO), ANY),
        (op_of("Div", IMAGE, number(2)), (ZERO, ZERO), ZERO),
        (op_of("Div", IMAGE, (17, 1, 1)), (ZERO, ZERO), ANY),
        (op_of("Where", IMAGE, IMAGE, number(-np.inf)), (ZERO, ZERO, ZERO), ANY),
        (op_of("Where", IMAGE, IMAGE, IMAGE), (ANY, ANY, ANY), ANY),
        (op_of("Clip", IMAGE, number(0), number(6)), (ZERO, ZERO, ZERO), ZERO),
        (op_of("Clip", IMAGE, number(1), number(6)), (ZERO, ZERO, ZERO), FINITE),
        (op_of("Clip", IMAGE, number(1e30)), (ZERO, ZERO), ANY),
        (op_of("LRN", IMAGE, size=3), (FINITE,), None),
        (op_of("LRN", IMAGE, size=3, bias=0.0), (ZERO,), ANY),
        (op_of("Conv", IMAGE, (17, 17, 1, 1)), (FINITE, ZERO), ZERO),
        (op_of("Conv", IMAGE, (17, 17, 1, 1)), (ANY, ZERO), None),
        (op_of("ReduceMax", IMAGE, out=(1, 1, 1, 1)), (ZERO,), None),
    ],
    ids=str,
)
def test_padding_of_channels(op: Op, states: tuple[Padding, ...], result: Padding | None) -> None:
    assert left(op, "NCHW8c", *states) is result


def test_an_operand_covers_the_padding_of_its_own_axes_only() -> None:
    scaled = op_of("Mul", IMAGE, (1, 17, 1, 1))
    assert left(scaled, "NCHW8c8n", FINITE, ZERO) is ANY  # its elements are multiplied with the padding of the batch
    assert left(scaled, "NCHW8c8n", ZERO, ZERO) is ZERO


def test_images_of_padding_are_normalised_to_the_bias() -> None:
    ones = np.ones(17, np.float32)
    norm = op_of("InstanceNormalization", IMAGE, ones, ones)
    assert left(norm, "NCHW8c", FINITE, ZERO, ZERO) is ZERO
    assert left(norm, "NCHW4n", ZERO, ZERO, ZERO) is ANY


def test_whole_numbers_are_not_divided_by_padding() -> None:
    whole = op_of("Div", IMAGE, IMAGE, dtype=DType.INT32)
    assert left(whole, "NCHW8c", ZERO, ZERO) is None
    by_number = op_of("Div", IMAGE, (1,), dtype=DType.INT32)
    assert left(by_number, "NCHW8c", ZERO, ZERO) is not None
    assert left(by_number, "NCHW8c", ANY, ZERO) is None


def test_a_bias_reaches_the_padding_that_it_broadcasts_over() -> None:
    for bias, padding in (((5, 3), ZERO), ((3,), FINITE), ((5, 1), FINITE)):
        product = op_of("Gemm", (5, 7), (7, 3), bias, out=(5, 3))
        assert left(product, "MN8m8n", ZERO, ZERO, ZERO, slot=Y) is padding
    product = op_of("Gemm", (5, 7), (7, 3), (3,), out=(5, 3))
    assert left(product, "MN8n", ZERO, ZERO, ZERO, slot=Y) is ZERO


@pytest.mark.parametrize(("zero", "is_legal"), [(0, True), (7, False)])
def test_padding_of_constants_is_checked_too(zero: int, is_legal: bool) -> None:
    """Padding of constants is checked: with nonzero zero points, zero padding is not neutral."""
    x, w = np.ones((1, 3, 4, 4), np.uint8), np.ones((2, 3, 1, 1), np.uint8)
    points = (np.asarray(point, np.uint8) for point in (1, zero))
    op = op_of("ConvInteger", x, w, *points, out=(1, 2, 4, 4), dtype=DType.UINT8)
    assert bool(signatures(op, {X: "NCHW4c", Slot("in", 1): "NCHW4c", Y: "NCHW"})) == is_legal


def test_strings_have_no_padding() -> None:
    assert not signatures(op_of("Identity", IMAGE, dtype=DType.STRING), {X: "NCHW8c"})
    assert signatures(op_of("Identity", IMAGE, dtype=DType.STRING), {X: "NHWC"})


@pytest.mark.parametrize(
    ("shape", "states", "padding"),
    [
        ((5, 8), (ANY, ZERO), ANY),  # five rows in blocks of 8: garbage stays in rows of padding
        ((5, 8), (ZERO, ZERO), ZERO),
        ((8, 7), (FINITE, ZERO), ZERO),  # a sum over seven in blocks of 8: the padding is multiplied by zeros
        ((8, 7), (ANY, ZERO), None),  # zero times infinity is NaN
        ((8, 7), (FINITE, FINITE), None),
        ((5, 7), (FINITE, ZERO), ANY),
    ],
)
def test_products_mind_padding_only_where_they_sum(
    shape: tuple[int, int], states: tuple[Padding, Padding], padding: Padding | None
) -> None:
    rows, summed = shape
    product = op_of("MatMul", shape, (summed, 3), out=(rows, 3))
    rule, format = rule_of(product), Format.parse("MN8m8n")
    assert rule is not None
    signature = rule.signature(product, dict.fromkeys(product.slots(), format))
    assert isinstance(signature, Signature)
    assert rule.transfer_padding(product, signature, states) == (None if padding is None else (padding,))
