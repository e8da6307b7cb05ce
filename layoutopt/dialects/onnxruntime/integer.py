"""Passes on quantised models: Q/DQ ops around other ops, before and after baking, and QLinear ops with channels last.

Every rewrite after baking computes the same integers as the ops that it replaces, for all input integers; measured costs
(`integer_costs.toml`) decide where a rewrite is made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import TypeAlias

import numpy as np

from layoutopt.cost.size_growth import PassBudget
from layoutopt.dialects.builder import add_reshape, add_transpose
from layoutopt.dialects.onnxruntime.tables import kernel_costs
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, DType, Op, TensorType, Value
from layoutopt.onnx_io.emission import emit
from layoutopt.onnx_io.serialize import to_bytes
from layoutopt.ops.interfaces import zero_pads_of
from layoutopt.ops.qdq import is_dequantizer, is_per_tensor, is_quantizer
from layoutopt.passes import RemoveDead, ShareConstants
from layoutopt.passes.base import Pass, PassContext
from layoutopt.runtime.errors import RUNTIME_ERRORS
from layoutopt.runtime.session import inference_session

_INTEGERS = (DType.INT8, DType.UINT8)
_CONVOLUTION = "com.microsoft::QLinearConv"


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantisation per tensor: x = (q - zero) * scale in float32, q = clip(round_to_even(x / scale) + zero).

    Attributes:
        scale: the scale, a normal number.
        zero: the zero point.
        dtype: int8 or uint8.
    """

    scale: np.float32
    zero: int
    dtype: DType

    @classmethod
    def of(cls, op: Op | None) -> "Quantization | None":
        """The quantisation of a Q/DQ op of 8-bit integers; None unless scale and zero point are constant scalars."""
        if op is None or not (is_dequantizer(op) or is_quantizer(op)):
            return None
        integers, scale, zero = op.x if is_dequantizer(op) else op.y, op.constant(1), op.constant(2)
        has_zero = len(op.inputs) > 2 and op.inputs[2] is not None
        if integers.dtype not in _INTEGERS or scale is None or scale.size != 1 or scale.dtype != np.float32:
            return None
        if not np.finfo(np.float32).tiny <= scale.item() < 1e30 or (has_zero and (zero is None or zero.size != 1)):
            return None
        return cls(np.float32(scale.item()), 0 if zero is None else int(zero.item()), integers.dtype)

    @property
    def limits(self) -> np.iinfo[np.int8]:
        """The least and the largest integer of the type."""
        return np.iinfo(self.dtype.numpy)

    @property
    def integers(self) -> Array:
        """All integers of the type, ascending."""
        return np.arange(self.limits.min, self.limits.max + 1, dtype=np.int32)

    def dequantize(self, integers: Array) -> Array:
        """The float32 numbers of integers."""
        return (integers - self.zero).astype(np.float32) * self.scale

    def quantize(self, numbers: Array) -> Array:
        """The integers of float32 numbers, as int32."""
        return self.saturate(np.rint(numbers / self.scale))

    def saturate(self, steps: Array) -> Array:
        """The integers at whole numbers of steps from the zero point, as int32."""
        return np.asarray(np.clip(steps + self.zero, self.limits.min, self.limits.max), np.int32)


_SMALLEST = 1 << 12
"""The smallest number of elements for which Q/DQ ops and Softmax are faster than the kernel on integers."""
_ONE_AXIS = 13  # since this opset a Softmax is along one axis


class KeepSoftmaxInFloatingPoint(Pass):
    """Write a Softmax between Q/DQ ops on a matrix, because onnxruntime would use a slower kernel on integers.

    before: q -> DequantizeLinear -> Softmax -> QuantizeLinear -> p
    after:  q -> DequantizeLinear -> Flatten -> Softmax -> QuantizeLinear -> Reshape -> p

    When onnxruntime loads a model, it makes QLinearSoftmax of the first, whose kernel divides element by element: 7.8 ms
    against 1.1 on uint8[4,4,256,256] (onnxruntime 1.23.2, one thread, AVX2). Flatten and Reshape move no data. onnxruntime's
    pattern has the DequantizeLinear directly in front of the Softmax; onnxruntime moves it past a Reshape, but not past a
    Flatten.
    """

    name = "keep-softmax-in-floating-point"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the Softmaxes along one axis."""
        for op in graph.ops:
            if op.kind == "Softmax" and op.version >= _ONE_AXIS and is_dequantizer(graph.producer(op.x)):
                _rewrite_softmax(graph, op)


def _rewrite_softmax(graph: Graph, softmax: Op) -> None:
    y, quantizer = softmax.y, graph.only_reader(softmax.y)
    shape = y.static_shape
    if shape is None or quantizer is None or not is_quantizer(quantizer) or not is_per_tensor(quantizer.inputs[1]):
        return
    if prod(shape) < _SMALLEST or softmax.integer("axis", -1) % len(shape) != len(shape) - 1:
        return
    p, matrix = quantizer.y, (prod(shape[:-1]), shape[-1])
    type, attributes = y.type_with(matrix), {"axis": len(shape) - 1}
    flat = graph.new_result("Flatten", (softmax.x,), type, f"{y.name}/operand", softmax, attributes=attributes)
    result = graph.new_copy(softmax, (flat,), type, f"{y.name}/matrix", name=softmax.name, attributes={"axis": -1})
    inputs = (result, *quantizer.inputs[1:])
    integers = graph.new_copy(quantizer, inputs, p.type_with(matrix), f"{p.name}/matrix", name=quantizer.name)
    graph.replace_value(p, add_reshape(graph, integers, shape, softmax))


_IMAGE_AXES: dict[tuple[int, ...], bool] = {(2, 3): False, (1, 2): True}  # whether channels are last
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


class PoolIntegers(Pass):
    """Write means of images between Q/DQ ops as GlobalAveragePool, so that onnxruntime computes them on integers.

    before: q -> DequantizeLinear -> ReduceMean(H, W) -> QuantizeLinear -> p
    after:  q -> DequantizeLinear -> GlobalAveragePool -> Reshape -> QuantizeLinear -> p

    When onnxruntime loads a model, it makes QLinearGlobalAveragePool of the second and keeps the first in floating point: 17
    us against 246 on uint8[1,112,112,16] with channels last (onnxruntime 1.23.2, one thread, AVX2). Images with channels last
    are transposed in front of the DequantizeLinear. The QuantizeLinear may be behind a Reshape of the mean.
    """

    name = "pool-integers"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the ReduceMeans."""
        for op in graph.ops:
            if op.kind == "ReduceMean":
                _rewrite_mean(graph, op)


def _rewrite_mean(graph: Graph, mean: Op) -> None:
    dequantizer, quantizer = graph.producer(mean.x), graph.only_reader(mean.y)
    while quantizer is not None and quantizer.kind in _VIEWS:
        quantizer = graph.only_reader(quantizer.y)
    axes = mean.elements(1) if len(mean.inputs) > 1 else mean.integers("axes")
    is_last = _IMAGE_AXES.get(tuple(sorted(axis % 4 for axis in axes or () if isinstance(axis, int))))
    before, after = Quantization.of(dequantizer), Quantization.of(quantizer)
    if dequantizer is None or quantizer is None or before is None or after is None or before.dtype is not after.dtype:
        return
    q, p = dequantizer.x, quantizer.y
    if is_last is None or q.rank != 4 or p.shape is None or sum(not isinstance(dim, int) for dim in p.shape) > 1:
        return
    image = add_transpose(graph, q, (0, 3, 1, 2), dequantizer) if is_last else q
    inputs = (image, *dequantizer.inputs[1:])
    numbers = graph.new_copy(dequantizer, inputs, mean.x.type_with(image.dims), f"{p.name}/image")
    type = mean.y.type_with((*image.dims[:2], 1, 1))
    pooled = graph.new_result("GlobalAveragePool", (numbers,), type, f"{p.name}/mean", mean, name=mean.name)
    if p.shape != pooled.shape:
        pooled = add_reshape(graph, pooled, p.shape, graph.producer(pooled))
    graph.set_input(quantizer, 0, pooled)


class AbsorbPads(Pass):
    """Move Pads between Q/DQ ops into the channels-last QLinearConv behind them.

    before: q -> DequantizeLinear -> Pad -> QuantizeLinear -> QLinearConv(channels_last)
    after:  q -> QLinearConv(channels_last, more pads)

    Both Q/DQ ops have the same scale and zero point. The Pad then writes zeros, which are quantised to the zero point, and so
    does the convolution: the integers are the same.
    """

    name = "absorb-integer-pads"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the channels-last QLinearConvs."""
        for op in graph.ops:
            is_last = op.kind == _CONVOLUTION and op.integer("channels_last")
            if is_last and op.attributes.get("auto_pad", "NOTSET") == "NOTSET":
                _absorb(graph, op)


def _absorb(graph: Graph, conv: Op) -> None:
    quantizer = graph.only_producer(conv.x)
    pad = graph.only_producer(quantizer.x) if quantizer is not None else None
    dequantizer = graph.producer(pad.x) if pad is not None and pad.inputs else None
    added = zero_pads_of(pad) if pad is not None else None
    after = Quantization.of(quantizer)
    if (
        quantizer is None
        or dequantizer is None
        or added is None
        or after is None
        or after != Quantization.of(dequantizer)
    ):
        return
    spatial = range(1, len(dequantizer.x.dims) - 1)
    if is_quantizer(quantizer) and is_dequantizer(dequantizer) and added.keys() <= set(spatial):
        widths = [added.get(axis, (0, 0))[end] for end in (0, 1) for axis in spatial]
        present = conv.integers("pads") or (0,) * len(widths)
        conv.attributes["pads"] = tuple(old + new for old, new in zip(present, widths, strict=True))
        graph.set_input(conv, 0, dequantizer.x)
        graph.remove_if_dead(quantizer)


AffineFunction: TypeAlias = Callable[[Array], Array]
"""A float32 op with a constant operand, one number or one per channel: its result in the type of its argument."""

_AFFINE_OPS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
_WEIGHTS = range(127, 0, -1)
_SLOPE_CHANGES = np.array([0.0, *(sign * 1e-6 * 1.5**power for power in range(20) for sign in (1, -1))])
"""Relative changes of the slope that are tried, to move results away from the points between two integers."""
_SLOPES = 12  # tried for each channel
_MARGIN = 1e-4
"""The distance in steps that a result before rounding keeps from the points between two integers: float32 rounds results of up
to 256 steps by less than 1e-4."""
_LARGEST_SUM = 1 << 24  # float32 has every integer up to here
_LARGEST_SHIFT = 1 << 20


def channel_parameters(
    before: Quantization, steps: Sequence[AffineFunction], after: Quantization, channels: int
) -> tuple[Array, Array, Array] | None:
    """Weights, scales and biases, one per channel, of a convolution that is equal to the ops for all integers.

    Args:
        before: the quantisation of the integers that are read.
        steps: the ops between DequantizeLinear and QuantizeLinear.
        after: the quantisation of the result.
        channels: the number of channels.

    Returns:
        The parameters; None if none were found for a channel.
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
    weights, scales, biases = np.zeros((3, channels))
    pending = np.arange(channels)
    for (slopes, shifts), weight in product(_widest_ranges(integers - before.zero, slope, expected, after), _WEIGHTS):
        signed = np.where(slopes[pending] < 0, -weight, weight)
        factors = (slopes[pending] / signed * (float(after.scale) / float(before.scale))).astype(np.float32)
        multipliers = before.scale * factors / after.scale
        shifted = np.rint(shifts[pending] / multipliers.astype(np.float64))
        sums = (integers - before.zero) * signed + shifted
        results = sums.astype(np.float32) * multipliers
        is_exact = after.saturate(np.rint(results)) == expected[:, pending]
        is_clear = np.abs(results - np.floor(results) - np.float32(0.5)) > _MARGIN
        is_clear |= np.abs(results) > 2 * len(integers)  # saturated on either side
        done = (is_exact & is_clear & (np.abs(sums) < _LARGEST_SUM)).all(axis=0)
        chosen, pending = pending[done], pending[~done]
        weights[chosen], scales[chosen], biases[chosen] = signed[done], factors[done], shifted[done]
        if not len(pending):
            return weights.astype(np.int8), scales.astype(np.float32), biases.astype(np.int32)
    return None


def _widest_ranges(integers: Array, slope: Array, expected: Array, after: Quantization) -> list[tuple[Array, Array]]:
    """Slopes close to the given ones, with shifts, in descending order of the interval of valid shifts.

    Args:
        integers: a column of integers minus their zero point.
        slope: the slopes of the channels, in steps of the result.
        expected: the integers of the results, by integer and channel.
        after: the quantisation of the results; ranges are open where its type saturates.
    """
    steps = expected.astype(np.float64) - after.zero
    lower = np.where(expected == after.limits.min, -np.inf, steps - 0.5)
    upper = np.where(expected == after.limits.max, np.inf, steps + 0.5)
    slopes = slope * (1 + _SLOPE_CHANGES[:, None])
    products = slopes[:, None, :] * integers
    least = np.maximum((lower - products).max(axis=1), -_LARGEST_SHIFT)
    most = np.minimum((upper - products).min(axis=1), _LARGEST_SHIFT)
    shifts, order, channels = (least + most) / 2, np.argsort(least - most, axis=0), np.arange(len(slope))
    return [(slopes[best, channels], shifts[best, channels]) for best in order[:_SLOPES]]


class AffineConvolutions(Pass):
    """Write DequantizeLinear, affine ops per channel and QuantizeLinear as a depthwise QLinearConv.

    before: q -> DequantizeLinear -> Sub(mean) -> QuantizeLinear -> p          (N, H, W, C), mean of C numbers
    after:  q -> QLinearConv(one weight per channel, a bias per channel) -> p

    Ops that change no integer, since the two scales differ by the same factor as the numbers, are removed.

    The convolution computes round(((q - zero) * weight + bias) * scale) with a weight of 8 bits. Its parameters are accepted
    only if it returns the same integer as the original ops for each of the 256 integers in every channel.
    """

    name = "affine-convolutions"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the QuantizeLinears."""
        for op in graph.ops:
            chain = _affine_chain(graph, op) if is_quantizer(op) else None
            if chain is not None:
                _rewrite_affine(graph, op, *chain)


def _affine_chain(graph: Graph, quantizer: Op) -> tuple[list[AffineFunction], list[Op]] | None:
    """The affine steps before a QuantizeLinear, and all ops from a DequantizeLinear on; None if there is another op."""
    steps: list[AffineFunction] = []
    ops, value = [quantizer], quantizer.x
    while (producer := graph.producer(value)) is not None:
        ops.append(producer)
        if is_dequantizer(producer):
            return (steps[::-1], ops[::-1]) if steps else None
        found = _affine_step(graph, producer) if graph.has_one_use(value) else None
        if found is None:
            return None
        value = found[0]
        steps.append(found[1])
    return None


def _affine_step(graph: Graph, op: Op) -> tuple[Value, AffineFunction] | None:
    """The operand, and the affine function per channel that an op computes of it, with channels last; None if it is none."""
    function = _AFFINE_OPS.get(op.kind)
    if function is None or op.y.dtype is not DType.FLOAT32:
        return None
    for x, other in (op.inputs, op.inputs[::-1]):
        constant = _numbers(graph, other)
        if constant is None or x is None or x.shape is None or x.shape != op.y.shape or constant.ndim > len(x.shape):
            continue
        is_last_axis_only = constant.size == 1 or (constant.ndim > 0 and constant.size == constant.shape[-1])
        if is_last_axis_only and (x is op.x or op.kind != "Div"):
            return x, partial(_applied, function, constant.reshape(-1), x is op.x)
    return None


def _applied(function: np.ufunc, constant: Array, is_second: bool, numbers: Array) -> Array:
    operands = numbers, constant.astype(numbers.dtype)
    return np.asarray(function(*operands) if is_second else function(*reversed(operands)))


def _numbers(graph: Graph, value: Value | None) -> Array | None:
    """The elements of a constant, also of one that is stored as integers with one scale."""
    if value is not None and value.data is not None:
        return value.data.numpy()
    producer = graph.producer(value)
    stored, integers = Quantization.of(producer), producer.constant(0) if producer is not None else None
    return None if stored is None or integers is None else stored.dequantize(integers.astype(np.int32))


def _rewrite_affine(graph: Graph, quantizer: Op, steps: list[AffineFunction], ops: list[Op]) -> None:
    dequantizer = ops[0]
    x, y, before, after = dequantizer.x, quantizer.y, Quantization.of(dequantizer), Quantization.of(quantizer)
    channels = y.shape[-1] if y.rank == 4 and y.shape is not None else None
    if before is None or after is None or x.type != y.type or not isinstance(channels, int):
        return
    numbers = before.dequantize(before.integers[:, None])
    for step in steps:
        numbers = step(numbers)
    if bool((after.quantize(numbers) == before.integers[:, None]).all()) and not graph.is_output(y):
        graph.replace_uses(y, x)
        graph.remove_if_dead(quantizer)
        return
    found = channel_parameters(before, steps, after, channels) if _is_affine_faster(y, ops) else None
    if found is None:
        return
    weights, scales, biases = found
    x_zero, y_zero = (np.array(each.zero, each.dtype.numpy) for each in (before, after))
    arrays = {"x_zero": x_zero, "weights": weights.reshape(channels, 1, 1, 1), "scales": scales}
    arrays |= {"zeros": np.zeros(channels, np.int8), "y_zero": y_zero, "bias": biases}
    new = [graph.new_constant(array, f"{y.name}/{name}") for name, array in arrays.items()]
    inputs = (x, dequantizer.inputs[1], *new[:4], quantizer.inputs[1], *new[4:])
    attributes: dict[str, Attribute] = {"channels_last": 1, "group": channels, "kernel_shape": (1, 1)}
    graph.opsets.setdefault("com.microsoft", 1)
    result = graph.new_result(
        _CONVOLUTION, inputs, y.type, f"{y.name}/affine", quantizer, version=1, attributes=attributes
    )
    graph.replace_value(y, result)


def _is_affine_faster(y: Value, ops: list[Op]) -> bool:
    """Whether the convolution is estimated to be faster than the ops that it replaces."""
    costs, shape = kernel_costs(), y.static_shape
    if shape is None:
        return True  # the costs of all kernels are proportional to a symbolic batch
    elements, rows = prod(shape), prod(shape[:-1])
    return costs["QLinearConv"].seconds(elements) < sum(costs[op.op_type].seconds(elements, rows) for op in ops)


ELEMENTWISE = frozenset(
    {
        *("DequantizeLinear", "QuantizeLinear"),
        *("Add", "Sub", "Mul", "Div"),
        *("Clip", "Erf", "Exp", "Gelu", "HardSigmoid", "Sigmoid", "Tanh"),
        *(f"com.microsoft::{each}" for each in ("Gelu", "QuickGelu")),
        *(f"com.microsoft::QLinear{each}" for each in ("Add", "Mul", "Sigmoid")),
    }
)
"""Kinds of ops that may be part of a chain; the cost table has a row for each op type."""

_INT32 = 6  # the element type in ONNX
_MIN_OPSET = 11  # the first opset with GatherElements


class Tabulate(Pass):
    """Write chains of element-wise ops on 8-bit integers as tables of 256 integers where that is faster.

    before: q -> DequantizeLinear -> Div -> Erf -> QuantizeLinear -> QLinearAdd(1) -> QLinearMul(q, .) -> QLinearMul(0.5) -> p
    after:  q -> Reshape -> Cast(int32) -> GatherElements(table, .) -> Reshape -> p

    GatherElements is the fastest look-up that onnxruntime has, 1.3 ns per element; Gather takes 10. So only expensive chains
    become tables: GELU takes 2.5 ns, SiLU 0.6. The table has the integers that onnxruntime computes for each of the 256.
    """

    name = "tabulate-integers"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Look at every tensor of integers, the last one first, so that chains are as long as possible."""
        if graph.opsets.get("", 0) < _MIN_OPSET:
            return
        sources, removed = _sources(graph), set[Value | None]()
        for y in reversed(sources):
            producer = graph.producer(y) if y not in removed and y.dtype in _INTEGERS else None
            if producer is None:
                continue
            ops, replaced = _chain(graph, sources[y], y)
            table = _table(graph, sources[y], y, ops) if _is_slow(y, replaced) else None
            if table is not None:
                graph.replace_value(y, _look_up(graph, table, sources[y], y, producer))
                graph.remove_if_dead(producer)
                removed.update(each for op in replaced for each in op.outputs)


def _sources(graph: Graph) -> dict[Value, Value]:
    """The tensor of integers from which a value is computed element by element, in order of the ops."""
    found: dict[Value, Value] = {}
    for op in graph.ops:
        inputs = [x for x in op.inputs if x is not None]
        tensors = {found.get(x, x) for x in inputs if not x.is_constant}
        if op.kind not in ELEMENTWISE or op.y.static_shape is None or len(tensors) != 1:
            continue
        (source,) = tensors
        are_scalars = all(set(x.static_shape or ()) <= {1} for x in inputs if x.is_constant)
        if are_scalars and source.dtype in _INTEGERS and source.static_shape == op.y.static_shape:
            found[op.y] = source
    return found


def _chain(graph: Graph, x: Value, y: Value) -> tuple[list[Op], list[Op]]:
    """The ops between two values, and those that a table replaces, because only they read their results (`y` excepted)."""
    found: set[Op] = set()
    pending, seen = [y], {x}
    while pending:
        value = pending.pop()
        producer = graph.producer(value)
        if value not in seen and producer is not None:
            found.add(producer)
            pending.extend(each for each in producer.inputs if each is not None)
        seen.add(value)
    ops = [op for op in graph.ops if op in found]
    replaced: list[Op] = []
    for op in reversed(ops):
        is_read = graph.is_output(op.y) or any(use.op not in replaced for use in graph.uses(op.y))
        if op.y is y or not is_read:
            replaced.append(op)
    return ops, replaced


def _is_slow(y: Value, replaced: list[Op]) -> bool:
    """Whether a look-up is estimated to take less time than the ops that it replaces."""
    costs, elements = kernel_costs(), prod(y.static_shape or ())
    before = sum(costs[op.op_type].seconds(elements) for op in replaced)
    return before > sum(costs[op].seconds(elements) for op in ("Reshape", "Cast", "GatherElements", "Reshape"))


def _table(graph: Graph, x: Value, y: Value, ops: list[Op]) -> Array | None:
    """The result of a chain for each of the 256 integers, negative ones behind the others; None if onnxruntime fails."""
    assert x.dtype is not None
    integers = np.arange(256).astype(np.uint8).view(x.dtype.numpy)
    part = Graph("table", graph.opsets)
    copies = {x: part.add_value(Value(x.name, x.type_with(integers.shape)))}
    for op in ops:
        for value in (*op.inputs, *op.outputs):
            if value is not None and value not in copies:
                data = None if value.data is None else ArrayData(value.data.numpy().reshape(()))
                type = value.type_with(integers.shape if data is None else ())
                copies[value] = part.add_value(Value(value.name, type, data=data))
        inputs, outputs = (tuple(each and copies[each] for each in side) for side in (op.inputs, op.outputs))
        part.add_op(op.copy(inputs, outputs, name="", order=(), origin=None))
    part.inputs, part.outputs = [copies[x]], [copies[y]]
    try:
        (table,) = inference_session(to_bytes(emit(part)), is_optimised=False).run(None, {x.name: integers})
    except RUNTIME_ERRORS:
        return None
    return np.asarray(table)


def _look_up(graph: Graph, table: Array, x: Value, y: Value, near: Op) -> Value:
    """The new result: an element of the table for every integer of `x`."""
    assert y.static_shape is not None
    flat = add_reshape(graph, x, (prod(y.static_shape),), near)
    type = TensorType(DType.INT32, flat.shape)
    index = graph.new_result("Cast", (flat,), type, f"{y.name}/index", near, attributes={"to": _INT32})
    operands, type = (graph.new_constant(table, f"{y.name}/table"), index), y.type_with(flat.shape)
    integers = graph.new_result("GatherElements", operands, type, f"{y.name}/integers", near, attributes={"axis": 0})
    return add_reshape(graph, integers, y.static_shape, near)


class WidenRows(Pass):
    """Merge columns and channels of images where an operand per channel is broadcast over them.

    before: QLinearMul((N, 112, 112, 16), (1, 1, 1, 16))                                12544 rows of 16 elements
    after:  QLinearMul((N, 112, 112 * 16), (1, 1, 112 * 16))                            112 rows of 1792 elements

    onnxruntime calls the vector kernel once per row. The broadcast operand is repeated for the columns: ahead of time if it is
    a constant, else by a Tile. The kernel combines the same integers, so the results are equal.
    """

    name = "widen-rows"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the ops in order, so that a chain of them has Reshapes at its ends only."""
        budget = context.budget(self, graph)
        for op in graph.ops:
            if op.kind in ("com.microsoft::QLinearAdd", "com.microsoft::QLinearMul"):
                _widen(graph, op, budget)


def _widen(graph: Graph, op: Op, budget: PassBudget) -> None:
    """Merge the last two axes of an op whose other operand, of shape (..., 1, channels), is broadcast, if that saves time."""
    shape, costs = op.y.static_shape, kernel_costs()
    if shape is None or len(shape) < 3 or shape[-2] == 1 or shape[-1] == 1:
        return
    for image, channels in ((0, 3), (3, 0)):
        x, other = op.inputs[image], op.inputs[channels]
        # A shape of fewer axes is one with extents of 1 in front.
        if x is None or other is None or x.static_shape != shape:
            continue
        if (1, *(other.static_shape or ()))[-2:] == (1, shape[-1]):
            break
    else:
        return
    merged_shape = (*shape[:-2], shape[-2] * shape[-1])
    split = graph.producer(x)  # by an earlier rewrite
    source = split.x if split is not None and split.kind == "Reshape" and split.x.shape == merged_shape else None
    reshapes = (1 if source is not None else 2) + (other.data is None)
    seconds = costs[op.op_type].row * prod(shape[:-2]) * (shape[-2] - 1) - reshapes * costs["Reshape"].seconds()
    seconds -= costs["Tile"].seconds() if other.data is None else 0.0
    nbytes = other.data.nbytes * (shape[-2] - 1) if other.data is not None else 0
    if seconds <= 0 or not budget.request(op.name or op.kind, nbytes, seconds):
        return
    inputs = list(op.inputs)
    inputs[image] = source if source is not None else add_reshape(graph, x, merged_shape, graph.producer(x))
    inputs[channels] = _repeated(graph, other, len(shape), shape[-2])
    result = graph.new_copy(op, tuple(inputs), op.y.type_with(merged_shape), f"{op.y.name}/merged", name=op.name)
    graph.replace_value(op.y, add_reshape(graph, result, shape, graph.producer(result)))


def _repeated(graph: Graph, other: Value, rank: int, columns: int) -> Value:
    """An operand per channel, repeated for every column."""
    assert other.static_shape is not None
    if other.data is not None:
        array = other.data.numpy()
        repeated = np.tile(array.reshape(*array.shape[:-2], array.shape[-1]), columns)
        return graph.new_constant(repeated, f"{other.name}/columns")
    shape = (*(1,) * (rank - len(other.static_shape)), *other.static_shape)
    source = other if shape == other.static_shape else add_reshape(graph, other, shape, graph.producer(other))
    repeats = graph.new_constant(np.array([*(1,) * (rank - 2), columns, 1]), f"{other.name}/repeats")
    type = other.type_with((*shape[:-2], columns, shape[-1]))
    tiled = graph.new_result("Tile", (source, repeats), type, f"{other.name}/columns", graph.producer(source))
    return add_reshape(graph, tiled, (*shape[:-2], columns * shape[-1]), graph.producer(tiled))


INTEGER_PASSES: tuple[Pass, ...] = (
    AbsorbPads(),
    AffineConvolutions(),
    Tabulate(),
    WidenRows(),
    ShareConstants(),
    RemoveDead(),
)
