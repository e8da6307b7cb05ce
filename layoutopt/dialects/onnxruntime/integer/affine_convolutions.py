"""Writes an affine function per channel between DequantizeLinear and QuantizeLinear as one depthwise integer convolution.

before: q -> DequantizeLinear -> Sub(mean) -> QuantizeLinear -> p          (N, H, W, C), mean of C numbers
after:  q -> QLinearConv(one weight per channel, a bias per channel) -> p

Ops that change no integer, since the two scales differ by the same factor as the numbers, are removed.

The convolution computes round(((q - zero) * weight + bias) * scale) with a weight of 8 bits. Its parameters are accepted only
if it returns the same integer as the original ops for each of the 256 integers in every channel: `channel_parameters`.
"""

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from layoutopt.dialects.onnxruntime.integer.costs import kernel_costs
from layoutopt.dialects.onnxruntime.integer.quantization import Quantization
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Attribute, DType, Op, Value
from layoutopt.ops.qdq import is_dequantizer, is_quantizer
from layoutopt.passes.base import Pass, PassContext

_OPS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
_WEIGHTS = range(127, 0, -1)
_SLOPE_CHANGES = np.array([0.0, *(sign * 1e-6 * 1.5**power for power in range(20) for sign in (1, -1))])
"""Relative changes of the slope that are tried, to move results away from the points between two integers."""
_SLOPES = 12  # tried for each channel
_MARGIN = 1e-4
"""The distance in steps that a result before rounding keeps from the points between two integers: float32 rounds results of up
to 256 steps by less than 1e-4."""
_LARGEST_SUM = 1 << 24  # float32 has every integer up to here


@dataclass(frozen=True, slots=True)
class AffineStep:
    """One float32 op with a constant operand.

    Attributes:
        kind: Add, Sub, Mul or Div.
        constant: the operand, one number or one per channel.
        is_first: whether the constant is the first operand.
    """

    kind: str
    constant: Array
    is_first: bool

    def __call__(self, numbers: Array) -> Array:
        """The result of the op, in the type of `numbers`."""
        other = self.constant.astype(numbers.dtype)
        return np.asarray(_OPS[self.kind](other, numbers) if self.is_first else _OPS[self.kind](numbers, other))


@dataclass(frozen=True, slots=True)
class ChannelParameters:
    """The parameters of the convolution, one of each per channel."""

    weights: Array
    scales: Array
    biases: Array


def channel_parameters(
    before: Quantization, steps: list[AffineStep], after: Quantization, channels: int
) -> ChannelParameters | None:
    """The parameters of a convolution that is equal to the ops for all integers in all channels; None if none were found.

    Args:
        before: the quantisation of the integers that are read.
        steps: the ops between DequantizeLinear and QuantizeLinear.
        after: the quantisation of the result.
        channels: the number of channels.
    """
    integers = before.integers[:, None]
    numbers = np.broadcast_to(before.dequantize(integers), (len(integers), channels))
    ends = np.array([[0.0], [1.0]]) * np.ones(channels)
    for step in steps:
        numbers, ends = step(numbers), step(ends)
    slope = (ends[1] - ends[0]) * float(before.scale) / float(after.scale)
    if not np.isfinite(numbers).all() or not np.isfinite(slope).all() or not slope.all():
        return None
    expected = after.quantize(numbers)
    candidates = _widest_ranges(integers - before.zero, slope, *_bounds(expected, after))
    found = ChannelParameters(np.zeros(channels, np.int8), np.zeros(channels, np.float32), np.zeros(channels, np.int32))
    pending = np.arange(channels)
    for (slope, shift), weight in product(candidates, _WEIGHTS):
        signed = np.where(slope[pending] < 0, -weight, weight)
        scales = (slope[pending] / signed * (float(after.scale) / float(before.scale))).astype(np.float32)
        multipliers = before.scale * scales / after.scale
        biases = np.rint(shift[pending] / multipliers.astype(np.float64))
        sums = (integers - before.zero) * signed + biases
        results = sums.astype(np.float32) * multipliers
        is_exact = after.saturate(np.rint(results)) == expected[:, pending]
        is_clear = np.abs(results - np.floor(results) - np.float32(0.5)) > _MARGIN
        is_clear |= np.abs(results) > 2 * len(integers)  # saturated on either side
        done = (is_exact & is_clear & (np.abs(sums) < _LARGEST_SUM)).all(axis=0)
        chosen, pending = pending[done], pending[~done]
        found.weights[chosen], found.scales[chosen], found.biases[chosen] = signed[done], scales[done], biases[done]
        if not len(pending):
            return found
    return None


def _bounds(expected: Array, after: Quantization) -> tuple[Array, Array]:
    """The ranges of results that are rounded to the expected integers, in steps; they are open where the type saturates."""
    steps, limits = expected.astype(np.float64) - after.zero, np.iinfo(after.dtype.numpy)
    lower = np.where(expected == limits.min, -np.inf, steps - 0.5)
    return lower, np.where(expected == limits.max, np.inf, steps + 0.5)


def _widest_ranges(integers: Array, slope: Array, lower: Array, upper: Array) -> list[tuple[Array, Array]]:
    """Slopes close to the given ones, with shifts, in descending order of the interval of valid shifts.

    Args:
        integers: a column of integers minus their zero point.
        slope: the slopes of the channels, in steps of the result.
        lower: the lower bounds of the results, by integer and channel.
        upper: the upper bounds.
    """
    slopes = slope * (1 + _SLOPE_CHANGES[:, None])
    products = slopes[:, None, :] * integers
    least, most = (lower - products).max(axis=1), (upper - products).min(axis=1)
    least, most = (
        np.maximum(least, -(2.0**20)),
        np.minimum(most, 2.0**20),
    )  # may be infinite
    shifts, order, channels = (least + most) / 2, np.argsort(least - most, axis=0), np.arange(len(slope))
    return [(slopes[best, channels], shifts[best, channels]) for best in order[:_SLOPES]]


@dataclass(frozen=True, slots=True)
class AffineConvolutions(Pass):
    """Write DequantizeLinear, affine ops per channel and QuantizeLinear as a depthwise QLinearConv."""

    name = "affine-convolutions"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the QuantizeLinears."""
        for op in graph.ops:
            if is_quantizer(op):
                _rewrite(graph, op)


def _rewrite(graph: Graph, quantizer: Op) -> None:
    y = quantizer.outputs[0]
    chain = _affine_chain(graph, quantizer)
    if chain is None or y is None or y.rank != 4:
        return
    dequantizer, steps, ops = chain
    x = dequantizer.inputs[0]
    before = Quantization.of(dequantizer, integers=None if x is None else x.dtype)
    after = Quantization.of(quantizer, integers=y.dtype)
    shape = y.shape
    channels = shape[-1] if shape is not None else None
    if before is None or after is None or x is None or x.shape != shape or not isinstance(channels, int):
        return
    if before.dtype is not after.dtype:
        return
    if _keeps_integers(before, steps, after) and not graph.is_output(y):
        graph.replace_uses(y, x)
        graph.remove_if_dead(quantizer)
        return
    found = (
        channel_parameters(before, steps, after, channels) if _is_faster(y, [dequantizer, *ops, quantizer]) else None
    )
    if found is None:
        return
    arrays = {
        "weights": found.weights.reshape(channels, 1, 1, 1),
        "scales": found.scales,
        "zeros": np.zeros(channels, np.int8),
    }
    weights, scales, zeros = (graph.new_constant(array, f"{y.name}/{name}") for name, array in arrays.items())
    bias = graph.new_constant(found.biases, f"{y.name}/bias")
    x_zero = graph.new_constant(np.array(before.zero, before.dtype.numpy), f"{y.name}/x_zero")
    y_zero = graph.new_constant(np.array(after.zero, after.dtype.numpy), f"{y.name}/y_zero")
    inputs = (x, dequantizer.inputs[1], x_zero, weights, scales, zeros, quantizer.inputs[1], y_zero, bias)
    attributes: dict[str, Attribute] = {"channels_last": 1, "group": channels, "kernel_shape": (1, 1)}
    graph.opsets.setdefault("com.microsoft", 1)
    kind, stem = "com.microsoft::QLinearConv", f"{y.name}/affine"
    result = graph.new_result(kind, inputs, y.type, stem, quantizer, version=1, attributes=attributes)
    graph.replace_value(y, result)


def _keeps_integers(before: Quantization, steps: list[AffineStep], after: Quantization) -> bool:
    """Whether every integer is quantised to itself: a division by 6 changes the scale only."""
    numbers = before.dequantize(before.integers[:, None])
    for step in steps:
        numbers = step(numbers)
    return bool((after.quantize(numbers) == before.integers[:, None]).all())


def _affine_chain(graph: Graph, quantizer: Op) -> tuple[Op, list[AffineStep], list[Op]] | None:
    """The DequantizeLinear and the affine ops before a QuantizeLinear, in order; None if there is another op between."""
    steps: list[AffineStep] = []
    ops: list[Op] = []
    value = quantizer.inputs[0]
    while value is not None:
        producer = graph.producer(value)
        if producer is None:
            return None
        if is_dequantizer(producer):
            return (producer, steps[::-1], ops[::-1]) if steps else None
        step = _affine_step(graph, producer) if graph.has_one_use(value) else None
        if step is None:
            return None
        steps.append(step)
        ops.append(producer)
        value = producer.inputs[1 if step.is_first else 0]
    return None


def _affine_step(graph: Graph, op: Op) -> AffineStep | None:
    """The affine function per channel that an op computes, with channels last; None if it is none."""
    y = op.outputs[0]
    if op.kind not in _OPS or y is None or y.dtype is not DType.FLOAT32:
        return None
    for index in (1, 0):
        constant, x = _numbers(graph, op.inputs[index]), op.inputs[1 - index]
        if constant is None or x is None or x.shape is None or x.shape != y.shape or constant.ndim > len(x.shape):
            continue
        is_last_axis_only = constant.size == 1 or (constant.ndim > 0 and constant.size == constant.shape[-1])
        if is_last_axis_only and not (op.kind == "Div" and index == 0):
            return AffineStep(op.kind, constant.reshape(-1), index == 0)
    return None


def _numbers(graph: Graph, value: Value | None) -> Array | None:
    """The elements of a constant, also of one that is stored as integers with one scale."""
    if value is None or value.data is not None:
        return None if value is None or value.data is None else value.data.numpy()
    producer = graph.producer(value)
    if producer is None or not is_dequantizer(producer):
        return None
    integers = producer.inputs[0]
    stored = Quantization.of(producer, integers=None if integers is None else integers.dtype)
    if stored is None or integers is None or integers.data is None:
        return None
    return stored.dequantize(integers.data.numpy().astype(np.int32))


def _is_faster(y: Value, ops: list[Op]) -> bool:
    """Whether the convolution is estimated to be faster than the ops that it replaces."""
    costs, shape = kernel_costs(), y.static_shape
    if shape is None:
        return True  # the costs of all kernels are proportional to a symbolic batch
    elements, rows = prod(shape), prod(shape[:-1])
    return costs["QLinearConv"].seconds(elements) < sum(costs[op.op_type].seconds(elements, rows) for op in ops)
