"""Laws of every built-in cost model: bytes cost, only what moves nothing is free, prices are finite."""

import math
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layoutopt.cost_models import RooflineModel, load_target, target_names
from layoutopt.formats import Format
from layoutopt.ir.types import DType, Lanes, Op, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops import Known, signature_of

Shape4: TypeAlias = tuple[int, int, int, int]

MODELS = {name: load_target(name) for name in target_names()}
FORMATS = [Format.parse(text) for text in ("NCHW", "NHWC", "CHWN", "NCHW4c", "NCHW16c", "NCHW32c", "CHWN4c")]

models = st.sampled_from(sorted(MODELS)).map(MODELS.__getitem__)
formats = st.sampled_from(FORMATS)
dtypes = st.sampled_from([DType.FLOAT32, DType.FLOAT16, DType.INT8])
shapes = st.tuples(*(st.integers(1, limit) for limit in (3, 70, 60, 60)))


def tensor(shape: tuple[int, ...], dtype: DType) -> Value:
    return Value("x", TensorType(dtype, shape))


def conv(shape: tuple[int, ...], filters: int, kernel: int, dtype: DType) -> Op:
    n, c, h, w = shape
    values = (tensor(shape, dtype), tensor((filters, c, kernel, kernel), dtype))
    attributes = {"kernel_shape": (kernel, kernel), "pads": (kernel // 2,) * 4}
    return Op("Conv", values, (tensor((n, filters, h, w), dtype),), attributes=dict(attributes), version=18)


@given(models, shapes, dtypes, formats, formats)
def test_a_conversion_is_free_exactly_if_no_byte_moves(
    model: RooflineModel, shape: Shape4, dtype: DType, src: Format, dst: Format
) -> None:
    seconds = model.conversion_seconds(tensor(shape, dtype), Storage(src), Storage(dst))
    assert math.isfinite(seconds)
    assert (seconds == 0) == (src.key(shape) == dst.key(shape))


@given(models, shapes, dtypes, formats, formats)
def test_a_conversion_costs_the_same_back(
    model: RooflineModel, shape: Shape4, dtype: DType, src: Format, dst: Format
) -> None:
    x = tensor(shape, dtype)
    there = model.conversion_seconds(x, Storage(src), Storage(dst))
    assert there == pytest.approx(model.conversion_seconds(x, Storage(dst), Storage(src)))


@given(models, shapes, dtypes, formats, formats, formats)
@example(MODELS["cpu-avx2"], (1, 1, 1, 1), DType.FLOAT32, FORMATS[0], FORMATS[2], FORMATS[6])
@example(MODELS["gpu-ampere"], (1, 1, 1, 2), DType.FLOAT32, FORMATS[0], FORMATS[1], FORMATS[3])
def test_a_detour_is_never_cheaper(
    model: RooflineModel, shape: Shape4, dtype: DType, src: Format, via: Format, dst: Format
) -> None:
    x, (a, b, c) = tensor(shape, dtype), (Storage(src), Storage(via), Storage(dst))
    direct = model.conversion_seconds(x, a, c)
    detour = model.conversion_seconds(x, a, b) + model.conversion_seconds(x, b, c)
    assert direct <= detour * (1 + 1e-9)


@given(models, shapes, dtypes, formats, formats, st.integers(0, 3))
def test_more_bytes_are_never_cheaper(
    model: RooflineModel, shape: Shape4, dtype: DType, src: Format, dst: Format, axis: int
) -> None:
    larger = tuple(extent + 32 * (index == axis) for index, extent in enumerate(shape))
    small, large = tensor(shape, dtype), tensor(larger, dtype)
    pair = Storage(src), Storage(dst)
    assert model.conversion_seconds(small, *pair) <= model.conversion_seconds(large, *pair)


@given(models, shapes, dtypes, formats, st.sampled_from(list(Lanes)), st.sampled_from(list(Lanes)))
def test_lanes_cost_only_when_they_have_to_become_cleaner(
    model: RooflineModel, shape: Shape4, dtype: DType, format: Format, has: Lanes, wants: Lanes
) -> None:
    seconds = model.conversion_seconds(tensor(shape, dtype), Storage(format, has), Storage(format, wants))
    assert (seconds == 0) == (has <= wants)


@given(models, shapes, dtypes, st.integers(1, 70), st.sampled_from([1, 3]), formats, formats)
def test_an_op_costs_something_in_every_signature(
    model: RooflineModel, shape: Shape4, dtype: DType, filters: int, kernel: int, x: Format, y: Format
) -> None:
    op = conv(shape, filters, kernel, dtype)
    seconds = price(model, op, {Slot("in", 0): x, Slot("out", 0): y})
    assert math.isfinite(seconds)
    assert seconds > 0


@given(models, shapes, dtypes, st.integers(1, 70), st.sampled_from([1, 3]), formats, formats)
def test_emulation_costs_what_casts_around_a_kernel_cost(
    model: RooflineModel, shape: Shape4, dtype: DType, filters: int, kernel: int, x: Format, y: Format
) -> None:
    op = conv(shape, filters, kernel, dtype)
    asked = {Slot("in", 0): x, Slot("out", 0): y, Slot("in", 1): Format.canonical(4)}
    ways = []
    for known in model.preferred_formats(op):
        total = price(model, op, known)
        for slot, format in known.items():
            value = op.operand(slot)
            assert value is not None
            total += model.conversion_seconds(value, Storage(asked[slot]), Storage(format))
        ways.append(total)
        if total == price(model, op, known):
            return  # there is a kernel of this signature
    if not ways:
        return  # no kernel at all
    assert min(ways) <= price(model, op, asked) * (1 + 1e-9)
    assert price(model, op, asked) <= min(ways) * 1.011


def price(model: RooflineModel, op: Op, known: Known) -> float:
    signature = signature_of(op, known)
    assert isinstance(signature, Signature)
    return model.kernel_seconds(op, signature)


@given(models, shapes, dtypes, st.integers(1, 70))
def test_larger_images_are_never_cheaper(model: RooflineModel, shape: Shape4, dtype: DType, filters: int) -> None:
    n, c, h, w = shape
    small, large = conv(shape, filters, 3, dtype), conv((n, c, h + 7, w), filters, 3, dtype)
    for known in model.preferred_formats(small):
        assert price(model, small, known) <= price(model, large, known)
