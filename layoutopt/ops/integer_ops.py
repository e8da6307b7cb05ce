"""Ops on integers with scales: matrix products, element-wise ops, pooling; convolutions are in `convolution`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from typing_extensions import override

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Padding, Signature, Slot, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder, OneAxis, positions
from layoutopt.ops.base import Builder, LayoutRule, lower_directly, padded_axes_of, register
from layoutopt.ops.elementwise import Elementwise
from layoutopt.ops.feature_maps import SpatialRule
from layoutopt.ops.interfaces import QuantizedOp, SaturatingActivation, feature_map_letters
from layoutopt.ops.qdq import is_absent_or_zero, is_per_tensor
from layoutopt.ops.signatures import (
    PADDING_KEPT,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    X,
    Y,
    chosen_signature,
    estimated_extent,
    estimated_volume,
    is_canonical,
    padded_output,
    present,
    rank_of,
    shape_of,
    signature_of,
)

# --- integer matmul ---
#
# Matrix products of integers: QLinearMatMul, MatMulInteger, QGemm, and products with packed or dynamically quantised
# operands.
#
#     y = saturate(round(sum (a - a_zero) * (b - b_zero) * a_scale * b_scale / y_scale) + y_zero)
#
# Scales and zero points are scalars, or vectors along the columns of b. Padding of K adds nothing where one of the operands
# has zeros there and a zero point of zero.


class IntegerProduct(LayoutRule, QuantizedOp):
    """The layout of products of integers. Every operand has a format of its own.

    Attributes:
        factors: the inputs that are a and b.
        zero_points: the inputs that are their zero points.
        bias: the input that is the bias, if the op has one.
        result_zero_point: the input that is the zero point of the result, if the op has one.
        per_tensor_inputs: the inputs that are scales and zero points of a and of the result.
        per_column_inputs: the inputs that are scales and zero points of b, which may be vectors.
    """

    family = "matmul"
    has_independent_operands = True
    formats = "any; matrices may be blocked"
    padding = PaddingTransfer(
        Padding.FINITE, Padding.FINITE, Padding.FINITE, "the summed axis requires zeros and a zero point of zero"
    )
    factors: ClassVar[tuple[int, int]] = (0, 3)
    zero_points: ClassVar[tuple[int, int]] = (2, 5)
    bias: ClassVar[int | None] = None
    result_zero_point: ClassVar[int | None] = None
    per_tensor_inputs: ClassVar[tuple[int, ...]]
    per_column_inputs: ClassVar[tuple[int, ...]]

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        a, b = self.factors
        return {"a": Slot("in", a), "b": Slot("in", b), "y": Y}

    @override
    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        return dict.fromkeys(self.roles(op).values(), 2)

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The known formats, canonical for the other operands."""
        if reason := self._inapplicability(op):
            return Inapplicable(reason)
        for slot, format in known.items():
            if slot not in self.roles(op).values():
                return Inapplicable(f"{slot} is not a matrix")
            if any(axis < format.rank - 2 for axis in format.blocked_axes):
                return Inapplicable("a batch axis cannot be blocked")
        if not self._is_depth_known(op) and any(format.blocked_axes for format in known.values()):
            return Inapplicable("the extent of the summed axis is unknown")
        return signature_of(op, known)

    def _is_depth_known(self, op: Op) -> bool:
        """Whether K is a number, so that padding can be cut."""
        (_, ka), (kb, _) = self.axes(op)
        a, b = (shape_of(op.inputs[index]) for index in self.factors)
        return isinstance(a[ka], int) and isinstance(b[kb], int)

    def _inapplicability(self, op: Op) -> str:
        """The reason why the operands have canonical formats only; empty if there is none."""
        shapes = [shape_of(op.operand(slot)) for slot in self.roles(op).values()]
        (m, _), (_, n) = self.axes(op)
        if shapes[0][m] != shapes[2][-2] or shapes[1][n] != shapes[2][-1]:
            return "rows and columns of the operands may differ from those of the result"
        for index in (*self.per_tensor_inputs, *self.per_column_inputs):
            value = self.optional_input(op, index)
            if not is_per_tensor(value) and (index not in self.per_column_inputs or value is None or value.rank != 1):
                return "a scale or zero point is neither a scalar nor a vector along the columns of b"
        bias = self.optional_input(op, self.bias)
        return "the shape of the bias is unknown" if bias is not None and bias.static_shape is None else ""

    def optional_input(self, op: Op, index: int | None) -> Value | None:
        """An input; None if it is absent."""
        return op.inputs[index] if index is not None and index < len(op.inputs) else None

    def axes(self, op: Op) -> tuple[tuple[int, int], tuple[int, int]]:
        """The axes of a along M and K, and those of b along K and N."""
        ranks = [rank_of(op.inputs[index]) for index in self.factors]
        pairs = [(rank - 2, rank - 1) for rank in ranks]
        a, b = (
            pair[::-1] if op.integer(name) else pair for pair, name in zip(pairs, ("transA", "transB"), strict=True)
        )
        return a, b

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Zero for sums over zeros; for padding of rows and columns any number, finite if the result has few bits."""
        if any(state for index, state in enumerate(inputs) if index not in self.factors):
            return None
        (_, ka), (kb, _) = self.axes(op)
        of_a, of_b = (padded_axes_of(op.inputs[each], signature.inputs[each]) for each in self.factors)
        zeros = [
            inputs[each] is Padding.ZERO and is_absent_or_zero(op, point)
            for each, point in zip(self.factors, self.zero_points, strict=True)
        ]
        if ka in of_a and kb in of_b and not any(zeros):
            return None
        is_zero = all(zeros) and self.optional_input(op, self.bias) is None
        if self.result_zero_point is not None and self.optional_input(op, self.result_zero_point) is not None:
            return (Padding.ZERO if is_zero and is_absent_or_zero(op, self.result_zero_point) else Padding.FINITE,)
        return (Padding.ZERO if is_zero else Padding.ANY,)

    def lower(self, op: Op, build: Builder) -> None:
        """The canonical product on padded matrices; operands with different padding are resized to equal extents."""
        y_type = padded_output(op)
        y_shape = shape_of(y_type)
        rows, columns = y_shape[-2:]
        inputs = [build.padded(index) for index in range(len(op.inputs))]
        first, second = self.factors
        a, b = present(inputs[first]), present(inputs[second])
        (m, ka), (kb, n) = self.axes(op)
        summed = shape_of(op.inputs[first])[ka]
        if shape_of(a)[ka] != shape_of(b)[kb] and isinstance(summed, int):
            a, b = build.resize_axis(a, ka, summed), build.resize_axis(b, kb, summed)
        if isinstance(rows, int):
            a = build.resize_axis(a, m, rows)
        if isinstance(columns, int):
            b = build.resize_axis(b, n, columns)
        inputs[first], inputs[second] = a, b
        for index in self.per_column_inputs:
            vector = self.optional_input(op, index)
            if vector is not None and not is_per_tensor(vector) and isinstance(columns, int):
                inputs[index] = build.resize_axis(present(inputs[index]), 0, columns)
        bias = self.optional_input(op, self.bias)
        if bias is not None and bias.shape is not None and self.bias is not None:
            targets = y_shape[len(y_shape) - len(bias.shape) :]
            for axis, (dim, target) in enumerate(zip(bias.shape, targets, strict=True)):
                padded = inputs[self.bias]
                if dim != 1 and isinstance(target, int) and padded is not None:
                    inputs[self.bias] = build.resize_axis(padded, axis, target)
        (result,) = build.op(op.op_type, inputs, [y_type], op.attributes)
        build.set_padded_output(0, result)

    @override
    def flops(self, op: Op) -> float:
        a, y = op.inputs[self.factors[0]], op.outputs[0]
        if a is None or y is None or a.rank is None or a.rank < 2 or a.shape is None or y.shape is None:
            return 0.0
        return 2.0 * estimated_volume(y.shape) * estimated_extent(a.shape[a.rank - (2 if op.integer("transA") else 1)])


@register
class QLinearMatMul(IntegerProduct):
    """Integers of few bits in and out."""

    ops: ClassVar[tuple[str, ...]] = ("QLinearMatMul",)
    result_zero_point = 7
    per_tensor_inputs = (1, 2, 6, 7)
    per_column_inputs = (4, 5)


@register
class MatMulInteger(IntegerProduct):
    """Sums as integers of 32 bits."""

    ops: ClassVar[tuple[str, ...]] = ("MatMulInteger",)
    padding = PaddingTransfer(
        Padding.ZERO, Padding.ANY, Padding.ANY, "the summed axis requires zeros and a zero point of zero"
    )
    factors = (0, 1)
    zero_points = (2, 3)
    per_tensor_inputs = (2,)
    per_column_inputs = (3,)


@register
class QGemm(IntegerProduct):
    """With a bias of 32 bits; the result has few bits if it has a scale."""

    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::QGemm",)
    bias = 6
    result_zero_point = 8
    per_tensor_inputs = (1, 2, 7, 8)
    per_column_inputs = (4, 5)


@register
class PackedProduct(AxiswiseRule, QuantizedOp):
    """Rows times a matrix in a kernel-specific packing, or rows that are quantised with one scale.

    a (..., M, K)  ->  y (..., M, N). All other operands stay canonical.
    """

    family = "packed_matmul"
    formats = "any; the summed axis and columns must not be blocked"
    padding = PaddingTransfer(Padding.ANY, Padding.ANY, Padding.ANY)
    ops: ClassVar[tuple[str, ...]] = tuple(
        f"com.microsoft::{kind}"
        for kind in ("MatMulNBits", "MatMulBnb4", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
    )
    ranks = MappingProxyType({X: 2, Y: 2})

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The transfer; DynamicQuantizeMatMul computes one range for all rows, so their padding must be zero."""
        return PaddingTransfer(Padding.ANY, None, None) if kind.endswith("DynamicQuantizeMatMul") else self.padding

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        return {"x": X, "y": Y}

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Rows and batches correspond; K and N are axes of their own."""
        rank = rank_of(op.inputs[0])
        if rank != rank_of(op.outputs[0]):
            return Inapplicable("the input and the result differ in rank")
        if op.op_type in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
            b = op.inputs[1]
            if b is None or b.rank != 2:
                return Inapplicable("b is not one matrix")
            if op.op_type == "MatMulIntegerToFloat" and not all(map(is_per_tensor, (op.inputs[2], *op.inputs[4:5]))):
                return Inapplicable("every row has its own scale")
        rows = tuple(range(rank - 1))
        return {X: (*rows, rank), Y: (*rows, rank - 1)}

    @override
    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        return "" if axis < rank_of(op.inputs[0]) - 1 else "the kernel reads and writes whole rows"

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether rows are contiguous in inputs and output."""
        storages = (signature.inputs[0], signature.outputs[0])
        return is_canonical(signature) or all(
            each is None or each.format.parts[-1].axis == each.format.rank - 1 for each in storages
        )

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """The formats of the signature: no operand has all axes, so no format orders all of them."""
        return LayoutRule.physical_formats(self, op)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if self.is_layout_agnostic(op, chosen_signature(op)):
            lower_directly(op, build)
        else:
            super().lower(op, build)

    @override
    def flops(self, op: Op) -> float:
        a, y = op.inputs[0], op.outputs[0]
        if a is None or y is None or not a.shape or y.shape is None:
            return 0.0
        return 2.0 * estimated_volume(y.shape) * estimated_extent(a.shape[-1])


# --- Quantised (QLinear) ops of com.microsoft: element-wise, along an axis, pooling; and NhwcMaxPool ---
#
# In the inputs of a QLinear op, the scale and zero point of each quantised tensor are scalars, which have no format. Padding
# elements are integers of 8 bits, so they are always finite.


@register
class IntegerElementwise(Elementwise, QuantizedOp):
    """Element-wise ops on one or two quantised tensors, with broadcasting; QLinearWhere also on a boolean condition."""

    padding = PaddingTransfer(
        Padding.FINITE, Padding.FINITE, Padding.FINITE, "zero if the op maps zero to zero and all zero points are zero"
    )
    _TENSOR_OPERANDS: ClassVar[dict[str, tuple[int, ...]]] = {
        "QLinearAdd": (0, 3),
        "QLinearMul": (0, 3),
        "QLinearWhere": (0, 1, 4),
        "QLinearSigmoid": (0,),
        "QLinearLeakyRelu": (0,),
    }
    _ZERO_PRESERVING: ClassVar[tuple[str, ...]] = ("QLinearAdd", "QLinearMul", "QLinearLeakyRelu")
    ops: ClassVar[tuple[str, ...]] = tuple(f"com.microsoft::{kind}" for kind in _TENSOR_OPERANDS)

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        axes = super().axes(op)
        tensors = {Slot("in", index) for index in self._TENSOR_OPERANDS[op.op_type]}
        return (
            axes
            if isinstance(axes, Inapplicable)
            else {slot: axes[slot] for slot in axes if slot in tensors or slot == Y}
        )

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...]:
        """Zero if the five conditions below hold; else finite.

        The op maps zero to zero, all tensors have the shape of the result, none is constant, all padding is zero, and all zero
        points are zero. The rule uses no padding of constants, whose state in `inputs` is zero whatever their format is.
        """
        y = op.outputs[0]
        tensors = [op.inputs[index] for index in self._TENSOR_OPERANDS[op.op_type]]
        have_result_shape = all(value is not None and y is not None and value.shape == y.shape for value in tensors)
        none_constant = all(value is not None and not value.is_constant for value in tensors)
        zero_points_are_zero = all(
            is_absent_or_zero(op, index) for index, value in enumerate(op.inputs) if _is_zero_point(value)
        )
        zero_padding = all(state is Padding.ZERO for state in inputs)
        keeps_zero = (
            op.op_type in self._ZERO_PRESERVING
            and have_result_shape
            and none_constant
            and zero_points_are_zero
            and zero_padding
        )
        return (Padding.ZERO if keeps_zero else Padding.FINITE,)


def _is_zero_point(value: Value | None) -> bool:
    """Whether an operand is a zero point, which is a single integer; scales are floating-point numbers."""
    return value is not None and value.shape in ((), (1,)) and value.dtype is not None and not value.dtype.is_float


@register
class IntegerConcat(OneAxis, QuantizedOp):
    """Concatenation of inputs with a scale and zero point each."""

    family = "rearrangement"
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.FINITE)
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::QLinearConcat",)

    @override
    def axis(self, op: Op) -> int:
        return op.integer("axis") % rank_of(op.outputs[0])

    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        """The result and the concatenated inputs, each of which is followed by its scale and zero point."""
        return {Y: 1, **dict.fromkeys((Slot("in", index) for index in range(2, len(op.inputs), 3)), 0)}

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        return dict.fromkeys(self.minimum_ranks(op), tuple(range(rank_of(op.outputs[0]))))

    @override
    def lower(self, op: Op, build: Builder) -> None:
        (axis,) = positions(build.format(Y), (self.axis(op),))
        lower_directly(op, build, {"axis": axis})


@register
class IntegerSoftmax(OneAxis, QuantizedOp, SaturatingActivation):
    """Quantised Softmax; attribute `opset` is the opset whose definition of Softmax it has."""

    family = "softmax"
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.FINITE)
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::QLinearSoftmax",)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of x and y; Inapplicable before opset 13 if axes behind the op's axis have several elements."""
        dims_behind = shape_of(op.inputs[0])[self.axis(op) + 1 :]
        is_flattened = op.integer("opset", 13) < 13 and any(dim != 1 for dim in dims_behind)
        return Inapplicable("before opset 13 it normalises over several axes") if is_flattened else super().axes(op)

    @override
    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        return op.integer("opset", 13) >= 13 or is_canonical(signature)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if op.integer("opset", 13) >= 13:
            super().lower(op, build)
        else:
            AxiswiseRule.lower(self, op, build)


class ChannelsFirstOrLast(SpatialRule, QuantizedOp):
    """An op on images in the order (N, C, *spatial) or (N, *spatial, C)."""

    def roles(self, op: Op) -> Mapping[str, Slot]:
        """No roles for channels-last ops, so no kernel of a target matches."""
        return {} if self.is_channels_last(op) else {"x": X, "y": Y}

    def spatial_axes(self, op: Op) -> range:
        """The spatial axes."""
        rank = op.inputs[0].rank if op.inputs[0] is not None else None
        return range(1, (rank or 2) - 1) if self.is_channels_last(op) else range(2, rank or 2)

    def is_channels_last(self, op: Op) -> bool:
        """Whether channels are the last axis."""
        return bool(op.integer("channels_last"))

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        return feature_map_letters(op, X, Y, is_channels_last=self.is_channels_last(op))

    @override
    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        return "a spatial axis cannot be blocked" if axis in self.spatial_axes(op) else ""


@register
class IntegerPooling(ChannelsFirstOrLast):
    """Average pooling of integers, with a quantised result."""

    family = "pooling"
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.FINITE)
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::QLinearAveragePool", "com.microsoft::QLinearGlobalAveragePool")

    def flops(self, op: Op) -> float:
        """One per element of the input; overlapping windows read more, which costs little."""
        x = op.inputs[0]
        return float(estimated_volume(x.shape)) if x is not None and x.shape is not None else 0.0


@register
class MaxPoolingChannelsLast(ChannelsFirstOrLast):
    """The largest integer of a window, on (N, *spatial, C)."""

    family = "pooling"
    padding = PADDING_KEPT
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::NhwcMaxPool",)

    @override
    def is_channels_last(self, op: Op) -> bool:
        return True
