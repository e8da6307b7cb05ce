"""Laws of every built-in cost model: conversions that move bytes have a positive price, others are free, prices are finite."""

from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layoutopt.cost_models import RooflineModel, load_target, target_names
from layoutopt.formats import Format
from layoutopt.ir.types import DType, Padding, Slot, Storage
from layoutopt.testing.laws import (
    FORMATS,
    check_conversion_price,
    check_cost_model,
    check_detour,
    check_growth,
    check_op_prices,
    check_padding_price,
    convolution,
    price_of,
    tensor,
)

Shape4: TypeAlias = tuple[int, int, int, int]

MODELS = {name: load_target(name) for name in target_names()}
models = st.sampled_from(sorted(MODELS)).map(MODELS.__getitem__)
formats = st.sampled_from(FORMATS)
dtypes = st.sampled_from([DType.FLOAT32, DType.FLOAT16, DType.INT8])
shapes = st.tuples(*(st.integers(1, limit) for limit in (3, 70, 60, 60)))


@pytest.mark.parametrize("name", MODELS)
def test_the_laws_on_fixed_cases(name: str) -> None:
    check_cost_model(MODELS[name])


@given(models, shapes, dtypes, formats, formats)
def test_a_conversion_is_free_exactly_if_no_byte_moves_and_costs_the_same_back(
    model: RooflineModel, shape: Shape4, dtype: DType, src: Format, dst: Format
) -> None:
    check_conversion_price(model, tensor(shape, dtype), src, dst)


@given(models, shapes, dtypes, formats, formats, formats)
@example(MODELS["cpu-avx2"], (1, 1, 1, 1), DType.FLOAT32, FORMATS[0], FORMATS[2], FORMATS[6])
@example(MODELS["gpu-ampere"], (1, 1, 1, 2), DType.FLOAT32, FORMATS[0], FORMATS[1], FORMATS[3])
def test_a_detour_is_never_cheaper(
    model: RooflineModel, shape: Shape4, dtype: DType, src: Format, via: Format, dst: Format
) -> None:
    check_detour(model, tensor(shape, dtype), src, via, dst)


@given(models, shapes, dtypes, formats, formats)
def test_more_bytes_are_never_cheaper(
    model: RooflineModel, shape: Shape4, dtype: DType, src: Format, dst: Format
) -> None:
    check_growth(model, tensor(shape, dtype), src, dst)


@given(models, shapes, dtypes, formats, st.sampled_from(list(Padding)), st.sampled_from(list(Padding)))
def test_padding_costs_only_if_it_has_to_become_cleaner(
    model: RooflineModel, shape: Shape4, dtype: DType, format: Format, state: Padding, required: Padding
) -> None:
    check_padding_price(model, tensor(shape, dtype), format, state, required)


@given(models, shapes, dtypes, st.integers(1, 70), st.sampled_from([1, 3]), formats, formats)
def test_an_op_costs_something_in_every_signature(
    model: RooflineModel, shape: Shape4, dtype: DType, filters: int, kernel: int, x: Format, y: Format
) -> None:
    op = convolution(shape, filters, kernel, dtype)
    check_op_prices(model, op)
    assert price_of(model, op, {Slot("in", 0): x, Slot("out", 0): y}) > 0


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
