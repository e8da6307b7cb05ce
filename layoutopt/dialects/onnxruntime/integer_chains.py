"""Passes on quantised models after baking: chains of element-wise ops on integers, rows of images, and MaxPool.

Every rewrite computes the same integers as the ops that it replaces, for all input integers; measured costs decide where a
rewrite is made.
"""

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np

from layoutopt.cost.size_growth import PassBudget
from layoutopt.dialects.onnxruntime.integer_fits import fit_convolution, fit_product
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, DType, Op, Value
from layoutopt.onnx_io.emission import emit
from layoutopt.onnx_io.serialize import to_bytes
from layoutopt.ops import estimated_extent, rule_of
from layoutopt.ops.builder import replace_op, rewriting
from layoutopt.ops.qdq import BYTES, SCALE, ZERO_POINT, is_dequantizer, is_per_tensor, is_quantizer
from layoutopt.passes.base import Pass, PassContext
from layoutopt.runtime.errors import RUNTIME_ERRORS
from layoutopt.runtime.session import inference_session

# Measured seconds of stock onnxruntime's kernels, one thread, fitted to uint8 and float32 arrays of (1, 112, 112, 16),
# (1, 56, 56, 16), (1, 56, 56, 72), (1, 28, 28, 88) and (1, 14, 14, 240) on an AMD EPYC (family 25) with AVX2, onnxruntime
# 1.23.2: `python benchmarks/quantised.py kernels` prints the times again.

ELEMENTWISE: dict[str, float] = {
    "DequantizeLinear": 0.20e-9,
    "QuantizeLinear": 0.36e-9,
    "Add": 0.20e-9,
    "Sub": 0.20e-9,
    "Mul": 0.20e-9,
    "Div": 0.30e-9,
    "Clip": 0.17e-9,
    "Erf": 0.82e-9,
    "Exp": 0.40e-9,
    "Gelu": 1.1e-9,
    "com.microsoft::Gelu": 1.1e-9,
    "HardSigmoid": 0.17e-9,
    "com.microsoft::QuickGelu": 0.70e-9,
    "Sigmoid": 0.33e-9,
    "Tanh": 0.33e-9,
    "com.microsoft::QLinearAdd": 0.22e-9,
    "com.microsoft::QLinearMul": 0.32e-9,
    "com.microsoft::QLinearSigmoid": 0.40e-9,
}
"""Seconds per element of the kinds of ops that may be part of a chain."""

_CALL = 2.0e-6
"""Seconds of an op, however few elements it has."""
_LOOK_UP_CALLS, _LOOK_UP = 7.0e-6, 1.44e-9
"""Seconds of a look-up (Reshape, Cast, GatherElements, Reshape), and for each of its elements."""

_PRODUCT = ("com.microsoft::QLinearAdd", "com.microsoft::QLinearMul")
_CONVOLUTION_CALLS, _CONVOLUTION = 7.0e-6, 0.4e-9
"""Seconds of a depthwise 1x1 QLinearConv, with a Reshape at either end, and for each of its elements."""

_MIN_OPSET = 11  # the first opset with GatherElements


class Tabulate(Pass):
    """Write chains of element-wise ops on 8-bit integers as products or tables of 256 integers where that is faster.

    before: q -> DequantizeLinear -> HardSigmoid -> Mul(., DequantizeLinear(q)) -> QuantizeLinear -> p
    after:  q -> QLinearAdd(constant) -> QLinearMul(q, .) -> p

    before: q -> DequantizeLinear -> Div -> Erf -> QuantizeLinear -> QLinearAdd(1) -> QLinearMul(q, .) -> QLinearMul(0.5) -> p
    after:  q -> Reshape -> Cast(int32) -> GatherElements(table, .) -> Reshape -> p

    A chain up to a QuantizeLinear that changes no integer, since the two scales differ by the same factor as the numbers, is
    removed. A product has a factor that is an affine of the integers, which saturates.

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
            producer = graph.producer(y) if y not in removed and y.dtype in BYTES else None
            if producer is None:
                continue
            x, (ops, replaced) = sources[y], _chain(graph, sources, y)
            is_slow, numbers = _is_slow(y, replaced), [producer.x] if is_quantizer(producer) else []
            tables = _evaluated(graph, x, ops, [*numbers, y]) if is_slow or numbers else []
            table = tables[-1].reshape(-1) if tables else None
            is_identity = table is not None and x.dtype is y.dtype and bool((table == _integers(x)).all())
            if is_identity and not graph.is_output(y):
                graph.replace_uses(y, x)
                graph.remove_if_dead(producer)
            elif len(tables) > 1 and _multiply(graph, ops, replaced, *tables):
                pass
            elif is_slow and table is not None:
                _look_up(graph, table, x, y, producer)
            else:
                continue
            removed.update(each for op in replaced for each in op.outputs)


def _integers(x: Value) -> Array:
    """All integers of 8 bits, negative ones behind the others."""
    assert x.dtype is not None
    return np.arange(256).astype(np.uint8).view(x.dtype.numpy)


def _sources(graph: Graph) -> dict[Value, Value]:
    """The tensor of integers from which a value is computed element by element, in order of the ops."""
    found: dict[Value, Value] = {}
    for op in graph.ops:
        tensors = {found.get(x, x) for x in op.present_inputs if not x.is_constant}
        if op.kind not in ELEMENTWISE or op.y.static_shape is None or len(tensors) != 1:
            continue
        (source,) = tensors
        are_scalars = all(set(x.static_shape or ()) <= {1} for x in op.present_inputs if x.is_constant)
        if are_scalars and source.dtype in BYTES and source.static_shape == op.y.static_shape:
            found[op.y] = source
    return found


def _chain(graph: Graph, sources: Mapping[Value, Value], y: Value) -> tuple[list[Op], list[Op]]:
    """The ops that compute a value from its source, and those that a table replaces: only they read the others' results."""
    needed: set[Value | None] = {y}
    ops: list[Op] = []
    replaced: list[Op] = []
    for op in reversed(graph.ops):
        if op.kind not in ELEMENTWISE or op.y not in needed or sources.get(op.y) is not sources[y]:
            continue
        needed.update(op.inputs)
        ops.append(op)
        is_read = graph.is_output(op.y) or any(use.op not in replaced for use in graph.uses(op.y))
        if op.y is y or not is_read:
            replaced.append(op)
    return ops[::-1], replaced


def _is_slow(y: Value, replaced: list[Op]) -> bool:
    """Whether a look-up is estimated to take less time than the ops that it replaces."""
    return _seconds(y, [op.kind for op in replaced]) > _LOOK_UP_CALLS + _LOOK_UP * prod(y.static_shape or ())


def _seconds(y: Value, kinds: Iterable[str]) -> float:
    """The estimated time of element-wise ops on values of the shape of `y`."""
    elements = prod(y.static_shape or ())
    return sum(_CALL + ELEMENTWISE[kind] * elements for kind in kinds)


def _evaluated(graph: Graph, x: Value, ops: list[Op], outputs: list[Value], channels: int = 1) -> list[Array]:
    """The outputs of ops for each of the 256 integers of `x` and each channel; none if onnxruntime fails."""
    integers = np.tile(_integers(x)[:, None], channels).reshape(1, 1, 256, channels)
    part = Graph("table", graph.opsets)
    copies = {x: part.add_value(Value(x.name, x.type_with(integers.shape)))}
    for op in ops:
        for value in op.values:
            if value not in copies:
                array = None if value.data is None else value.data.numpy()
                array = array.reshape(()) if array is not None and array.size == 1 else array
                type = value.type_with(integers.shape if array is None else array.shape)
                data = None if array is None else ArrayData(array)
                copies[value] = part.add_value(Value(value.name, type, data=data))
        part.add_op(op.copy_on(copies, name="", order=(), origin=None))
    part.inputs, part.outputs = [copies[x]], [copies[each] for each in outputs]
    try:
        arrays = inference_session(to_bytes(emit(part)), is_optimised=False).run(None, {x.name: integers})
    except RUNTIME_ERRORS:
        return []
    return [np.asarray(each).reshape(256, channels) for each in arrays]


def _multiply(graph: Graph, ops: list[Op], replaced: list[Op], numbers: Array, integers: Array) -> bool:
    """Write a chain as a product that returns the same integers. Returns whether there is one that is faster."""
    first, y, parameters = ops[0], ops[-1].y, _parameters(ops[0], ops[-1])
    if not parameters or _seconds(y, [op.kind for op in replaced]) <= _seconds(y, _PRODUCT):
        return False
    x_scale, x_zero, y_scale, y_zero = parameters
    fitted = fit_product(int(x_zero), int(y_zero), numbers / y_scale, integers.astype(float))
    if fitted is None:
        return False
    slope, offset, scale = fitted
    scales = np.array((slope, offset, 1)) * (scale * y_scale / x_scale)
    builder, type = rewriting(graph, ops[-1], "product"), y.type_with(y.shape)
    one, zero = (builder.constant(np.array(each, np.uint8), "integer") for each in (1, 0))
    steps, constant, unit = (builder.constant(np.array(each, np.float32), "scale") for each in scales)
    operands = [first.x, steps, first.input(ZERO_POINT), one, constant, zero, unit, zero]
    factor = builder.result("QLinearAdd", operands, type, domain="com.microsoft")
    operands = [*first.inputs, factor, unit, zero, *ops[-1].inputs[SCALE:]]
    result = builder.result("QLinearMul", operands, type, domain="com.microsoft")
    if not _is_equal(graph, first.x, builder.ops, integers):
        return False
    builder.set_output(0, result)
    replace_op(graph, ops[-1], builder)
    return True


def _parameters(dequantizer: Op, quantizer: Op) -> list[Array]:
    """The scale, above zero, and the zero point of each of two Q/DQ ops on uint8 per tensor; none if they are not constants."""
    values = [op.input(index) for op in (dequantizer, quantizer) for index in (SCALE, ZERO_POINT)]
    arrays = [
        x.data.numpy().reshape(()).astype(float)
        for x in values
        if x is not None and x.data is not None and is_per_tensor(x)
    ]
    are_bytes = is_dequantizer(dequantizer) and dequantizer.x.dtype is quantizer.y.dtype is DType.UINT8
    return arrays if are_bytes and len(arrays) == len(values) and min(arrays[::2]) > 0 else []


def _is_equal(graph: Graph, x: Value, ops: list[Op], integers: Array) -> bool:
    """Whether the last op returns the integers, of shape (256, channels), for each of the 256 integers of `x`."""
    found = _evaluated(graph, x, ops, [ops[-1].y], integers.shape[1])
    return bool(found) and bool((found[0] == integers).all())


def _look_up(graph: Graph, table: Array, x: Value, y: Value, producer: Op) -> None:
    """Compute a value as an element of the table for every integer of `x`."""
    builder = rewriting(graph, producer, "table")
    flat = builder.reshape(x, (prod(map(estimated_extent, y.dims)),))
    operands = [builder.constant(table, "integers"), builder.cast(flat, DType.INT32)]
    integers = builder.result("GatherElements", operands, y.type_with(flat.shape), {"axis": 0})
    builder.set_output(0, builder.reshape(integers, y.dims))
    replace_op(graph, producer, builder)


_AFFINE = frozenset({"Add", "DequantizeLinear", "Div", "Mul", "Sub"})
_MANY_CHANNELS = 96
"""The number of channels for which the kernel of a depthwise convolution is as fast as on merged columns and channels."""
_CHANNEL_BYTES = 10
"""Bytes of the weight, the scale, the zero point and the bias of a channel."""
_MOST_CHANNELS = 2048
"""The largest number of channels for which parameters are searched: 0.5 seconds."""


class RequantizeChannels(Pass):
    """Write affine ops per channel between Q/DQ ops as a depthwise 1x1 convolution, for images with channels last.

    before: q -> DequantizeLinear -> Sub(row) -> QuantizeLinear -> p
    after:  q -> Reshape -> QLinearConv(weights, biases) -> Reshape -> p

    The convolution rounds (weight * (q - zero) + bias) * scale, in half the time. Every channel has the weight, the bias and
    the scale with which it returns the integers of the ops; if a channel has none, the ops stay. Few channels are merged with
    the columns.
    """

    name = "requantize-channels"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the QuantizeLinears."""
        budget = context.budget(self, graph)
        for op in graph.ops:
            if op.kind == "QuantizeLinear":
                _requantize(graph, _affine_ops(graph, op), budget)


def _affine_ops(graph: Graph, quantizer: Op) -> list[Op]:
    """The ops from a DequantizeLinear to a QuantizeLinear with one number per channel of an image; none for other ops."""
    ops = [quantizer]
    while not is_dequantizer(ops[0]):
        tensors = [x for x in ops[0].present_inputs if not x.is_constant]
        producer = graph.only_producer(tensors[0]) if len(tensors) == 1 else None
        if producer is None or producer.kind not in _AFFINE:
            return []
        ops.insert(0, producer)
    shape, constants = quantizer.y.static_shape, [x for op in ops for x in op.present_inputs if x.is_constant]
    is_image = (
        shape is not None and len(shape) == 4 and 1 < shape[-1] <= _MOST_CHANNELS and shape == ops[0].x.static_shape
    )
    are_rows = all(set((x.static_shape or ())[:-1]) <= {1} for x in constants)
    return ops if is_image and are_rows and len(ops) > 2 else []


def _requantize(graph: Graph, ops: list[Op], budget: PassBudget) -> None:
    """Replace the ops by a convolution that returns the same integers, if there is one that is faster."""
    parameters = _parameters(ops[0], ops[-1]) if ops else []
    if not parameters:
        return
    first, quantizer = ops[0], ops[-1]
    (x_scale, x_zero, y_scale, y_zero), y, shape = parameters, quantizer.y, quantizer.y.static_shape or ()
    seconds = _seconds(y, [op.kind for op in ops]) - _CONVOLUTION_CALLS - _CONVOLUTION * prod(shape)
    columns = shape[2] if shape[-1] < _MANY_CHANNELS else 1
    if seconds <= 0 or not budget.request(quantizer.name, _CHANNEL_BYTES * shape[-1] * columns, seconds):
        return
    tables = _evaluated(graph, first.x, ops, [quantizer.x, y], shape[-1])
    fitted = fit_convolution(int(x_zero), int(y_zero), tables[0] / y_scale, tables[1].astype(float)) if tables else None
    if fitted is None:
        return
    weights, biases, scales = fitted
    units, zeros = (scales * y_scale / x_scale).astype(np.float32), np.zeros(shape[-1], np.int8)
    rows = [np.tile(each, columns) for each in (weights.astype(np.int8), units, zeros, biases.astype(np.int32))]
    builder, merged = rewriting(graph, quantizer, "requantized"), (*shape[:2], shape[2] // columns, shape[3] * columns)
    filters, unit, zero, bias = (builder.constant(each, "row") for each in (rows[0].reshape(-1, 1, 1, 1), *rows[1:]))
    q, attributes = builder.reshape(first.x, merged), {"channels_last": 1, "group": merged[-1]}
    operands = [q, *first.inputs[SCALE:], filters, unit, zero, *quantizer.inputs[SCALE:], bias]
    result = builder.result("QLinearConv", operands, y.type_with(merged), attributes, "com.microsoft")
    if _is_equal(graph, q, builder.ops[-1:], np.tile(tables[1], columns)):
        builder.set_output(0, builder.reshape(result, shape))
        replace_op(graph, quantizer, builder)


_BROADCASTING = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), (0, 1, 13e-9)),
    "com.microsoft::QLinearAdd": (0, 3, 34e-9),
    "com.microsoft::QLinearMul": (0, 3, 13e-9),
}
"""The indices of the two operands of the ops whose kernels are called once per row, and the seconds of such a call."""
_RESHAPES, _EXPAND = 3.0e-6, 5.5e-6
"""Seconds of a Reshape at either end, and of Expand and Reshape of a computed operand."""


class WidenRows(Pass):
    """Merge columns and channels of images where an operand per channel is broadcast over them.

    before: QLinearMul((N, 112, 112, 16), (1, 1, 1, 16))                                12544 rows of 16 elements
    after:  QLinearMul((N, 112, 112 * 16), (1, 1, 112 * 16))                            112 rows of 1792 elements

    onnxruntime calls the vector kernel once per row. The broadcast operand is repeated for the columns: ahead of time if it is
    a constant, else by an Expand. The kernel combines the same numbers, so the results are equal.
    """

    name = "widen-rows"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the ops; `simplify-reshapes` leaves Reshapes at the ends of a chain of them."""
        budget = context.budget(self, graph)
        for op in graph.ops:
            if op.kind in _BROADCASTING:
                _widen(graph, op, budget)


def _widen(graph: Graph, op: Op, budget: PassBudget) -> None:
    """Merge the last two axes of an op whose other operand, of shape (..., 1, channels), is broadcast, if that saves time."""
    shape = op.y.static_shape
    if shape is None or len(shape) < 3 or shape[-2] == 1 or shape[-1] == 1:
        return
    first, second, row = _BROADCASTING[op.kind]
    for image, channels in ((first, second), (second, first)):
        x, other = op.inputs[image], op.inputs[channels]
        # A shape of fewer axes is one with extents of 1 in front.
        if x is None or other is None or x.static_shape != shape:
            continue
        if (1, *(other.static_shape or ()))[-2:] == (1, shape[-1]):
            break
    else:
        return
    merged_shape, columns = (*shape[:-2], shape[-2] * shape[-1]), shape[-2]
    is_computed, outer = other.data is None, other.dims[:-2]
    seconds = row * prod(shape[:-2]) * (columns - 1) - _RESHAPES - is_computed * _EXPAND
    nbytes = other.data.nbytes * (columns - 1) if other.data is not None else 0
    if seconds <= 0 or not budget.request(op.name or op.kind, nbytes, seconds):
        return
    builder, inputs = rewriting(graph, op, "merged"), list(op.inputs)
    inputs[image] = builder.reshape(x, merged_shape)
    if other.data is not None:
        array = other.data.numpy()
        repeated = np.tile(array.reshape(*array.shape[:-2], shape[-1]), columns)
        inputs[channels] = builder.constant(repeated, "columns")
    else:
        expanded = builder.expand(builder.reshape(other, (*outer, 1, shape[-1])), x, 2)
        inputs[channels] = builder.reshape(expanded, (*outer, merged_shape[-1]))
    result = builder.result(op.op_type, inputs, op.y.type_with(merged_shape), op.attributes)
    builder.set_output(0, builder.reshape(result, shape))
    replace_op(graph, op, builder)


_FEW = 1 << 12
"""The number of compared elements below which the kernel takes no longer than two Transposes."""


class PoolChannelsLast(Pass):
    """Write a MaxPool on integers with channels last, and cancel its Transposes with those around it.

    before: q -> MaxPool -> Transpose(0, 2, 3, 1) -> p
    after:  q -> Transpose(0, 2, 3, 1) -> NhwcMaxPool -> p

    The kernel for channels first compares 0.2 to 0.4 elements per ns, the other one 8 to 27, and a Transpose moves 10. The pass
    runs before baking, too, for a MaxPool outside of QDQ groups.
    """

    name = "pool-channels-last"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the MaxPools without indices, then the Transposes."""
        for op in graph.ops:
            rule = rule_of(op) if op.kind == "MaxPool" and op.x.dtype in BYTES and op.x.shape else None
            if rule is None or len(op.present_outputs) > 1 or (op.y.static_shape is not None and rule.flops(op) < _FEW):
                continue
            rank = len(op.x.dims)
            last, first = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
            builder, attributes = rewriting(graph, op, "last"), {**op.attributes}
            attributes.pop("storage_order", None)  # of indices
            type = op.y.type_with(tuple(op.y.dims[axis] for axis in last))
            inputs = [builder.transpose(op.x, last)]
            pooled = builder.result("NhwcMaxPool", inputs, type, attributes, "com.microsoft")
            builder.set_output(0, builder.transpose(pooled, first))
            graph.opsets.setdefault("com.microsoft", 1)
            replace_op(graph, op, builder)
        for op in graph.ops:
            before = graph.producer(op.x) if op.kind == "Transpose" else None
            if before is not None and before.kind == "Transpose" and not graph.is_output(op.y):
                perm = before.integers("perm")
                if [perm[axis] for axis in op.integers("perm")] == list(range(len(perm))):
                    graph.replace_uses(op.y, before.x)
