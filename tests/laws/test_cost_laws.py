"""Laws of every built-in cost model: conversions that move bytes have a positive price, others are free, prices are finite."""

import math
from typing import TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st

from layoutopt.cost import CostModel
from layoutopt.cost_models import RooflineModel, load_target, target_names
from layoutopt.formats import Format, Shape
from layoutopt.ir.types import DType, Op, Padding, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops import Inapplicable, OperandFormats, canonical_signature, signature_of

Shape4: TypeAlias = tuple[int, int, int, int]

FORMATS = tuple(map(Format.parse, ("NCHW", "NHWC", "CHWN", "NCHW4c", "NCHW16c", "NCHW32c", "CHWN4c")))
MODELS = {name: load_target(name) for name in target_names()}
models = st.sampled_from(sorted(MODELS)).map(MODELS.__getitem__)
formats = st.sampled_from(FORMATS)
dtypes = st.sampled_from([DType.FLOAT32, DType.FLOAT16, DType.INT8])
shapes = st.tuples(*(st.integers(1, limit) for limit in (3, 70, 60, 60)))


def price_of(model: CostModel, op: Op, formats: OperandFormats) -> float:
    """The price of an op with the given formats of some operands; finite and above 0."""
    signature = signature_of(op, formats)
    assert isinstance(signature, Signature)
    seconds = model.kernel_seconds(op, signature)
    assert math.isfinite(seconds) and seconds > 0, f"{op.kind} with {signature}: {seconds} s"
    return seconds


def tensor(shape: Shape, dtype: DType) -> Value:
    return Value("x", TensorType(dtype, shape))


def convolution(shape: Shape, filters: int, kernel: int, dtype: DType) -> Op:
    """A convolution with stride 1 that keeps the size of the image."""
    n, c, h, w = shape
    values = (tensor(shape, dtype), tensor((filters, c, kernel, kernel), dtype))
    attributes = {"kernel_shape": (kernel, kernel), "pads": (kernel // 2,) * 4}
    return Op("Conv", values, (tensor((n, filters, h, w), dtype),), attributes=dict(attributes), version=18)


@given(models, shapes, dtypes, formats, formats)
def test_a_conversion_is_free_exactly_if_no_byte_moves_and_costs_the_same_back(
    model: RooflineModel, shape: Shape4, dtype: DType, src: Format, dst: Format
) -> None:
    there = model.conversion_seconds(tensor(shape, dtype), Storage(src), Storage(dst))
    back = model.conversion_seconds(tensor(shape, dtype), Storage(dst), Storage(src))
    assert math.isfinite(there) and there >= 0
    assert (there == 0) == (src.key(shape) == dst.key(shape))
    assert math.isclose(there, back, rel_tol=1e-6)


@given(models, shapes, dtypes, formats, formats, formats)
@example(MODELS["cpu-avx2"], (1, 1, 1, 1), DType.FLOAT32, FORMATS[0], FORMATS[2], FORMATS[6])
@example(MODELS["gpu-ampere"], (1, 1, 1, 2), DType.FLOAT32, FORMATS[0], FORMATS[1], FORMATS[3])
def test_a_detour_is_never_cheaper(
    model: RooflineModel, shape: Shape4, dtype: DType, src: Format, via: Format, dst: Format
) -> None:
    value, one, other, third = tensor(shape, dtype), Storage(src), Storage(via), Storage(dst)
    detour = model.conversion_seconds(value, one, other) + model.conversion_seconds(value, other, third)
    assert model.conversion_seconds(value, one, third) <= detour * (1 + 1e-9)


@given(models, shapes, dtypes, formats, formats)
def test_more_bytes_are_never_cheaper(
    model: RooflineModel, shape: Shape4, dtype: DType, src: Format, dst: Format
) -> None:
    small = model.conversion_seconds(tensor(shape, dtype), Storage(src), Storage(dst))
    for axis, dim in enumerate(shape):
        larger = tensor((*shape[:axis], dim + 32, *shape[axis + 1 :]), dtype)
        assert small <= model.conversion_seconds(larger, Storage(src), Storage(dst))


@given(models, shapes, dtypes, formats, st.sampled_from(list(Padding)), st.sampled_from(list(Padding)))
def test_padding_costs_only_if_it_has_to_become_cleaner(
    model: RooflineModel, shape: Shape4, dtype: DType, format: Format, state: Padding, required: Padding
) -> None:
    seconds = model.conversion_seconds(tensor(shape, dtype), Storage(format, state), Storage(format, required))
    assert (seconds == 0) == (state <= required)


@given(models, shapes, dtypes, st.integers(1, 70), st.sampled_from([1, 3]), formats, formats)
def test_an_op_costs_something_in_every_signature(
    model: RooflineModel, shape: Shape4, dtype: DType, filters: int, kernel: int, x: Format, y: Format
) -> None:
    op = convolution(shape, filters, kernel, dtype)
    assert model.kernel_seconds(op, canonical_signature(op)) > 0
    for known in ({Slot("in", 0): x, Slot("out", 0): y}, *model.preferred_formats(op)):
        if not isinstance(signature_of(op, known), Inapplicable):
            price_of(model, op, known)


@given(models, shapes, dtypes, st.integers(1, 70), st.sampled_from([1, 3]), formats, formats)
def test_emulation_costs_what_casts_around_a_kernel_cost(
    model: RooflineModel, shape: Shape4, dtype: DType, filters: int, kernel: int, x: Format, y: Format
) -> None:
    op = convolution(shape, filters, kernel, dtype)
    asked = {Slot("in", 0): x, Slot("out", 0): y, Slot("in", 1): Format.canonical(4)}
    ways = []
    for known in model.preferred_formats(op):
        total = price_of(model, op, known)
        for slot, format in known.items():
            value = op.operand(slot)
            assert value is not None
            total += model.conversion_seconds(value, Storage(asked[slot]), Storage(format))
        ways.append(total)
        if total == price_of(model, op, known):
            return  # there is a kernel of this signature
    if not ways:
        return  # no kernel at all
    assert min(ways) <= price_of(model, op, asked) * (1 + 1e-9)
    assert price_of(model, op, asked) <= min(ways) * 1.011


@given(models, shapes, dtypes, st.integers(1, 70))
def test_larger_images_are_never_cheaper(model: RooflineModel, shape: Shape4, dtype: DType, filters: int) -> None:
    n, c, h, w = shape
    small, large = convolution(shape, filters, 3, dtype), convolution((n, c, h + 7, w), filters, 3, dtype)
    for known in model.preferred_formats(small):
        assert price_of(model, small, known) <= price_of(model, large, known)
