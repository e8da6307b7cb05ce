"""The laws of cost models: conversions that move bytes cost time, prices are finite, and no detour is cheaper."""

import math
from collections.abc import Iterable
from itertools import product

from layoutopt.cost import CostModel
from layoutopt.formats import Format, Shape
from layoutopt.ir.types import DType, Op, Padding, Signature, Storage, TensorType, Value
from layoutopt.ops import Inapplicable, OperandFormats, canonical_signature, signature_of

FORMATS = tuple(map(Format.parse, ("NCHW", "NHWC", "CHWN", "NCHW4c", "NCHW16c", "NCHW32c", "CHWN4c")))
"""Formats of feature maps with which conversions are tested."""

_SHAPES: tuple[Shape, ...] = ((1, 64, 56, 56), (2, 3, 17, 9), (1, 1, 1, 1), (1, 16, 1, 1))
_DTYPES = (DType.FLOAT32, DType.FLOAT16, DType.INT8)


def check_cost_model(model: CostModel, ops: Iterable[Op] = ()) -> None:
    """Assert the laws of a cost model.

    Args:
        model: the cost model.
        ops: ops to price, besides convolutions of several sizes and element types.

    Raises:
        AssertionError: it breaks a law.
    """
    assert model.name and model.dialect, "a cost model needs a name and a dialect"
    for shape, dtype in product(_SHAPES, _DTYPES):
        value = tensor(shape, dtype)
        for source, target in product(FORMATS, FORMATS):
            check_conversion_price(model, value, source, target)
            check_growth(model, value, source, target)
        for source, via, target in product(FORMATS[:5], FORMATS[:5], FORMATS[:5]):
            check_detour(model, value, source, via, target)
        for format, before, after in product(FORMATS, Padding, Padding):
            check_padding_price(model, value, format, before, after)
        for op in (convolution(shape, 24, 3, dtype), *ops):
            check_op_prices(model, op)


def check_conversion_price(model: CostModel, value: Value, source: Format, target: Format) -> None:
    """Assert that a conversion is free exactly if no byte moves, and costs the same in both directions."""
    assert value.shape is not None
    there = model.conversion_seconds(value, Storage(source), Storage(target))
    back = model.conversion_seconds(value, Storage(target), Storage(source))
    case = f"{value.type} from {source} to {target} in {there} s, back in {back} s"
    assert math.isfinite(there) and there >= 0, case
    assert (there == 0) == (source.key(value.shape) == target.key(value.shape)), case
    assert math.isclose(there, back, rel_tol=1e-6), case


def check_detour(model: CostModel, value: Value, source: Format, via: Format, target: Format) -> None:
    """Assert that a conversion by way of a third format is not cheaper."""
    one, other, third = Storage(source), Storage(via), Storage(target)
    direct = model.conversion_seconds(value, one, third)
    detour = model.conversion_seconds(value, one, other) + model.conversion_seconds(value, other, third)
    case = f"{value.type} from {source} to {target}: {direct} s, by way of {via} {detour} s"
    assert direct <= detour * (1 + 1e-9), case


def check_growth(model: CostModel, value: Value, source: Format, target: Format) -> None:
    """Assert that a conversion of a tensor with a larger extent is not cheaper."""
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    shape = value.type.shape
    small = model.conversion_seconds(value, Storage(source), Storage(target))
    for axis, dim in enumerate(shape):
        assert isinstance(dim, int)
        larger = tensor((*shape[:axis], dim + 32, *shape[axis + 1 :]), value.type.dtype)
        large = model.conversion_seconds(larger, Storage(source), Storage(target))
        assert small <= large, f"{value.type} from {source} to {target}: {small} s, {larger.type}: {large} s"


def check_padding_price(model: CostModel, value: Value, format: Format, before: Padding, after: Padding) -> None:
    """Assert that a change of the padding alone costs time exactly if the padding has to become cleaner."""
    seconds = model.conversion_seconds(value, Storage(format, before), Storage(format, after))
    assert (seconds == 0) == (before <= after), f"{value.type} in {format}, {before} to {after}: {seconds} s"


def check_op_prices(model: CostModel, op: Op) -> None:
    """Assert that an op has a finite price above 0 in canonical formats and in those of each kernel of the target."""
    assert price(model, op, canonical_signature(op)) > 0
    for formats in model.preferred_formats(op):
        signature = signature_of(op, formats)
        if not isinstance(signature, Inapplicable):
            assert price(model, op, signature) > 0


def price(model: CostModel, op: Op, signature: Signature) -> float:
    """The price of an op in seconds, which has to be finite."""
    seconds = model.kernel_seconds(op, signature)
    assert math.isfinite(seconds), f"{op.kind} with {signature}: {seconds} s"
    return seconds


def price_of(model: CostModel, op: Op, formats: OperandFormats) -> float:
    """The price of an op with the given formats of some operands."""
    signature = signature_of(op, formats)
    assert isinstance(signature, Signature)
    return price(model, op, signature)


def tensor(shape: Shape, dtype: DType) -> Value:
    """A value without a graph."""
    return Value("x", TensorType(dtype, shape))


def convolution(shape: Shape, filters: int, kernel: int, dtype: DType) -> Op:
    """A convolution with stride 1 that keeps the size of the image."""
    n, c, h, w = shape
    values = (tensor(shape, dtype), tensor((filters, c, kernel, kernel), dtype))
    result = tensor((n, filters, h, w), dtype)
    attributes = {"kernel_shape": (kernel, kernel), "pads": (kernel // 2,) * 4}
    return Op("Conv", values, (result,), attributes=dict(attributes), version=18)


__all__ = ["FORMATS", "check_cost_model", "convolution", "price_of", "tensor"]
