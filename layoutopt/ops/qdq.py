"""Q/DQ ops (QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear), their groups, and QLinear ops.

    q = saturate(round(x / scale) + zero)        x = (q - zero) * scale

Scale and zero point are scalars (per tensor), vectors along one axis (per axis), or tensors of the rank of x that are shorter
along one axis by a factor (blocked quantisation: canonical formats). A vector has the format and the padding of its axis of x.

QuantizeLinear makes zero padding the zero point, and DequantizeLinear makes it -zero * scale.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np
from msgspec import Struct, field
from typing_extensions import override

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Attributes, DType, Op, Padding, Signature, Slot, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, Elementwise, positions
from layoutopt.ops.base import LayoutRule, PhysicalAttributes, add_rule, flags, register, rule_of
from layoutopt.ops.builder import OpBuilder
from layoutopt.ops.signatures import (
    ANY,
    FINITE,
    PADDING_REFUSED,
    ZERO,
    PaddingTransfer,
    States,
    X,
    Y,
    rank_of,
)
from layoutopt.ops.view import View
from layoutopt.record import Record

SCALE, ZERO_POINT = 1, 2
BYTES = (DType.INT8, DType.UINT8)
_SMALL_BITS = (
    16  # such integers are finite after scaling, and unchanged by a product with a float32 and a division by it
)


def is_absent_or_zero(op: Op, index: int) -> bool:
    """Whether a zero point is absent or a constant of zeros."""
    if op.input(index) is None:
        return True
    numbers = op.constant(index)
    return numbers is not None and not numbers.astype(np.float64).any()


def is_small_integer(value: Value | None) -> bool:
    """Whether the elements are integers of at most 16 bits, so that any of them is finite after scaling."""
    return (
        value is not None and value.dtype is not None and not value.dtype.is_float and value.dtype.bits <= _SMALL_BITS
    )


def with_other_sign(integers: Array) -> Array:
    """Integers of 8 bits in the type of the other signedness: each plus or minus 128."""
    other = np.uint8 if integers.dtype == np.int8 else np.int8
    return np.asarray(integers.view(np.uint8) ^ np.uint8(128)).view(other)


def is_per_tensor(value: Value | None) -> bool:
    """Whether a scale or zero point is one number for the whole tensor: absent, a scalar, or a vector of one element."""
    return value is None or value.shape in ((), (1,))


class QdqOp(AxiswiseRule):
    """A conversion between floating point and integers with a scale."""

    family = "quantization"
    formats = "any; scales follow their axis; canonical with blocked quantisation"
    is_quantized = True
    operands = ()
    least_rank = 1

    def axis(self, op: Op) -> int | None:
        """The axis of x that the scale runs along; None for a scale per tensor."""
        return None if is_per_tensor(op.inputs[SCALE]) else op.integer("axis", 1) % rank_of(op.x)

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        return {"x": X, "y": Y}

    @override
    def inapplicability(self, op: Op) -> str:
        if self.axis(op) is None:
            return ""
        if op.version < 13 and not op.domain:
            return "before opset 13 it has one scale"
        is_vector = rank_of(op.inputs[SCALE]) == 1 and not op.integer("block_size")
        return "" if is_vector else "the scale is neither a scalar nor a vector"

    def axes(self, op: Op) -> Axes:
        """y has the axes of x; the scale and the zero point have one of them if per axis."""
        axis, all_axes = self.axis(op), tuple(range(rank_of(op.x)))
        axes = {X: all_axes, Y: all_axes}
        return axes if axis is None else {**dict.fromkeys(op.slots(), (axis,)), **axes}

    def is_one_op(self, op: Op, signature: Signature) -> bool:
        """Whether the scale runs along an axis of one physical dimension, or is per tensor."""
        storage, axis = signature.inputs[0], self.axis(op)
        return storage is None or axis is None or storage.format.block(axis) == 1

    @override
    def physical_attributes(self, op: Op, build: OpBuilder) -> PhysicalAttributes:
        axis = self.axis(op)
        return {} if axis is None else {"axis": positions(build.format(X), (axis,))[0]}


@register
class Quantize(QdqOp):
    """Floating point in, integers or narrow floating point out."""

    ops: ClassVar[tuple[str, ...]] = ("QuantizeLinear", "com.microsoft::QuantizeLinear")
    padding = PaddingTransfer(ZERO, FINITE, FINITE, "the zero point")

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """Zero if zero is quantised to zero; finite for integers of at most 16 bits; else any."""
        if any(inputs[1:]):
            return None
        scale = op.constant(SCALE)
        is_positive = scale is not None and bool((scale.astype(np.float64) > 0).all())
        if inputs[0] is ZERO and is_positive and is_absent_or_zero(op, ZERO_POINT):
            return ZERO
        return FINITE if is_small_integer(op.outputs[0]) else ANY


@register
class Dequantize(QdqOp):
    """Integers in, floating point out."""

    ops: ClassVar[tuple[str, ...]] = ("DequantizeLinear", "com.microsoft::DequantizeLinear")
    padding = PaddingTransfer(ZERO, FINITE, FINITE, "the zero point")

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """Zero if zero is dequantised with zero point 0; else at least finite, by the state of x."""
        if any(inputs[1:]):
            return None
        if inputs[0] is ZERO and is_absent_or_zero(op, ZERO_POINT):
            return ZERO
        return FINITE if is_small_integer(op.inputs[0]) else max(FINITE, inputs[0])


def has_definition(dequantizer: Op) -> bool:
    """Whether a DequantizeLinear to float32 is computed from constants, with a scale per tensor or per axis."""
    rule = rule_of(dequantizer)
    are_known = all(each.is_constant for each in dequantizer.present_inputs) and dequantizer.y.dtype is DType.FLOAT32
    return are_known and rule is not None and not rule.canonical_reason(dequantizer)


def define_dequantizer(op: Op, builder: OpBuilder) -> None:
    """Record the ops that define a DequantizeLinear that `has_definition`."""
    rule = rule_of(op)
    assert isinstance(rule, Dequantize)
    axis = rule.axis(op)
    shape = [-1 if index == axis else 1 for index in range(rank_of(op.x))]
    result = builder.cast(op.x, DType.FLOAT32)
    for kind, numbers in (("Sub", op.constant(ZERO_POINT)), ("Mul", op.constant(SCALE))):
        if numbers is not None and (kind == "Mul" or numbers.any()):
            operand = builder.constant(numbers.astype(np.float32).reshape(shape), kind.lower())
            result = builder.result(kind, [result, operand], op.y.type_with(op.x.shape))
    builder.set_output(0, result)


@register
class DynamicQuantize(Elementwise):
    """Quantised per tensor; the op computes scale and zero point from the range of the elements, extended to zero."""

    family = "quantization"
    ops: ClassVar[tuple[str, ...]] = ("DynamicQuantizeLinear",)
    formats = "any"
    padding = PaddingTransfer(FINITE, None, None)
    operands = (X, Y)  # scale and zero point are scalars
    is_quantized = True


add_rule(
    LayoutRule(  # onnxruntime, which alone has them, has kernels for canonical formats only
        *(
            f"com.microsoft::QLinear{kind}"
            for kind in ("Add", "Mul", "Where", "Sigmoid", "LeakyRelu", "Concat", "Softmax")
        ),
        *("com.microsoft::QLinearAveragePool", "com.microsoft::QLinearGlobalAveragePool"),
        family="quantization",
        formats="canonical",
        padding=PADDING_REFUSED,
        is_quantized=True,
    )
)


# --- QDQ groups: DequantizeLinear -> op -> QuantizeLinear, which runtimes compute as one op on integers ---
#
#     q -> DequantizeLinear -> \
#     w -> DequantizeLinear -> Conv -> Relu -> QuantizeLinear -> p         =          (q, w) -> Conv, Relu -> p
#
# A runtime matches the group by adjacent ops, so no conversion may be inserted inside; conversions are inserted outside,
# where the values are integers. The group costs as much as the kernel on integers, and its Q/DQ ops cost nothing. A product
# without a QuantizeLinear behind it has a floating-point result; one with integers as weights only computes in floating
# point.


ACTIVATIONS = frozenset({"Clip", "LeakyRelu", "Relu"})
"""The activations that integer kernels apply to their accumulators before they round them."""


class QdqGroups(Struct):
    """The QDQ groups of some graphs.

    Attributes:
        integer_ops: the integer op that a kernel computes, by the op of its group; no graph contains it.
        fused_into_kernels: the Q/DQ ops and activations that the kernels compute too, at no cost of their own.
        inner: the uses inside of groups, each as an op and an input index.
    """

    integer_ops: dict[Op, Op] = field(default_factory=dict)
    fused_into_kernels: set[Op] = field(default_factory=set)
    inner: set[tuple[Op, int]] = field(default_factory=set)

    def kernel_op(self, op: Op) -> Op:
        """The op on integers that the kernel of the op's QDQ group computes; the op itself if it is in no group."""
        return self.integer_ops.get(op, op)


def is_dequantizer(op: Op | None) -> bool:
    """Whether an op converts integers to floating point."""
    return op is not None and isinstance(rule_of(op), Dequantize)


def is_quantizer(op: Op | None) -> bool:
    """Whether an op converts floating point to integers."""
    return op is not None and isinstance(rule_of(op), Quantize)


def has_float_kernel(graph: Graph, op: Op) -> bool:
    """Whether onnxruntime computes a convolution with dequantised weights in floating point.

    Its integer kernels end with a QuantizeLinear, which may be behind view ops, and may saturate in the place of an activation.
    """
    if flags(op).family != "convolution" or _group(graph, op) is None:
        return False
    activations: list[Op] = []
    reader = graph.only_reader(op.y)
    while reader is not None and is_passed_by_quantizers(reader):
        activations += [reader] if reader.kind in ACTIVATIONS else []
        reader = graph.only_reader(reader.y)
    if reader is None or not is_quantizer(reader):
        return True
    return is_per_tensor(reader.inputs[SCALE]) and not all(_is_saturation(each, reader) for each in activations)


def is_passed_by_quantizers(op: Op) -> bool:
    """Whether onnxruntime finds a QuantizeLinear behind an op when it looks for one behind the op's operand."""
    return isinstance(rule_of(op), View) or op.kind in ACTIVATIONS or op.kind == "MaxPool"


def has_folded_weights(op: Op) -> bool:
    """Whether the weights of a convolution are a constant that the model does not have: those of a group were dequantised."""
    weights = op.input(1)
    is_folded = weights is not None and weights.is_constant and weights.origin is None
    return is_folded and flags(op).family == "convolution"


def _is_saturation(activation: Op, quantizer: Op) -> bool:
    """Whether a QuantizeLinear saturates all that a Relu or Clip in front of it changes."""
    scale, zero, dtype = quantizer.constant(SCALE), quantizer.constant(ZERO_POINT), quantizer.y.dtype
    has_bounds = all(each is None or each.is_constant for each in activation.inputs[1:]) and not activation.attributes
    if scale is None or zero is None or dtype not in BYTES or not has_bounds or activation.kind == "LeakyRelu":
        return False
    limits = np.iinfo(zero.dtype)
    least, most = ((limit - zero.astype(np.int64)) * scale for limit in (limits.min, limits.max))
    low, high = activation.constant(1), activation.constant(2)
    if activation.kind == "Relu":
        low = np.zeros(())
    return bool((low is None or (least >= low).all()) and (high is None or (most <= high).all()))


def is_in_qdq_group(graph: Graph, op: Op) -> bool:
    """Whether an op reads a dequantised value, or computes one that is quantised."""
    if any(is_dequantizer(graph.producer(value)) for value in op.present_inputs):
        return True
    return any(is_quantizer(use.op) and use.index == 0 for value in op.present_outputs for use in graph.uses(value))


def kept_qdq_ops(graph: Graph) -> set[Op]:
    """The ops in QDQ groups that a runtime may recognise, which stay adjacent, and all other ops on integers with scales.

    A convolution of a dequantised value whose weights were dequantised is in no group, and then Q/DQ ops next to no group are
    element-wise ops.
    """
    grouped: set[Op] = set()
    has_float_convolution = False
    for op in graph.ops:
        dequantizers = {each for each in graph.producers(op) if is_dequantizer(each)}
        if dequantizers and has_folded_weights(op):
            has_float_convolution = True
        elif not is_quantizer(op) and not is_dequantizer(op) and (dequantizers or flags(op).is_quantized):
            grouped |= {op, *dequantizers}
            for y in filter(None, op.outputs):
                grouped.update(ops_to_quantizer(graph, y), filter(is_quantizer, graph.readers(y)))
    if has_float_convolution:
        return grouped
    return {op for op in graph.ops if is_in_qdq_group(graph, op) or flags(op).is_quantized}


def find_qdq_groups(graphs: Iterable[Graph], has_kernel: Callable[[Op, Op], bool]) -> QdqGroups:
    """The QDQ groups of some graphs.

    Args:
        graphs: the graphs.
        has_kernel: whether the target has a kernel for a group, given its op and the same op on integers.
    """
    groups = QdqGroups()
    for graph in graphs:
        _add_groups(graph, has_kernel, groups)
    return groups


def _add_groups(graph: Graph, has_kernel: Callable[[Op, Op], bool], groups: QdqGroups) -> None:
    integer_reads: set[tuple[Op, int]] = set()
    for op in graph.ops:
        for index, value in enumerate(op.inputs):
            if value is None or value.is_constant:
                continue
            quantizes = is_quantizer(op) and index == 0 and not (graph.root is graph and graph.is_output(value))
            if quantizes or is_dequantizer(graph.producer(value)):
                groups.inner.add((op, index))
        group = _group(graph, op)
        if group is not None and has_kernel(op, group.integer):
            groups.integer_ops[op] = group.integer
            groups.fused_into_kernels.update(group.epilogue)
            groups.inner.update((each, 0) for each in group.epilogue)
            integer_reads.update((op, index) for index in group.reads)
    for op in graph.ops:
        result = op.outputs[0] if is_dequantizer(op) else None
        if result is not None and not graph.is_output(result):
            uses = graph.uses(result)
            if uses and all((use.op, use.index) in integer_reads for use in uses):
                groups.fused_into_kernels.add(op)


class _Group(Record):
    """An op on integers, the inputs that it reads as integers, and the activations and QuantizeLinears behind it."""

    integer: Op
    reads: tuple[int, ...]
    epilogue: tuple[Op, ...]


def _group(graph: Graph, op: Op) -> _Group | None:
    """The group around an op; None if there is none."""
    rule = rule_of(op)
    if rule is None or isinstance(rule, View) or is_quantizer(op) or is_dequantizer(op):
        return None
    producers = {index: graph.producer(value) for index, value in enumerate(op.inputs) if value is not None}
    dequantizers = {index: each for index, each in producers.items() if each is not None and is_dequantizer(each)}
    if not dequantizers:
        return None
    computed = {index for index, value in enumerate(op.inputs) if value is not None and not value.is_constant}
    is_whole = len(op.outputs) == 1 and computed <= dequantizers.keys()
    epilogue = ops_to_quantizer(graph, op.y) if is_whole else []
    roles = rule.roles(op)
    if "b" in roles or rule.is_anchor:
        first, second = (roles[role].index for role in ("ab" if "b" in roles else "xw"))
        if second not in dequantizers:
            return None
        if first not in dequantizers:
            dequantizers, epilogue = {second: dequantizers[second]}, []
    elif not epilogue:
        return None
    integers = {index: each.inputs[0] for index, each in dequantizers.items()}
    inputs = tuple(integers.get(index, value) for index, value in enumerate(op.inputs))
    outputs = epilogue[-1].outputs if epilogue else op.outputs
    return _Group(op.copy(inputs, outputs), tuple(dequantizers), tuple(epilogue))


def ops_to_quantizer(graph: Graph, value: Value) -> list[Op]:
    """The ops from a value to its QuantizeLinear; none if another op than ACTIVATIONS, or another reader, is between."""
    chain: list[Op] = []
    while True:
        reader = graph.only_reader(value)
        if reader is None or reader.inputs[0] is not value:
            return []
        chain.append(reader)
        if is_quantizer(reader):
            return chain
        if reader.kind not in ACTIVATIONS:
            return []
        value = reader.y


# --- Q/DQ ops and adjacent view ops ---
#
# DequantizeLinear(axis = 0) -> Transpose(1, 0)      =       Transpose(1, 0) -> DequantizeLinear(axis = 1)


_BYTE_BITS = 8
_ALL_TYPES_TRANSPOSE_OPSET = 21  # since this opset Transpose supports all quantised element types


def commuted_attributes(qdq_op: Op, view: Op) -> Attributes | None:
    """The attributes of a Q/DQ op that is exchanged with an adjacent view op, or of a DequantizeLinear with a Slice behind it.

    None if the two do not commute: the view op splits or merges the axis of the scale, the scale of sliced integers has an
    axis, quantisation is blocked, or a runtime may lack the view op for the integers.
    """
    rule, view_rule = rule_of(qdq_op), rule_of(view)
    if not isinstance(rule, QdqOp) or rule.canonical_reason(qdq_op):
        return None
    if not isinstance(view_rule, View) and not (view.kind == "Slice" and isinstance(rule, Dequantize)):
        return None
    integers = qdq_op.x if isinstance(rule, Dequantize) else qdq_op.y
    is_byte = integers.dtype is not None and integers.dtype.bits >= _BYTE_BITS and not integers.dtype.is_float
    if not is_byte and not (view.op_type == "Transpose" and view.version >= _ALL_TYPES_TRANSPOSE_OPSET):
        return None
    axis = rule.axis(qdq_op)
    if axis is None:
        return dict(qdq_op.attributes)
    if not isinstance(view_rule, View):
        return None
    axes = {before: view_rule.unmerged_axis(view, before) for before in range(view.x.rank or 0)}
    if isinstance(rule, Quantize):
        axes = {after: before for before, after in axes.items() if after is not None}
    new_axis = axes.get(axis)
    return None if new_axis is None else {**qdq_op.attributes, "axis": new_axis}


def is_lossless_round_trip(quantize: Op, dequantize: Op) -> bool:
    """Whether dequantising and quantising again yields the same integers, also with ops between that move them."""
    rule, source = rule_of(quantize), dequantize.inputs[0]
    if not isinstance(rule, Quantize) or not is_dequantizer(dequantize) or source is None or not source.rank:
        return False
    if source.dtype is not quantize.y.dtype or not is_small_integer(source):
        return False
    scale, scales = quantize.constant(SCALE), (quantize.inputs[SCALE], dequantize.inputs[SCALE])
    if scale is None or any(each is None or each.dtype is not DType.FLOAT32 for each in scales):
        return False
    least, most = np.finfo(np.float32).tiny, np.finfo(np.float32).max / 2 ** (_SMALL_BITS + 1)
    if not bool(((scale >= least) & (scale <= most)).all()):
        return False
    is_same = all(_is_same(quantize, dequantize, index) for index in (SCALE, ZERO_POINT))
    return is_same and (rule.axis(quantize) is None or quantize.attributes == dequantize.attributes)


def paired_dequantizer(graph: Graph, op: Op) -> Op | None:
    """The DequantizeLinear with the scale of a QuantizeLinear per tensor that alone reads its result; None if there is none."""
    reader = graph.only_reader(op.y) if is_quantizer(op) and is_per_tensor(op.inputs[SCALE]) else None
    return reader if reader is not None and is_lossless_round_trip(op, reader) else None


def _is_same(one: Op, other: Op, index: int) -> bool:
    """Whether two Q/DQ ops have the same scale or zero point."""
    first, second = (op.input(index) for op in (one, other))
    if first is second:
        return True
    a, b = one.constant(index), other.constant(index)
    return a is not None and b is not None and a.shape == b.shape and bool((a == b).all())
