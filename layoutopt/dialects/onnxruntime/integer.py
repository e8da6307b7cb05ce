"""Passes on quantised models after baking: QLinear ops with channels last, and Q/DQ ops around other ops.

The dialect runs them after baking. Every rewrite computes the same integers as the ops that it replaces, for all input
integers; measured costs (`integer_costs.toml`) decide where a rewrite is made.
"""

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from layoutopt.cost.size_growth import PassBudget
from layoutopt.dialects.builder import add_reshape
from layoutopt.dialects.onnxruntime.tables import kernel_costs
from layoutopt.ir.constants import stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, DType, Op, TensorType, Value
from layoutopt.onnx_io.emission import emit
from layoutopt.onnx_io.serialize import to_bytes
from layoutopt.ops.qdq import is_dequantizer, is_lossless_round_trip, is_quantizer
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
        scale: the scale, above zero.
        zero: the zero point.
        dtype: int8 or uint8.
    """

    scale: np.float32
    zero: int
    dtype: DType

    @classmethod
    def of(cls, op: Op, integers: Value | None) -> "Quantization | None":
        """The quantisation of a Q/DQ op, whose integers have a type; None unless scale and zero point are constant scalars."""
        scale, zero = op.constant(1), op.constant(2)
        has_zero = len(op.inputs) > 2 and op.inputs[2] is not None
        if integers is None or integers.dtype not in _INTEGERS or scale is None or scale.size != 1:
            return None
        if (
            scale.dtype != np.float32
            or not 0 < scale.item() < np.inf
            or (has_zero and (zero is None or zero.size != 1))
        ):
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


@dataclass(frozen=True, slots=True)
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
            if op.kind == _CONVOLUTION and op.integer("channels_last"):
                _absorb(graph, op)


def _absorb(graph: Graph, conv: Op) -> None:
    quantizer = graph.only_producer(conv.inputs[0])
    pad = graph.only_producer(quantizer.inputs[0]) if quantizer is not None and is_quantizer(quantizer) else None
    if quantizer is None or pad is None or pad.kind != "Pad" or pad.inputs[0] is None:
        return
    dequantizer, added = graph.producer(pad.inputs[0]), _spatial_pads(pad)
    if dequantizer is None or not is_dequantizer(dequantizer) or added is None:
        return
    present = conv.integers("pads") or (0,) * len(added)
    # The Pad changes the shape between the two ops.
    same_shape = quantizer.copy(quantizer.inputs, (dequantizer.inputs[0],))
    scale = quantizer.constant(1)
    is_per_tensor = scale is not None and scale.size == 1
    if not is_per_tensor or len(present) != len(added) or not is_lossless_round_trip(same_shape, dequantizer):
        return
    if conv.attributes.get("auto_pad", "NOTSET") == "NOTSET":
        conv.attributes["pads"] = tuple(old + new for old, new in zip(present, added, strict=True))
        graph.set_input(conv, 0, dequantizer.inputs[0])
        graph.remove_if_dead(quantizer)


def _spatial_pads(pad: Op) -> tuple[int, ...] | None:
    """The zeros that a Pad adds to the spatial axes of (N, *spatial, C): begins, then ends. None if it adds more than those."""
    x, widths, value = pad.inputs[0], pad.constant(1), pad.constant(2)
    has_zeros = len(pad.inputs) < 3 or pad.inputs[2] is None or (value is not None and not value.any())
    if x is None or x.rank is None or widths is None or widths.size != 2 * x.rank or len(pad.inputs) > 3:
        return None
    ends = widths.reshape(2, -1)
    if (
        pad.attributes.get("mode", "constant") != "constant"
        or not has_zeros
        or ends.min() < 0
        or ends[:, [0, -1]].any()
    ):
        return None
    return tuple(ends[:, 1:-1].ravel().tolist())


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
        operands = (numbers, self.constant.astype(numbers.dtype))
        return np.asarray(_AFFINE_OPS[self.kind](*operands[:: -1 if self.is_first else 1]))


def channel_parameters(
    before: Quantization, steps: list[AffineStep], after: Quantization, channels: int
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
    weights, scales = np.zeros(channels, np.int8), np.zeros(channels, np.float32)
    biases = np.zeros(channels, np.int32)
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
            return weights, scales, biases
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


@dataclass(frozen=True, slots=True)
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


def _rewrite_affine(graph: Graph, quantizer: Op, dequantizer: Op, steps: list[AffineStep], ops: list[Op]) -> None:
    x, y = dequantizer.inputs[0], quantizer.outputs[0]
    before, after = Quantization.of(dequantizer, x), Quantization.of(quantizer, y)
    if x is None or y is None or y.shape is None or len(y.shape) != 4 or x.type != y.type:
        return
    channels = y.shape[-1]
    if before is None or after is None or not isinstance(channels, int):
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
    arrays = {
        "weights": weights.reshape(channels, 1, 1, 1),
        "scales": scales,
        "zeros": np.zeros(channels, np.int8),
        "bias": biases,
        "x_zero": x_zero,
        "y_zero": y_zero,
    }
    new = {name: graph.new_constant(array, f"{y.name}/{name}") for name, array in arrays.items()}
    filters = (new["weights"], new["scales"], new["zeros"])
    inputs = (x, dequantizer.inputs[1], new["x_zero"], *filters, quantizer.inputs[1], new["y_zero"], new["bias"])
    attributes: dict[str, Attribute] = {"channels_last": 1, "group": channels, "kernel_shape": (1, 1)}
    graph.opsets.setdefault("com.microsoft", 1)
    stem = f"{y.name}/affine"
    graph.replace_value(
        y, graph.new_result(_CONVOLUTION, inputs, y.type, stem, quantizer, version=1, attributes=attributes)
    )


def _affine_chain(graph: Graph, quantizer: Op) -> tuple[Op, list[AffineStep], list[Op]] | None:
    """The DequantizeLinear and the affine steps before a QuantizeLinear, and all their ops; None if there is another op."""
    steps: list[AffineStep] = []
    ops, value = [quantizer], quantizer.inputs[0]
    while value is not None and (producer := graph.producer(value)) is not None:
        ops.append(producer)
        if is_dequantizer(producer):
            return (producer, steps[::-1], ops[::-1]) if steps else None
        step = _affine_step(graph, producer) if graph.has_one_use(value) else None
        if step is None:
            return None
        steps.append(step)
        value = producer.inputs[1 if step.is_first else 0]
    return None


def _affine_step(graph: Graph, op: Op) -> AffineStep | None:
    """The affine function per channel that an op computes, with channels last; None if it is none."""
    y = op.outputs[0]
    if op.kind not in _AFFINE_OPS or y is None or y.dtype is not DType.FLOAT32:
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
    integers = producer.inputs[0] if producer is not None and is_dequantizer(producer) else None
    stored = Quantization.of(producer, integers) if producer is not None else None
    if stored is None or integers is None or integers.data is None:
        return None
    return stored.dequantize(integers.data.numpy().astype(np.int32))


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


@dataclass(frozen=True, slots=True)
class Chain:
    """Element-wise ops that compute one tensor from one tensor.

    Attributes:
        x: the integers that are read.
        y: the integers that are computed.
        ops: the ops, in order.
        replaced: those that the table replaces, because only ops of the chain read their results (`y` excepted).
    """

    x: Value
    y: Value
    ops: list[Op]
    replaced: list[Op]

    @property
    def is_slow(self) -> bool:
        """Whether a look-up is estimated to take less time than the ops that it replaces."""
        costs, elements = kernel_costs(), prod(self.y.static_shape or ())
        before = sum(costs[op.op_type].seconds(elements) for op in self.replaced)
        return before > sum(costs[op].seconds(elements) for op in ("Reshape", "Cast", "GatherElements", "Reshape"))


@dataclass(frozen=True, slots=True)
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
            chain = _chain(graph, sources[y], y)
            table = _table(graph, chain) if chain.is_slow else None
            if table is not None:
                graph.replace_value(y, _look_up(graph, table, chain, producer))
                graph.remove_if_dead(producer)
                removed.update(each for op in chain.replaced for each in op.outputs)


def _sources(graph: Graph) -> dict[Value, Value]:
    """The tensor of integers from which a value is computed element by element, in order of the ops."""
    found: dict[Value, Value] = {}
    for op in graph.ops:
        y = op.outputs[0] if len(op.outputs) == 1 and op.kind in ELEMENTWISE else None
        inputs = [x for x in op.inputs if x is not None]
        tensors = {found.get(x, x) for x in inputs if not x.is_constant}
        if y is None or y.static_shape is None or len(tensors) != 1:
            continue
        (source,) = tensors
        are_scalars = all(set(x.static_shape or ()) <= {1} for x in inputs if x.is_constant)
        if are_scalars and source.dtype in _INTEGERS and source.static_shape == y.static_shape:
            found[y] = source
    return found


def _chain(graph: Graph, x: Value, y: Value) -> Chain:
    """The ops between two values."""
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
        result = op.outputs[0]
        assert result is not None
        if result is y or not (graph.is_output(result) or any(use.op not in replaced for use in graph.uses(result))):
            replaced.append(op)
    return Chain(x, y, ops, replaced)


def _table(graph: Graph, chain: Chain) -> Array | None:
    """The result of a chain for each of the 256 integers, negative ones behind the others; None if onnxruntime fails."""
    x, y = chain.x, chain.y
    assert x.dtype is not None and y.dtype is not None
    integers = np.arange(256).astype(np.uint8).view(x.dtype.numpy)
    part = Graph("table", graph.opsets)
    copies = {x: part.add_value(Value(x.name, TensorType(x.dtype, integers.shape)))}
    for op in chain.ops:
        for value in (*op.inputs, *op.outputs):
            if value is not None and value not in copies:
                copies[value] = part.add_value(_copy(value, integers.shape))
        inputs, outputs = (tuple(None if v is None else copies[v] for v in side) for side in (op.inputs, op.outputs))
        part.add_op(op.copy(inputs, outputs, name="", order=(), origin=None))
    part.inputs, part.outputs = [copies[x]], [copies[y]]
    try:
        (table,) = inference_session(to_bytes(emit(part)), is_optimised=False).run(None, {x.name: integers})
    except RUNTIME_ERRORS:
        return None
    return np.asarray(table)


def _copy(value: Value, shape: tuple[int, ...]) -> Value:
    """A constant as a scalar, any other value in the shape of the table."""
    assert value.dtype is not None
    if value.data is None:
        return Value(value.name, TensorType(value.dtype, shape))
    return Value(value.name, TensorType(value.dtype, ()), data=ArrayData(value.data.numpy().reshape(())))


def _look_up(graph: Graph, table: Array, chain: Chain, near: Op) -> Value:
    """The new result: an element of the table for every integer of `x`."""
    x, y = chain.x, chain.y
    assert y.dtype is not None and y.static_shape is not None
    flat = add_reshape(graph, x, (prod(y.static_shape),), near)
    type = TensorType(DType.INT32, flat.shape)
    index = graph.new_result("Cast", (flat,), type, f"{y.name}/index", near, attributes={"to": _INT32})
    operands = (graph.new_constant(table, f"{y.name}/table"), index)
    type = TensorType(y.dtype, flat.shape)
    integers = graph.new_result("GatherElements", operands, type, f"{y.name}/integers", near, attributes={"axis": 0})
    return add_reshape(graph, integers, y.static_shape, near)


@dataclass(frozen=True, slots=True)
class ChannelBroadcast:
    """A QLinearAdd or QLinearMul with an operand that has one number per channel.

    Attributes:
        op: the op.
        image: the index of the operand of the result's shape (..., columns, channels).
        channels: the index of the operand of shape (..., 1, channels).
        shape: the shape of the result.
    """

    op: Op
    image: int
    channels: int
    shape: tuple[int, ...]

    @property
    def merged(self) -> tuple[int, ...]:
        """The shape of the result with columns and channels as one axis."""
        return (*self.shape[:-2], self.shape[-2] * self.shape[-1])

    @property
    def added_bytes(self) -> int:
        """The growth of a constant operand that is repeated for every column."""
        other = self.op.inputs[self.channels]
        return other.data.nbytes * (self.shape[-2] - 1) if other is not None and other.data is not None else 0

    def merged_source(self, graph: Graph) -> Value | None:
        """The value of merged shape that a Reshape of an earlier rewrite splits."""
        producer = graph.producer(_tensor(self.op, self.image))
        source = producer.inputs[0] if producer is not None and producer.kind == "Reshape" else None
        return source if source is not None and source.static_shape == self.merged else None

    def saved_seconds(self, graph: Graph) -> float:
        """The estimated time that fewer rows save, minus that of the Reshapes and the Tile that it takes."""
        costs = kernel_costs()
        saved = costs[self.op.op_type].row * prod(self.shape[:-2]) * (self.shape[-2] - 1)
        added = (1 if self.merged_source(graph) is not None else 2) * costs["Reshape"].seconds()
        if not _tensor(self.op, self.channels).is_constant:
            added += costs["Tile"].seconds() + costs["Reshape"].seconds()
        return saved - added


def _tensor(op: Op, index: int) -> Value:
    value = op.inputs[index]
    assert value is not None
    return value


@dataclass(frozen=True, slots=True)
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
        budget = PassBudget(context.growth, self.name, context.growth.limit - stored_bytes(graph.regions()))
        for op in graph.ops:
            each = _broadcast_of(op)
            seconds = 0.0 if each is None else each.saved_seconds(graph)
            if each is not None and seconds > 0 and budget.request(op.name or op.kind, each.added_bytes, seconds):
                _widen(graph, each)


def _broadcast_of(op: Op) -> ChannelBroadcast | None:
    y = op.outputs[0] if op.kind in ("com.microsoft::QLinearAdd", "com.microsoft::QLinearMul") else None
    shape = y.static_shape if y is not None else None
    if shape is None or len(shape) < 3 or shape[-2] == 1:
        return None
    for image, channels in ((0, 3), (3, 0)):
        x, other = op.inputs[image], op.inputs[channels]
        if x is None or other is None or x.static_shape != shape or other.static_shape is None:
            continue
        # A shape of fewer axes is one with extents of 1 in front.
        if (1, *other.static_shape)[-2:] == (1, shape[-1]) and shape[-1] > 1:
            return ChannelBroadcast(op, image, channels, shape)
    return None


def _widen(graph: Graph, broadcast: ChannelBroadcast) -> None:
    op, y = broadcast.op, broadcast.op.outputs[0]
    x, other = _tensor(op, broadcast.image), _tensor(op, broadcast.channels)
    assert y is not None and y.dtype is not None
    merged = broadcast.merged_source(graph) or add_reshape(graph, x, broadcast.merged, graph.producer(x))
    inputs = list(op.inputs)
    inputs[broadcast.image], inputs[broadcast.channels] = merged, _repeated(graph, other, broadcast)
    result = graph.new_value(f"{y.name}/merged", TensorType(y.dtype, broadcast.merged))
    copy = graph.add_copy(op, (result,), tuple(inputs), name=op.name)
    graph.replace_value(y, add_reshape(graph, result, broadcast.shape, copy))


def _repeated(graph: Graph, other: Value, broadcast: ChannelBroadcast) -> Value:
    """The operand per channel, repeated for every column."""
    columns, channels = broadcast.shape[-2:]
    assert isinstance(other.type, TensorType) and other.static_shape is not None
    if other.data is not None:
        array = other.data.numpy()
        repeated = np.tile(array.reshape(*array.shape[:-2], channels), columns)
        return graph.new_constant(repeated, f"{other.name}/columns")
    shape = (*(1,) * (len(broadcast.shape) - len(other.static_shape)), *other.static_shape)
    source = other if shape == other.static_shape else add_reshape(graph, other, shape, graph.producer(other))
    repeats = graph.new_constant(np.array([*(1,) * (len(shape) - 2), columns, 1]), f"{other.name}/repeats")
    type = TensorType(other.type.dtype, (*shape[:-2], columns, channels))
    tiled = graph.new_result("Tile", (source, repeats), type, f"{other.name}/columns", graph.producer(source))
    return add_reshape(graph, tiled, (*shape[:-2], columns * channels), graph.producer(tiled))


INTEGER_PASSES: tuple[Pass, ...] = (
    AbsorbPads(),
    AffineConvolutions(),
    Tabulate(),
    WidenRows(),
    ShareConstants(),
    RemoveDead(),
)
