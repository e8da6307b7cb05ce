"""Passes on quantised models before baking: Q/DQ ops around ops for which onnxruntime would choose a slow kernel."""

import numpy as np

from layoutopt.formats import product
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import ComputedData, DType, Op, TensorType, Value
from layoutopt.ops import facts, flags, rule_of
from layoutopt.ops.builder import replace_op, rewriting
from layoutopt.ops.qdq import (
    BYTES,
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
from layoutopt.passes.base import Pass, PassContext
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN, blocked_channels

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
    sources = (_source(graph, value) for value in op.present_inputs)
    found = {each.x for each in sources if each is not None and is_dequantizer(each)}
    if flags(op).family in _ONE_TYPE:
        chains = (ops_to_quantizer(graph, y) for y in op.present_outputs)
        found.update(chain[-1].y for chain in chains if chain)
    return {x for x in found if x.dtype is DType.INT8}


def _is_convertible(graph: Graph, integers: Value) -> bool:
    """Whether only Q/DQ ops with known zero points compute and read a tensor of integers, an activation per tensor."""
    producer = graph.producer(integers)
    uses = [use for use in graph.uses(integers) if producer is not None or use.index != ZERO_POINT]
    if not (integers.is_constant if producer is None else is_quantizer(producer)) or graph.is_output(integers):
        return False
    if producer is not None and (producer.input(ZERO_POINT) is None or "output_dtype" in producer.attributes):
        return False
    if not all(is_dequantizer(use.op) and use.index == 0 for use in uses):
        return False
    ops = [op for op in (producer, *(use.op for use in uses)) if op is not None]
    zeros, scales = ([op.input(index) for op in ops] for index in (ZERO_POINT, SCALE))
    if producer is None:
        return all(each is None or each.is_constant for each in (*zeros, *scales))
    return all(each is None or each.is_constant for each in zeros) and all(map(is_per_tensor, scales))


def _is_wide(weights: Value) -> bool:
    assert weights.data is not None
    return bool((np.abs(weights.data.numpy().astype(np.int16)) > _LARGEST_WEIGHT).any())


def _unsign(graph: Graph, integers: Value) -> None:
    """Convert a tensor of int8 to uint8, and the zero points of the Q/DQ ops around it."""
    zeros = [use for use in graph.uses(integers) if use.index == ZERO_POINT]
    if zeros and integers.data is not None:  # a zero point may be dequantised, too
        graph.replace_uses(integers, graph.new_constant(integers.data.numpy(), integers.name), zeros)
    for op in filter(None, (graph.producer(integers), *graph.readers(integers))):
        zero, scale = op.constant(ZERO_POINT), op.inputs[SCALE]
        if zero is None:
            zero = np.zeros(scale.dims if scale is not None else (), np.int8)
        unsigned = graph.new_constant(with_other_sign(zero), f"{integers.name}/zero")
        graph.set_inputs(op, (*op.inputs[:ZERO_POINT], unsigned))
    integers.give_type(TensorType(DType.UINT8, integers.shape))
    if integers.data is not None:
        integers.data = ComputedData(integers.data.nbytes, lambda data: with_other_sign(data.numpy()), (integers.data,))


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
            if is_plain or source.domain == BLOCKED_DOMAIN:
                _detach(graph, op)


def _detach(graph: Graph, quantizer: Op) -> None:
    """Insert a Flatten in front of a QuantizeLinear of a known rank."""
    x, y = quantizer.x, quantizer.y
    if x.shape is None:
        return
    builder, shape = rewriting(graph, quantizer, "flat"), (1, product(x.dims))
    flat = builder.result("Flatten", [x], x.type_with(shape), {"axis": 0})
    inputs = [flat, *quantizer.inputs[1:]]
    integers = builder.result(quantizer.op_type, inputs, y.type_with(shape), quantizer.attributes)
    builder.set_output(0, builder.reshape(integers, y.dims))
    replace_op(graph, quantizer, builder)


def _source(graph: Graph, value: Value) -> Op | None:
    """The op that computes a value, apart from ops past which onnxruntime moves Q/DQ ops."""
    source = graph.producer(value)
    while source is not None and source.domain != BLOCKED_DOMAIN and is_passed_by_quantizers(source):
        source = graph.producer(source.x)
    return source


# onnxruntime moves Q/DQ ops past Reshapes, so they need not be adjacent to what these ops become.

_IMAGE_AXES: dict[tuple[int, ...], bool] = {(2, 3): False, (1, 2): True}  # whether channels are last


class ChooseIntegerKernels(Pass):
    """Write a mean of an image as GlobalAveragePool, and Softmax and AveragePool in floating point, between Q/DQ ops.

    before: q -> DequantizeLinear -> ReduceMean(H, W) -> QuantizeLinear
    after:  q -> DequantizeLinear -> GlobalAveragePool -> Reshape -> QuantizeLinear

    before: q -> DequantizeLinear -> Softmax -> QuantizeLinear
    after:  q -> DequantizeLinear -> Softmax -> Flatten -> QuantizeLinear -> Reshape

    onnxruntime computes a GlobalAveragePool on integers and a ReduceMean in floating point: 17 us against 246 on
    uint8[1,112,112,16] with channels last, which are transposed in front of the DequantizeLinear. Of a Softmax directly between
    both it makes QLinearSoftmax, whose kernel divides element by element, 7.8 ms against 1.1 on
    uint8[4,4,256,256] (1.23.2, one thread, AVX2), and is wrong by up to two. Of an AveragePool it makes QLinearAveragePool,
    1.4 ms against 0.1 for 3x3 on uint8[1,192,28,28] (1.32). Flatten and Reshape move no data.
    """

    name = "choose-integer-kernels"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the ReduceMeans, the AveragePools and the Softmaxes."""
        for op in graph.ops:
            dequantizer = graph.producer(op.x) if op.kind in ("AveragePool", "ReduceMean", "Softmax") else None
            if dequantizer is None or not is_dequantizer(dequantizer):
                continue
            quantizer = graph.only_reader(op.y)
            if op.kind == "ReduceMean":
                _write_mean(graph, op, dequantizer)
            elif quantizer is not None and is_quantizer(quantizer) and is_per_tensor(quantizer.inputs[SCALE]):
                _detach(graph, quantizer)


def _write_mean(graph: Graph, mean: Op, dequantizer: Op) -> None:
    q, is_last = dequantizer.x, _IMAGE_AXES.get(facts(mean).reduced_axes(mean) or ())
    last, quantizer = mean, graph.only_reader(mean.y)
    while quantizer is not None and isinstance(rule_of(quantizer), Reshape):
        last, quantizer = quantizer, graph.only_reader(quantizer.y)
    if is_last is None or q.rank != 4 or q.dtype not in BYTES or not is_per_tensor(dequantizer.inputs[SCALE]):
        return
    if not is_quantizer(quantizer):
        return
    builder = rewriting(graph, last, "image")
    image = builder.transpose(q, (0, 3, 1, 2)) if is_last else q
    inputs, type = (image, *dequantizer.inputs[1:]), mean.x.type_with(image.dims)
    domain = dequantizer.domain or None
    numbers = builder.result(dequantizer.op_type, inputs, type, dequantizer.attributes, domain)
    pooled = builder.result("GlobalAveragePool", [numbers], mean.y.type_with((*image.dims[:2], 1, 1)))
    builder.set_output(0, builder.reshape(pooled, last.y.dims))
    # The sum has other rounding errors, so the name is new: models are compared at the integers only.
    graph.rename(last.y, graph.fresh_name(f"{last.y.name}/mean"))
    replace_op(graph, last, builder)
