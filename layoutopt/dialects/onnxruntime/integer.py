"""Passes on quantised models: Q/DQ ops around other ops, before and after baking, and QLinear ops with channels last.

Every rewrite after baking computes the same integers as the ops that it replaces, for all input integers; measured costs
decide where a rewrite is made.
"""

from collections.abc import Mapping
from math import prod

import numpy as np

from layoutopt.cost.size_growth import PassBudget
from layoutopt.dialects.passes import SimplifyReshapes
from layoutopt.formats import product
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Data, DType, Op, TensorType, Value
from layoutopt.onnx_io.emission import emit
from layoutopt.onnx_io.serialize import to_bytes
from layoutopt.ops import estimated_extent, flags, rule_of
from layoutopt.ops.builder import replace_op, rewriting
from layoutopt.ops.qdq import (
    SCALE,
    ZERO_POINT,
    has_folded_weights,
    is_dequantizer,
    is_passed_by_quantizers,
    is_per_tensor,
    is_quantizer,
    ops_to_quantizer,
    with_other_sign,
)
from layoutopt.ops.view import Reshape
from layoutopt.passes import RemoveDead, ShareConstants
from layoutopt.passes.base import Pass, PassContext
from layoutopt.record import Record
from layoutopt.runtime.errors import RUNTIME_ERRORS
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN, blocked_channels
from layoutopt.runtime.session import inference_session

_INTEGERS = (DType.INT8, DType.UINT8)


_LARGEST_WEIGHT = 64
"""The largest magnitude of int8 weights for which the sum of two products with uint8 fits into 16 bits."""


_ONE_TYPE = frozenset({"elementwise", "pooling", "rearrangement", "resize", "view"})
"""Families of ops whose kernels on integers have operands and results of one type."""


class UnsignActivations(Pass):
    """Store activations that are quantised to int8 as uint8: integers and zero points are 128 more.

    before: x -> QuantizeLinear(zero = 3)   -> q: int8  -> DequantizeLinear(zero = 3)   -> Conv, Add
    after:  x -> QuantizeLinear(zero = 131) -> q: uint8 -> DequantizeLinear(zero = 131) -> Conv, Add

    No floating-point value changes. On x86 onnxruntime has integer kernels for activations of uint8 only. It converts int8 by
    itself only where one op reads a tensor, and computes other QDQ groups in floating point. Constant operands become uint8
    where the operands of a kernel have one type, or where the kernel for uint8 and int8 would saturate: without VNNI it adds
    two products in 16 bits.
    """

    name = "unsign-activations"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Convert the operands of every op that has only convertible ones."""
        if blocked_channels() is None:  # on Arm onnxruntime has integer kernels for int8 activations
            return
        groups = {op: _tied(graph, op) for op in graph.ops if not is_quantizer(op)}
        tied: dict[Value, set[Value]] = {}
        for group in groups.values():
            for x in group:
                tied.setdefault(x, set()).update(group)
        convertible = {x for x in graph.values if x.dtype is DType.INT8 and _is_convertible(graph, x)}
        refused = [x for x in tied if x not in convertible]
        while refused:
            found = tied[refused.pop()] & convertible
            convertible -= found
            refused += found
        activations = {x for x in convertible if not x.is_constant}
        constants = {
            x
            for op, group in groups.items()
            if not group.isdisjoint(activations)
            for x in group - activations
            if flags(op).family in _ONE_TYPE or _is_wide(x)
        }
        for x in graph.values:
            if x in activations or x in constants:
                _unsign(graph, x)


def _tied(graph: Graph, op: Op) -> set[Value]:
    """The tensors of int8 that an op reads dequantised and, if its kernel has one type, those that its results become.

    It may read them behind ops past which onnxruntime moves a DequantizeLinear.
    """
    sources = (_source(graph, value) for value in op.inputs if value is not None)
    found = {each.x for each in sources if each is not None and is_dequantizer(each)}
    if flags(op).family in _ONE_TYPE:
        chains = (ops_to_quantizer(graph, y) for y in op.outputs if y is not None)
        found.update(chain[-1].y for chain in chains if chain)
    return {x for x in found if x.dtype is DType.INT8}


def _is_convertible(graph: Graph, integers: Value) -> bool:
    """Whether only Q/DQ ops with known zero points compute and read a tensor of integers, an activation per tensor."""
    producer, readers = graph.producer(integers), list(graph.readers(integers))
    if not (integers.is_constant if producer is None else is_quantizer(producer)) or graph.is_output(integers):
        return False
    if producer is not None and (producer.input(ZERO_POINT) is None or "output_dtype" in producer.attributes):
        return False
    if not all(is_dequantizer(use.op) and use.index == 0 for use in graph.uses(integers)):
        return False
    ops = [op for op in (producer, *readers) if op is not None]
    zeros, scales = ([op.input(index) for op in ops] for index in (ZERO_POINT, SCALE))
    if producer is None:
        return all(each is None or each.is_constant for each in (*zeros, *scales))
    return all(each is None or each.is_constant for each in zeros) and all(map(is_per_tensor, scales))


def _is_wide(weights: Value) -> bool:
    assert weights.data is not None
    return bool((np.abs(weights.data.numpy().astype(np.int16)) > _LARGEST_WEIGHT).any())


def _unsign(graph: Graph, integers: Value) -> None:
    """Convert a tensor of int8 to uint8, and the zero points of the Q/DQ ops around it."""
    for op in filter(None, (graph.producer(integers), *graph.readers(integers))):
        zero, scale = op.constant(ZERO_POINT), op.inputs[SCALE]
        if zero is None:
            zero = np.zeros(scale.dims if scale is not None else (), np.int8)
        unsigned = graph.new_constant(with_other_sign(zero), f"{integers.name}/zero")
        graph.set_inputs(op, (*op.inputs[:ZERO_POINT], unsigned))
    integers.give_type(TensorType(DType.UINT8, integers.shape))
    if integers.data is not None:
        integers.data = OtherSign(integers.data)


class OtherSign(Record):
    """A lazy constant of 8-bit integers in the type of the other signedness."""

    data: Data

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.data.nbytes

    def numpy(self) -> Array:
        """The elements."""
        return with_other_sign(self.data.numpy())


class DetachQuantizers(Pass):
    """Insert a Flatten in front of a QuantizeLinear of the result of a convolution with dequantised weights.

    before: q -> DequantizeLinear -> Conv -> Relu -> QuantizeLinear -> p
    after:  q -> DequantizeLinear -> Conv -> Relu -> Flatten -> QuantizeLinear -> Reshape -> p

    onnxruntime 1.32 would quantise the weights again, per tensor, or with ops of the domain nchwc, which do not exist. It moves
    a QuantizeLinear past a Reshape, but not past a Flatten.
    """

    name = "detach-quantizers"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the QuantizeLinears per tensor."""
        for op in filter(is_quantizer, graph.ops):
            source = _source(graph, op.x)
            if source is None or not is_per_tensor(op.inputs[SCALE]):
                continue
            is_plain = has_folded_weights(source) and is_dequantizer(_source(graph, source.x))
            if not is_plain and source.domain != BLOCKED_DOMAIN:
                continue
            builder, shape = rewriting(graph, op, "flat"), (1, product(op.x.dims))
            (flat,) = builder.op("Flatten", [op.x], [op.x.type_with(shape)], {"axis": 0})
            (integers,) = builder.op(op.op_type, [flat, *op.inputs[1:]], [op.y.type_with(shape)], op.attributes)
            builder.set_output(0, builder.reshape(integers, op.y.dims))
            replace_op(graph, op, builder)


def _source(graph: Graph, value: Value) -> Op | None:
    """The op that computes a value, apart from ops past which onnxruntime moves Q/DQ ops."""
    source = graph.producer(value)
    while source is not None and source.domain != BLOCKED_DOMAIN and is_passed_by_quantizers(source):
        source = graph.producer(source.x)
    return source


# Before baking: ops between Q/DQ ops for which onnxruntime would choose a slow kernel when it loads the model. It moves Q/DQ
# ops past Reshapes, so they need not be adjacent to what these ops become.

_SMALLEST = 1 << 12
"""The smallest number of elements for which Q/DQ ops and Softmax are faster than the kernel on integers."""
_ONE_AXIS = 13  # since this opset a Softmax is along one axis
_IMAGE_AXES: dict[tuple[int, ...], bool] = {(2, 3): False, (1, 2): True}  # whether channels are last


class ChooseIntegerKernels(Pass):
    """Write a mean of an image as GlobalAveragePool and a Softmax on a matrix, between Q/DQ ops.

    before: q -> DequantizeLinear -> ReduceMean(H, W) -> QuantizeLinear
    after:  q -> DequantizeLinear -> GlobalAveragePool -> Reshape -> QuantizeLinear

    before: q -> DequantizeLinear -> Softmax -> QuantizeLinear
    after:  q -> DequantizeLinear -> Flatten -> Softmax -> Reshape -> QuantizeLinear

    onnxruntime computes a GlobalAveragePool on integers and a ReduceMean in floating point: 17 us against 246 on
    uint8[1,112,112,16] with channels last, which are transposed in front of the DequantizeLinear. Of a Softmax directly behind
    a DequantizeLinear it makes QLinearSoftmax, whose kernel divides element by element: 7.8 ms against 1.1 on
    uint8[4,4,256,256] (onnxruntime 1.23.2, one thread, AVX2). Flatten and Reshape move no data.
    """

    name = "choose-integer-kernels"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the ReduceMeans and the Softmaxes along one axis."""
        for op in graph.ops:
            dequantizer = graph.producer(op.x) if op.kind in ("ReduceMean", "Softmax") else None
            if dequantizer is None or not is_dequantizer(dequantizer):
                continue
            if op.kind == "ReduceMean":
                _write_mean(graph, op, dequantizer)
            elif op.version >= _ONE_AXIS:
                _write_softmax(graph, op)


def _write_mean(graph: Graph, mean: Op, dequantizer: Op) -> None:
    q, axes = dequantizer.x, mean.elements(1) or mean.integers("axes")
    is_last = _IMAGE_AXES.get(tuple(sorted(axis % 4 for axis in axes or () if isinstance(axis, int))))
    last, quantizer = mean, graph.only_reader(mean.y)
    while quantizer is not None and isinstance(rule_of(quantizer), Reshape):
        last, quantizer = quantizer, graph.only_reader(quantizer.y)
    if is_last is None or q.rank != 4 or q.dtype not in _INTEGERS or not is_per_tensor(dequantizer.inputs[1]):
        return
    if not is_quantizer(quantizer):
        return
    builder = rewriting(graph, last, "image")
    image = builder.transpose(q, (0, 3, 1, 2)) if is_last else q
    inputs, types = (image, *dequantizer.inputs[1:]), [mean.x.type_with(image.dims)]
    domain = dequantizer.domain or None
    (numbers,) = builder.op(dequantizer.op_type, inputs, types, dequantizer.attributes, domain)
    (pooled,) = builder.op("GlobalAveragePool", [numbers], [mean.y.type_with((*image.dims[:2], 1, 1))])
    builder.set_output(0, builder.reshape(pooled, last.y.dims))
    # The sum has other rounding errors, so the name is new: models are compared at the integers only.
    graph.rename(last.y, graph.fresh_name(f"{last.y.name}/mean"))
    replace_op(graph, last, builder)


def _write_softmax(graph: Graph, softmax: Op) -> None:
    shape, quantizer = softmax.y.static_shape, graph.only_reader(softmax.y)
    if shape is None or quantizer is None or not is_quantizer(quantizer) or not is_per_tensor(quantizer.inputs[1]):
        return
    if prod(shape) < _SMALLEST or softmax.integer("axis", -1) % len(shape) != len(shape) - 1:
        return
    builder, types = rewriting(graph, softmax, "matrix"), [softmax.y.type_with((prod(shape[:-1]), shape[-1]))]
    (flat,) = builder.op("Flatten", [softmax.x], types, {"axis": len(shape) - 1})
    (result,) = builder.op("Softmax", [flat], types, {"axis": -1})
    builder.set_output(0, builder.reshape(result, shape))
    replace_op(graph, softmax, builder)


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

_MIN_OPSET = 11  # the first opset with GatherElements


class Tabulate(Pass):
    """Write chains of element-wise ops on 8-bit integers as tables of 256 integers where that is faster.

    before: q -> DequantizeLinear -> Div -> Erf -> QuantizeLinear -> QLinearAdd(1) -> QLinearMul(q, .) -> QLinearMul(0.5) -> p
    after:  q -> Reshape -> Cast(int32) -> GatherElements(table, .) -> Reshape -> p

    A chain up to a QuantizeLinear that changes no integer, since the two scales differ by the same factor as the numbers, is
    removed.

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
            x, (ops, replaced) = sources[y], _chain(graph, sources, y)
            is_slow = _is_slow(y, replaced)
            table = _table(graph, x, y, ops) if is_slow or is_quantizer(producer) else None
            is_identity = table is not None and x.dtype is y.dtype and bool((table == _integers(x)).all())
            if is_identity and not graph.is_output(y):
                graph.replace_uses(y, x)
                graph.remove_if_dead(producer)
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
        inputs = [x for x in op.inputs if x is not None]
        tensors = {found.get(x, x) for x in inputs if not x.is_constant}
        if op.kind not in ELEMENTWISE or op.y.static_shape is None or len(tensors) != 1:
            continue
        (source,) = tensors
        are_scalars = all(set(x.static_shape or ()) <= {1} for x in inputs if x.is_constant)
        if are_scalars and source.dtype in _INTEGERS and source.static_shape == op.y.static_shape:
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
    elements = prod(y.static_shape or ())
    return sum(_CALL + ELEMENTWISE[op.kind] * elements for op in replaced) > _LOOK_UP_CALLS + _LOOK_UP * elements


def _table(graph: Graph, x: Value, y: Value, ops: list[Op]) -> Array | None:
    """The result of a chain for each of the 256 integers; None if onnxruntime fails."""
    integers = _integers(x)
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


def _look_up(graph: Graph, table: Array, x: Value, y: Value, producer: Op) -> None:
    """Compute a value as an element of the table for every integer of `x`."""
    builder = rewriting(graph, producer, "table")
    flat = builder.reshape(x, (prod(map(estimated_extent, y.dims)),))
    operands = [builder.constant(table, "integers"), builder.cast(flat, DType.INT32)]
    (integers,) = builder.op("GatherElements", operands, [y.type_with(flat.shape)], {"axis": 0})
    builder.set_output(0, builder.reshape(integers, y.dims))
    replace_op(graph, producer, builder)


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
    (result,) = builder.op(op.op_type, inputs, [op.y.type_with(merged_shape)], op.attributes)
    builder.set_output(0, builder.reshape(result, shape))
    replace_op(graph, op, builder)


INTEGER_PASSES: tuple[Pass, ...] = (
    Tabulate(),
    WidenRows(),
    SimplifyReshapes(),
    ShareConstants(),
    RemoveDead(),
)
