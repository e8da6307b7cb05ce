"""Parameters with which kernels on integers return given results for each of the 256 integers of their operand.

Arguments of both functions:
    x_zero: the zero point of the operand.
    y_zero: the zero point of the result.
    numbers: the numbers that are rounded, in units of the result's scale, of shape (256, channels).
    integers: the results, of the same shape.
"""

import numpy as np

from layoutopt.ir.types import Array

_LARGEST_WEIGHT = 127
_FRACTIONS = 32
"""The number of fractions bias / weight that are tried for each channel."""
_SMALLEST_SLOPE, _LARGEST_OFFSET = 1e-5, 1e7
"""The bounds of the channels of a convolution: a channel that is constant has the smallest slope."""
_SLOPES = 65
"""The number of slopes that are tried for a factor."""
_MARGIN = 1e-3
"""The least room for the offset of a factor, as CPUs round its sum differently."""
_UNBOUNDED, _SATURATED = 1e9, 1e5


def fit_convolution(x_zero: int, y_zero: int, numbers: Array, integers: Array) -> tuple[Array, Array, Array] | None:
    """The weight, the bias and the scale of every channel of a depthwise 1x1 convolution; None if a channel has none.

    round((weight * (q - x_zero) + bias) * scale) + y_zero is the result for every q: each q bounds the scale.
    """
    if not np.isfinite(numbers).all():
        return None
    slope = (numbers[-1] - numbers[0]) / 255
    slope = np.where(np.abs(slope) < _SMALLEST_SLOPE, _SMALLEST_SLOPE, slope)
    steps, sign = np.arange(256)[:, None] - x_zero, np.sign(slope)
    fitted, widest = np.zeros((3, slope.size)), np.zeros(slope.size)
    for weight, bias in _fractions(np.clip(numbers[x_zero] / slope, -_LARGEST_OFFSET, _LARGEST_OFFSET)):
        least, most = _bounds(sign * (steps * weight + bias), y_zero, integers)
        first, last = np.maximum(least.max(axis=0), 0), most.min(axis=0)
        room = (last - first) * weight
        fitted = np.where(room > widest, (sign * weight, sign * bias, (first + last) / 2), fitted)
        widest = np.maximum(room, widest)
    weights, biases, scales = fitted
    return (weights, biases, scales) if widest.all() else None


def _bounds(factors: Array, y_zero: int, integers: Array) -> tuple[Array, Array]:
    """The bounds of the numbers whose products with factors are rounded to integers, which saturate at 0 and 255."""
    factors = np.where(factors == 0, 1 / _UNBOUNDED, factors)
    low = (np.where(integers > 0, integers - 0.5, -_UNBOUNDED) - y_zero) / factors
    high = (np.where(integers < 255, integers + 0.5, _UNBOUNDED) - y_zero) / factors
    return np.minimum(low, high), np.maximum(low, high)


def _fractions(offsets: Array) -> list[tuple[Array, Array]]:
    """The fractions in lowest terms that are the closest to the offset of each channel, as weights and biases."""
    weights = np.repeat(np.arange(1, _LARGEST_WEIGHT + 1), 2)[:, None]
    biases = np.floor(offsets * weights) + np.arange(len(weights))[:, None] % 2
    is_reducible = np.gcd(weights, biases.astype(np.int64)) > 1
    nearest = np.argsort(np.abs(biases / weights - offsets) + _UNBOUNDED * is_reducible, axis=0)[:_FRACTIONS]
    return list(zip(weights[nearest, 0], np.take_along_axis(biases, nearest, axis=0), strict=True))


def fit_product(x_zero: int, y_zero: int, numbers: Array, integers: Array) -> tuple[float, float, float] | None:
    """The slope, the offset and the scale of a product of an operand and a factor computed from it; None if there are none.

    round((q - x_zero) * factor * scale) + y_zero is the result for every q. The factor is slope * (q - x_zero) + offset,
    rounded and saturated to the integers from 0 to 255. Each q bounds its factor, and each pair of factors bounds the slope.
    """
    steps, numbers = np.arange(256.0) - x_zero, numbers[:, 0]
    scale = float((numbers[steps != 0] / steps[steps != 0]).max()) / 255
    if not np.isfinite(numbers).all() or scale <= 0:
        return None
    least, most = _bounds(steps * scale, y_zero, integers[:, 0])
    least, most = np.ceil(least), np.floor(most)
    if (least > np.minimum(most, 255)).any() or (most < 0).any():
        return None
    low, high = np.where(least > 0, least - 0.5, -_SATURATED), np.where(most < 255, most + 0.5, _SATURATED)
    one, other = np.triu_indices(256, 1)
    lowest, highest = ((low[other] - high[one]) / (other - one)).max(), ((high[other] - low[one]) / (other - one)).min()
    slopes = np.linspace(max(lowest, 0), highest, _SLOPES)[1:-1, None]
    first, last = (low - slopes * steps).max(axis=1), (high - slopes * steps).min(axis=1)
    best = (last - first).argmax()
    slope, offset = float(slopes[best, 0]), float(first[best] + last[best]) / 2
    return (slope, offset, scale) if last[best] - first[best] > _MARGIN and offset > 0 else None
