"""Q/DQ ops (QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear), their groups, and QLinear ops.

    q = saturate(round(x / scale) + zero)        x = (q - zero) * scale

Scale and zero point are scalars (per tensor), vectors along one axis (per axis), or tensors of the rank of x that are shorter
along one axis by a factor (blocked quantisation). A vector has the format and the padding of its axis of x.

With a scale per tensor, QuantizeLinear makes zero padding the zero point, and DequantizeLinear makes it -zero * scale. Where
the scale is padded with zeros, DequantizeLinear makes any integer zero, since integers are finite.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from typing_extensions import override

from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.types import Attribute, DType, Op, Padding, Signature, Slot, Storage, Value
from layoutopt.ops.along_axis import OneAxis, Softmax
from layoutopt.ops.axiswise import Axes, AxiswiseRule, Elementwise, positions
from layoutopt.ops.base import Builder, padded_axes_of, register, rule_of
from layoutopt.ops.feature_maps import SpatialRule
from layoutopt.ops.rearrangement import Slice
from layoutopt.ops.signatures import (
    ANY,
    FINITE,
    PADDING_BECOMES_FINITE,
    ZERO,
    Inapplicable,
    PaddingTransfer,
    States,
    X,
    Y,
    rank_of,
)
from layoutopt.ops.view import View

SCALE, ZERO_POINT = 1, 2
_MAX_FINITE_BITS = 16  # integers of at most 16 bits are finite after scaling


def is_absent_or_zero(op: Op, index: int) -> bool:
    """Whether a zero point is absent or a constant of zeros."""
    if op.input(index) is None:
        return True
    numbers = op.constant(index)
    return numbers is not None and not numbers.astype(np.float64).any()


def is_small_integer(value: Value | None) -> bool:
    """Whether the elements are integers of at most 16 bits, so that any of them is finite after scaling."""
    return (
        value is not None
        and value.dtype is not None
        and not value.dtype.is_float
        and value.dtype.bits <= _MAX_FINITE_BITS
    )


def is_per_tensor(value: Value | None) -> bool:
    """Whether a scale or zero point is one number for the whole tensor: absent, a scalar, or a vector of one element."""
    return value is None or value.shape in ((), (1,))


class QdqOp(AxiswiseRule):
    """A conversion between floating point and integers with a scale."""

    family = "quantization"
    formats = (
        "any; scales follow their axis; with blocked quantisation x must be constant and the axis must not be blocked"
    )
    is_quantized = True
    operands = ()
    least_rank = 1
    whole_reason = "an axis with blocked quantisation cannot be blocked"

    def axis(self, op: Op) -> int | None:
        """The axis of x that the scale runs along; None for a scale per tensor."""
        return None if is_per_tensor(op.inputs[SCALE]) else op.integer("axis", 1) % rank_of(op.x)

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        return {"x": X, "y": Y}

    def is_per_axis(self, op: Op) -> bool:
        """Whether the scale is a vector along one axis."""
        scale = op.inputs[SCALE]
        return scale is not None and scale.rank == 1 and not op.integer("block_size")

    @override
    def inapplicability(self, op: Op) -> str:
        x, scale = op.x, rank_of(op.inputs[SCALE])
        if self.axis(op) is None:
            return ""
        if not self.is_per_axis(op) and not x.is_constant:
            # The default optimisations of onnxruntime move a Transpose of x past the op, which then has x and the
            # scales in different orders of axes.
            return "onnxruntime moves Transposes past blocked quantisation, but not past its scales"
        is_fitting = scale == (1 if self.is_per_axis(op) else rank_of(x))
        return "" if is_fitting else "the scale is neither a scalar, a vector nor a tensor of the same rank"

    def axes(self, op: Op) -> Axes:
        """y has the axes of x; the scale and the zero point have one of them if per axis, all of them if blocked."""
        axis, all_axes = self.axis(op), tuple(range(rank_of(op.x)))
        axes = {X: all_axes, Y: all_axes}
        if axis is not None:
            own = (axis,) if self.is_per_axis(op) else all_axes
            axes |= {slot: own for slot in op.slots() if slot not in axes}
        return axes

    def whole_axes(self, op: Op) -> Collection[int]:
        """The axis of blocked quantisation."""
        axis = self.axis(op)
        return () if axis is None or self.is_per_axis(op) else (axis,)

    def is_one_op(self, op: Op, signature: Signature) -> bool:
        """Whether the scale runs along an axis of one physical dimension, or is per tensor."""
        storage, axis = signature.inputs[0], self.axis(op)
        return storage is None or axis is None or storage.format.block(axis) == 1

    @override
    def physical_attributes(self, op: Op, build: Builder) -> Mapping[str, Attribute | None]:
        axis = self.axis(op)
        return {} if axis is None else {"axis": positions(build.format(X), (axis,))[0]}

    def is_scale_padded(self, op: Op, signature: Signature) -> bool:
        """Whether every padded axis of x is the axis of a per-axis scale, so that the scale is padded, too."""
        axis = self.axis(op)
        return (
            axis is not None
            and self.is_per_axis(op)
            and set(padded_axes_of(op.inputs[0], signature.inputs[0])) <= {axis}
        )


@register
class Quantize(QdqOp):
    """Floating point in, integers or narrow floating point out."""

    ops: ClassVar[tuple[str, ...]] = ("QuantizeLinear", "com.microsoft::QuantizeLinear")
    padding = PaddingTransfer(ZERO, FINITE, FINITE, "the zero point")

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """Zero if zero is quantised to zero; finite for integers of at most 16 bits, or for finite inputs; else any."""
        if any(inputs[1:]):
            return None
        scale = op.constant(SCALE)
        is_positive = scale is not None and bool((scale.astype(np.float64) > 0).all())
        if inputs[0] is ZERO and is_positive and is_absent_or_zero(op, ZERO_POINT):
            return ZERO
        is_bounded = is_positive and op.integer("saturate", 1) == 1 and inputs[0] is not ANY
        return FINITE if is_bounded or is_small_integer(op.outputs[0]) else ANY


@register
class Dequantize(QdqOp):
    """Integers in, floating point out."""

    ops: ClassVar[tuple[str, ...]] = ("DequantizeLinear", "com.microsoft::DequantizeLinear")
    padding = PaddingTransfer(ZERO, FINITE, FINITE, "zero where the scale is padded")

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """Zero where the scale is padded, or zero is dequantised with zero point 0; else at least finite, by the state of x."""
        if any(inputs[1:]):
            return None
        x = op.inputs[0]
        is_integer = x is not None and x.dtype is not None and not x.dtype.is_float
        if self.is_scale_padded(op, signature) and (is_integer or inputs[0] is not ANY):
            return ZERO
        if inputs[0] is ZERO and is_absent_or_zero(op, ZERO_POINT):
            return ZERO
        return FINITE if is_small_integer(x) else max(FINITE, inputs[0])


@register
class DynamicQuantize(Elementwise):
    """Quantised per tensor; the op computes scale and zero point from the range of the elements, extended to zero."""

    family = "quantization"
    ops: ClassVar[tuple[str, ...]] = ("DynamicQuantizeLinear",)
    formats = "any"
    padding = PaddingTransfer(FINITE, None, None)
    operands = (X, Y)  # scale and zero point are scalars
    is_quantized = True


# --- Quantised (QLinear) ops of com.microsoft: element-wise, along an axis, pooling; and NhwcMaxPool ---
#
# In the inputs of a QLinear op, the scale and zero point of each quantised tensor are scalars, which have no format. Padding
# elements are integers of 8 bits, so they are always finite.


@register
class IntegerElementwise(Elementwise):
    """Element-wise ops on one or two quantised tensors, with broadcasting; QLinearWhere also on a boolean condition."""

    padding = PADDING_BECOMES_FINITE
    is_quantized = True
    _TENSOR_OPERANDS: ClassVar[dict[str, tuple[int, ...]]] = {
        "QLinearAdd": (0, 3),
        "QLinearMul": (0, 3),
        "QLinearWhere": (0, 1, 4),
        "QLinearSigmoid": (0,),
        "QLinearLeakyRelu": (0,),
    }
    ops: ClassVar[tuple[str, ...]] = tuple(f"com.microsoft::{kind}" for kind in _TENSOR_OPERANDS)

    @override
    def slots(self, op: Op) -> list[Slot]:
        return [*(Slot("in", index) for index in self._TENSOR_OPERANDS[op.op_type]), Y]


@register
class IntegerConcat(OneAxis):
    """Concatenation of inputs with a scale and zero point each."""

    family = "rearrangement"
    padding = PADDING_BECOMES_FINITE
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::QLinearConcat",)
    ranked = Y
    default_axis = 0
    is_quantized = True

    def slots(self, op: Op) -> list[Slot]:
        """The result and the concatenated inputs, each of which is followed by its scale and zero point."""
        return [Y, *(Slot("in", index) for index in range(2, len(op.inputs), 3))]


@register
class IntegerSoftmax(Softmax):
    """Quantised Softmax; attribute `opset` is the opset whose definition of Softmax it has."""

    padding = PADDING_BECOMES_FINITE
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::QLinearSoftmax",)
    is_quantized = True

    @override
    def opset(self, op: Op) -> int:
        return op.integer("opset", 13)


@register
class IntegerPooling(SpatialRule):
    """Average pooling of integers, with a quantised result; overlapping windows read more, which costs little."""

    family = "pooling"
    padding = PADDING_BECOMES_FINITE
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::QLinearAveragePool", "com.microsoft::QLinearGlobalAveragePool")
    is_quantized = True
    operations = (1.0, X)

    @override
    def inapplicability(self, op: Op) -> str:
        return "it is channels-last already" if self.is_channels_last(op) else super().inapplicability(op)


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


@dataclass(slots=True)
class QdqGroups:
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


def is_in_qdq_group(graph: Graph, op: Op) -> bool:
    """Whether an op reads a dequantised value, or computes one that is quantised."""
    if any(is_dequantizer(graph.producer(value)) for value in op.inputs if value is not None):
        return True
    outputs = (value for value in op.outputs if value is not None)
    return any(is_quantizer(use.op) and use.index == 0 for value in outputs for use in graph.uses(value))


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


@dataclass(frozen=True, slots=True)
class _Group:
    """An op on integers, the inputs that it reads as integers, and the activations and QuantizeLinears behind it."""

    integer: Op
    reads: tuple[int, ...]
    epilogue: tuple[Op, ...]


def _group(graph: Graph, op: Op) -> _Group | None:
    """The group around an op; None if there is none."""
    rule = rule_of(op)
    if rule is None or isinstance(rule, View) or is_quantizer(op) or is_dequantizer(op):
        return None
    dequantizers = {index: qdq_op for index, qdq_op in enumerate(_dequantizers(graph, op)) if qdq_op is not None}
    computed = [index for index, value in enumerate(op.inputs) if value is not None and not value.is_constant]
    if not dequantizers:
        return None
    epilogues = list(_epilogues(graph, op)) if all(index in dequantizers for index in computed) else []
    roles = rule.roles(op)
    if "b" in roles or rule.is_anchor:
        first, second = (roles[role].index for role in ("ab" if "b" in roles else "xw"))
        if second not in dequantizers:
            return None
        if first not in dequantizers:
            dequantizers, epilogues = {second: dequantizers[second]}, []
    elif not epilogues:
        return None
    inputs, outputs = list(op.inputs), list(op.outputs)
    for index, qdq_op in dequantizers.items():
        inputs[index] = qdq_op.inputs[0]
    for number, chain in epilogues:
        outputs[number] = chain[-1].outputs[0]
    integer = op.copy(tuple(inputs), tuple(outputs))
    return _Group(integer, tuple(dequantizers), tuple(each for _, chain in epilogues for each in chain))


def _dequantizers(graph: Graph, op: Op) -> Iterator[Op | None]:
    """The DequantizeLinear of every input, or None."""
    for value in op.inputs:
        producer = graph.producer(value) if value is not None else None
        yield producer if is_dequantizer(producer) else None


def _epilogues(graph: Graph, op: Op) -> Iterator[tuple[int, list[Op]]]:
    """The index of every output, with its activations and QuantizeLinear; empty if an output has none."""
    epilogues = []
    for number, value in enumerate(op.outputs):
        if value is None:
            continue
        chain = _epilogue(graph, value)
        if chain is None:
            return
        epilogues.append((number, chain))
    yield from epilogues


def _epilogue(graph: Graph, value: Value) -> list[Op] | None:
    """The ops from a value to its QuantizeLinear; None if another op than ACTIVATIONS, or another reader, is between."""
    chain: list[Op] = []
    while True:
        use: Use | None = graph.uses(value)[0] if graph.has_one_use(value) else None
        if use is None or use.index != 0:
            return None
        chain.append(use.op)
        if is_quantizer(use.op):
            return chain
        result = use.op.outputs[0]
        if use.op.kind not in ACTIVATIONS or result is None:
            return None
        value = result


def with_unified_formats(
    graphs: Iterable[Graph], groups: QdqGroups, signatures: Mapping[Op, Signature]
) -> dict[Op, Signature]:
    """The signatures with one format on both sides of each inner use, where two formats are the same bytes.

    An op that accepts any format takes the format of its neighbour: a DequantizeLinear that of its reader, others that of
    their input.
    """
    found = dict(signatures)
    for graph in graphs if groups.inner else ():
        for op in graph.ops:
            for index, value in enumerate(op.inputs):
                producer = graph.producer(value) if value is not None else None
                if value is None or producer is None or (op, index) not in groups.inner:
                    continue
                slot = Slot("out", graph.output_index(value))
                has, required = found[producer][slot], found[op].inputs[index]
                if has is None or required is None or has.format == required.format:
                    continue
                if is_dequantizer(producer):
                    found[producer] = _with_format(producer, found[producer], Y, required)
                else:
                    found[op] = _with_format(op, found[op], X, has)
    return found


def _with_format(op: Op, signature: Signature, slot: Slot, storage: Storage) -> Signature:
    """The signature with an equivalent format at a slot; the same signature if the op has none."""
    rule = rule_of(op)
    found = rule.signature(op, {slot: storage.format}) if rule is not None else None
    if found is None or isinstance(found, Inapplicable):
        return signature
    return Signature(
        _with_padding_of(found.inputs, signature.inputs), _with_padding_of(found.outputs, signature.outputs)
    )


def _with_padding_of(
    formats: tuple[Storage | None, ...], states: tuple[Storage | None, ...]
) -> tuple[Storage | None, ...]:
    return tuple(
        one if one is None or other is None else Storage(one.format, other.padding)
        for one, other in zip(formats, states, strict=True)
    )


# --- Commutes Q/DQ ops with adjacent data-movement ops ---
#
# DequantizeLinear(axis = 0) -> Transpose(1, 0)      =       Transpose(1, 0) -> DequantizeLinear(axis = 1)
# DequantizeLinear(zero = 3) -> Pad(0)               =       Pad(3) -> DequantizeLinear(zero = 3)


_BYTE_BITS = 8
_EXACT_BITS = 16  # integers of up to 16 bits are unchanged by a multiplication by a float32 and a division by it
_ALL_TYPES_TRANSPOSE_OPSET = 21  # since this opset Transpose supports all quantised element types
_INTEGER_PAD_OPSET = 11  # since this opset Pad supports integers
_PAD_VALUE = 2  # index of the input of Pad that is the pad value


@dataclass(frozen=True, slots=True)
class Commuted:
    """The changes that exchange a Q/DQ op and an adjacent data-movement op.

    Attributes:
        attributes: the new attributes of the Q/DQ op.
        moved_inputs: the indices of the scale and zero point, if the data-movement op applies to them too.
        pad_value: the index and the new value of an input of the data-movement op; Pad fills integers with their zero point.
    """

    attributes: dict[str, Attribute]
    moved_inputs: tuple[int, ...] = ()
    pad_value: tuple[int, Value] | None = None


def commute(qdq_op: Op, data_movement: Op) -> Commuted | None:
    """The changes that exchange a Q/DQ op and an adjacent data-movement op; None if the two do not commute."""
    rule, other = rule_of(qdq_op), rule_of(data_movement)
    if not isinstance(rule, QdqOp) or other is None or not data_movement.inputs:
        return None
    source, x = data_movement.inputs[0], qdq_op.inputs[0]
    if source is None or source.rank is None or x is None or not x.rank or qdq_op.inputs[SCALE] is None:
        return None
    integers = qdq_op.inputs[0] if isinstance(rule, Dequantize) else qdq_op.outputs[0]
    dtype = integers.dtype if integers is not None else None
    if dtype is None or not _supports_type(data_movement, dtype):
        return None
    if isinstance(other, View):
        return _commute_with_view(qdq_op, rule, data_movement, other)
    if rule.axis(qdq_op) is not None:
        return None
    if isinstance(other, Slice):
        return Commuted(dict(qdq_op.attributes))
    return _commute_with_pad(qdq_op, data_movement, dtype) if other.zero_pads(data_movement) is not None else None


def _commute_with_view(qdq_op: Op, rule: QdqOp, view: Op, view_rule: View) -> Commuted | None:
    """The changes for a view op, which maps the axis of the scale.

    None if the scale is per axis and the view op splits or merges that axis, or if there is a scale per block of an axis
    (`block_size`) and the op is a QuantizeLinear or the view op does more than permute axes.
    """
    axis = rule.axis(qdq_op)
    if axis is None:
        return Commuted(dict(qdq_op.attributes))
    source = view.inputs[0]
    assert source is not None and source.rank is not None
    if rule.is_per_axis(qdq_op):
        axis_map = {before: view_rule.unmerged_axis(view, before) for before in range(source.rank)}
        if isinstance(rule, Quantize):
            axis_map = {after: before for before, after in axis_map.items() if after is not None}
        new_axis = axis_map.get(axis)
        return None if new_axis is None else Commuted({**qdq_op.attributes, "axis": new_axis})
    axes = [view_rule.permuted_axis(view, before) for before in range(source.rank)]
    if isinstance(rule, Quantize) or None in axes:
        return None
    moved_inputs = tuple(index for index in (SCALE, ZERO_POINT) if qdq_op.input(index) is not None)
    return Commuted({**qdq_op.attributes, "axis": axes[axis] or 0}, moved_inputs)


def _commute_with_pad(qdq_op: Op, pad: Op, dtype: DType) -> Commuted | None:
    """The changes for a Pad with zeros; None unless it pads 8-bit integers, because runtimes pad no others.

    The Pad of the integers fills with the zero point, which must be a scalar.
    """
    if dtype.bits != _BYTE_BITS or dtype.is_float or pad.version < _INTEGER_PAD_OPSET:
        return None
    if is_absent_or_zero(qdq_op, ZERO_POINT):
        has_pad_value = pad.input(_PAD_VALUE) is not None
        return None if has_pad_value else Commuted(dict(qdq_op.attributes))
    zero = qdq_op.inputs[ZERO_POINT]
    if zero is None or zero.rank != 0:
        return None
    return Commuted(dict(qdq_op.attributes), (), (_PAD_VALUE, zero))


def _supports_type(data_movement: Op, dtype: DType) -> bool:
    """Whether every runtime has the data-movement op for elements of this type, an integer or float of few bits."""
    if dtype.bits >= _BYTE_BITS and not dtype.is_float:
        return True
    return data_movement.op_type == "Transpose" and data_movement.version >= _ALL_TYPES_TRANSPOSE_OPSET


def is_lossless_round_trip(quantize: Op, dequantize: Op) -> bool:
    """Whether dequantising and quantising again yields the same integers."""
    rule = rule_of(quantize)
    if not isinstance(rule, Quantize) or not isinstance(rule_of(dequantize), Dequantize):
        return False
    source, result = dequantize.inputs[0], quantize.outputs[0]
    if source is None or result is None or source.type != result.type or source.dtype is None or not source.rank:
        return False
    if source.dtype.is_float or source.dtype.bits > _EXACT_BITS:
        return False
    scale, scales = quantize.constant(SCALE), (quantize.inputs[SCALE], dequantize.inputs[SCALE])
    if scale is None or any(each is None or each.dtype is not DType.FLOAT32 for each in scales):
        return False
    least, most = np.finfo(np.float32).tiny, np.finfo(np.float32).max / 2 ** (_EXACT_BITS + 1)
    if not bool(((scale >= least) & (scale <= most)).all()):
        return False
    is_same = all(_is_same(quantize, dequantize, index) for index in (SCALE, ZERO_POINT))
    return is_same and (rule.axis(quantize) is None or quantize.attributes == dequantize.attributes)


def _is_same(one: Op, other: Op, index: int) -> bool:
    """Whether two Q/DQ ops have the same scale or zero point."""
    first, second = (op.input(index) for op in (one, other))
    if first is second:
        return True
    a, b = one.constant(index), other.constant(index)
    return a is not None and b is not None and a.shape == b.shape and bool((a == b).all())
