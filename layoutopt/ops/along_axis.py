"""Ops along logical axes: reductions, softmax, running sums, selection, indexing, reversal, the Fourier transform.

An op counts elements along its axis, so the axis must not be blocked; the other axes may have any format.
"""

from collections.abc import Collection
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from typing_extensions import override

from layoutopt.formats import Format, Part, Shape, product, propagate_reshape
from layoutopt.ir.types import Array, Attribute, Op, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, are_last_innermost, positions
from layoutopt.ops.base import Builder, PhysicalOperands, has_padding, register, state_of
from layoutopt.ops.signatures import (
    ANY,
    FINITE,
    PADDING_KEPT,
    ZERO,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    States,
    X,
    Y,
    format_text,
    present_type,
    rank_of,
    shape_of,
    signature_of,
)


def given_integers(op: Op, name: str, index: int) -> tuple[int, ...] | None:
    """Integers that are an attribute up to some opset and an input from then on; () if absent, None if computed."""
    if op.input(index) is None:
        value = op.attributes.get(name, ())
        return (value,) if isinstance(value, int) else op.integers(name)
    array = op.constant(index)
    return None if array is None else tuple(int(number) for number in array.reshape(-1))


def with_integers(
    op: Op, build: Builder, name: str, index: int, numbers: Array, *, is_attribute: bool
) -> tuple[dict[str, Attribute], list[Value | None]]:
    """The physical operands of an op with other integers in an attribute or in an input."""
    inputs = [None if each == index else build.input(each) for each in range(len(op.inputs))]
    if is_attribute:
        return {name: tuple(numbers.tolist()) if numbers.ndim else int(numbers)}, inputs
    inputs += [None] * (index + 1 - len(inputs))
    inputs[index] = build.constant(numbers, name)
    return {}, inputs


# --- reductions ---


_SUMS = ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare")


@register
class Reduction(AxiswiseRule):
    """Reduce*: the axes are an attribute or, in later opsets, an input."""

    family = "reduction"
    ops = (
        *("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp"),
        *_SUMS,
    )
    formats = "any; reduced axes may be blocked where they have no padding, in sums also if it is zero"
    is_always_agnostic = True
    operations = (1.0, X)

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The transfer function of axes that are not reduced."""
        if kind in ("ReduceMean", "ReduceMax", "ReduceMin"):
            return PADDING_KEPT
        if kind == "ReduceLogSumExp":
            return PaddingTransfer(FINITE, FINITE, ANY)
        text = "padding of reduced axes must be zero" if kind in _SUMS else ""
        return PaddingTransfer(ANY if kind == "ReduceLogSum" else ZERO, ANY, ANY, text)

    def reduced_axes(self, op: Op) -> tuple[int, ...] | None:
        """The axes that are reduced; None if they are computed."""
        axes, rank = given_integers(op, "axes", 1), rank_of(op.x)
        if axes == ():
            axes = () if op.integer("noop_with_empty_axes") else tuple(range(rank))
        return None if axes is None else tuple(sorted(axis % rank for axis in axes))

    def missing_rank(self, op: Op) -> str:
        """The missing rank; the rank of the result is also unknown if the axes are computed."""
        is_computed = op.x.rank is not None and self.reduced_axes(op) is None
        return "the reduced axes are computed" if is_computed else super().missing_rank(op)

    def axes(self, op: Op) -> Axes:
        """All axes of the input are iteration axes; the output has those that remain."""
        reduced = () if op.integer("keepdims", 1) else self.reduced_axes(op) or ()
        return _without(reduced, rank_of(op.x), Y)

    def misfit(self, op: Op, signature: Signature) -> str:
        """The reason if padding of reduced axes would add to the result."""
        is_read = self._are_reduced_axes_blocked(op, signature) and op.op_type not in _SUMS
        return "the reduction would read the padding" if is_read and has_padding(op.inputs[0], signature[X]) else ""

    def _are_reduced_axes_blocked(self, op: Op, signature: Signature) -> bool:
        x = signature[X]
        return x is not None and not set(self.reduced_axes(op) or ()).isdisjoint(x.format.blocked_axes)

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The transfer of the other axes, whose padding is reduced separately; padding of reduced axes must be zero."""
        if inputs[0] and self._are_reduced_axes_blocked(op, signature):
            return None
        return super().result_padding(op, signature, inputs)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        target = present_type(build.output_type(0))
        dims = positions(build.format(X), self.reduced_axes(op) or ())
        is_attribute = op.version < (13 if op.op_type == "ReduceSum" else 18)
        attributes, inputs = with_integers(
            op, build, "axes", 1, np.asarray(dims, dtype=np.int64), is_attribute=is_attribute
        )
        shape = tuple(dim for position, dim in enumerate(shape_of(inputs[0])) if position not in dims)
        attributes = {**op.attributes, **attributes, "keepdims": 0}
        (result,) = build.op(op.op_type, inputs, [TensorType(target.dtype, shape)], attributes)
        build.set_output(0, build.reshape(result, shape_of(target)))


def _without(axes: Collection[int], rank: int, slot: Slot) -> Axes:
    """The iteration axes of x and y, without some axes in one of them."""
    rest = tuple(axis for axis in range(rank) if axis not in axes)
    return {each: rest if each == slot else tuple(range(rank)) for each in (X, Y)}


# --- ops along one axis ---


class OneAxis(AxiswiseRule):
    """An op along one axis, which must not be blocked.

    Attributes:
        axis_of: the operand whose axes the attribute `axis` counts.
        default_axis: the value of the attribute if it is absent.
    """

    formats = "any; the axis must not be blocked"

    axis_of = X
    default_axis = -1
    ranks = MappingProxyType({X: 1})
    is_always_agnostic = True

    def axis(self, op: Op) -> int:
        """The axis, counted from the front."""
        return op.integer("axis", self.default_axis) % rank_of(op.operand(self.axis_of))

    @override
    def whole_axes(self, op: Op) -> Collection[int]:
        return (self.axis(op),)

    def physical_axis(self, op: Op, build: Builder) -> int:
        """The position of the axis in the physical array."""
        (axis,) = positions(build.format(self.axis_of), (self.axis(op),))
        return axis

    @override
    def physical_operands(self, op: Op, build: Builder) -> PhysicalOperands:
        _, inputs = super().physical_operands(op, build)
        return {"axis": self.physical_axis(op, build)}, inputs


@register
class Softmax(OneAxis):
    """Softmax, LogSoftmax, Hardmax. Before opset 13 they normalise over all axes from `axis` on together."""

    family = "softmax"
    ops: ClassVar[tuple[str, ...]] = ("Softmax", "LogSoftmax", "Hardmax")
    padding = PaddingTransfer(FINITE, FINITE, ANY)
    is_always_agnostic = False

    def opset(self, op: Op) -> int:
        """The opset of the definition of the op."""
        return op.version

    def axis(self, op: Op) -> int:
        """The axis; its default was 1 before opset 13."""
        return op.integer("axis", -1 if self.opset(op) >= 13 else 1) % rank_of(op.x)

    @override
    def inapplicability(self, op: Op) -> str:
        behind = op.x.dims[self.axis(op) + 1 :]
        is_flattened = self.opset(op) < 13 and any(dim != 1 for dim in behind)
        return "before opset 13 it normalises over several axes" if is_flattened else ""

    @override
    def is_one_op(self, op: Op, signature: Signature) -> bool:
        return self.opset(op) >= 13

    @override
    def is_saturating_activation(self, op: Op) -> bool:
        return True


@register
class ArgReduction(OneAxis):
    """ArgMax and ArgMin: the result is an index along the logical axis."""

    family = "reduction"
    ops = ("ArgMax", "ArgMin")
    padding = PaddingTransfer(FINITE, FINITE, FINITE)
    default_axis = 0

    def axes(self, op: Op) -> Axes:
        """The output has all axes, or all but the reduced one."""
        return _without(() if op.integer("keepdims", 1) else self.whole_axes(op), rank_of(op.x), Y)


class AxisInput(OneAxis):
    """An op whose axis is an input that has to be constant.

    Attributes:
        axis_input: the index of the input.
        input_since: the opset before which the axis is an attribute.
    """

    axis_input = 1
    input_since = 0

    @override
    def inapplicability(self, op: Op) -> str:
        axis = op.constant(self.axis_input)
        is_computed = op.input(self.axis_input) is not None and (axis is None or axis.size != 1)
        return "the axis is computed" if is_computed else ""

    def axis(self, op: Op) -> int:
        """The axis, counted from the front."""
        (axis,) = given_integers(op, "axis", self.axis_input) or (self.default_axis,)
        return axis % rank_of(op.x)

    @override
    def physical_operands(self, op: Op, build: Builder) -> PhysicalOperands:
        given = op.constant(self.axis_input)
        axis = np.asarray(self.physical_axis(op, build), np.int64 if given is None else given.dtype)
        axis = axis if given is None else axis.reshape(given.shape)
        return with_integers(op, build, "axis", self.axis_input, axis, is_attribute=op.version < self.input_since)


@register
class CumulativeOp(AxisInput):
    """Running sums and products along one axis."""

    family = "running"
    ops = ("CumSum", "CumProd")
    padding = PaddingTransfer(ZERO, ANY, ANY, "finite for an exclusive product, which begins with one")

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """Finite for zeros under an exclusive product, which begins with one; else the transfer of the family."""
        starts_with_one = op.op_type == "CumProd" and op.integer("exclusive")
        return FINITE if starts_with_one and not inputs[0] else super().result_padding(op, signature, inputs)


@register
class TopK(OneAxis):
    """The largest or smallest elements and their indices along the axis; their number is an attribute before opset 10."""

    family = "selection"
    ops = ("TopK",)
    padding = PaddingTransfer(FINITE, FINITE, None, "indices are finite")
    operands = (X, Y, Slot("out", 1))

    @override
    def inapplicability(self, op: Op) -> str:
        return "" if op.integer("sorted", 1) else "unsorted elements have no defined order"

    def transfer_padding(self, op: Op, signature: Signature, inputs: States) -> States | None:
        """The state of x for the elements, finite for the indices; None for any, since NaN has no order."""
        return None if inputs[0] is ANY else (inputs[0], FINITE)


@register
class Compress(OneAxis):
    """The slices along an axis for which a condition is true."""

    family = "selection"
    ops = ("Compress",)
    padding = PADDING_KEPT

    @override
    def inapplicability(self, op: Op) -> str:
        return "" if "axis" in op.attributes else "without an axis it counts elements in row-major order"


@register
class FourierTransform(AxisInput):
    """DFT: the axis is an attribute before opset 20, an input from then on.

    The last axis holds real and imaginary parts and stays innermost.
    """

    family = "spectrum"
    ops = ("DFT",)
    formats = "any, real and imaginary parts innermost; the axis must not be blocked"
    padding = PaddingTransfer(ZERO, ANY, ANY)
    axis_input = 2
    input_since = 20
    whole_reason = "the axis of the op and that of real and imaginary parts cannot be blocked"

    def axis(self, op: Op) -> int:
        """The axis, counted from the front: the second one by default before opset 20, the last one of the signal since."""
        rank = rank_of(op.x)
        (axis,) = given_integers(op, "axis", 2) or ((1,) if op.version < 20 else (rank - 2,))
        return axis % rank

    @override
    def whole_axes(self, op: Op) -> Collection[int]:
        return self.axis(op), rank_of(op.x) - 1

    def misfit(self, op: Op, signature: Signature) -> str:
        """The reason if real and imaginary parts are not innermost."""
        return "" if are_last_innermost(signature, 1) else "real and imaginary parts have to be innermost"


@register
class OneHot(OneAxis):
    """One-hot rows of indices: the result has one axis more, whose extent is the operand `depth`."""

    family = "one_hot"
    ops = ("OneHot",)
    formats = "any; the new axis must not be blocked"
    padding = PaddingTransfer(FINITE, FINITE, FINITE, "zero if the values are; floating-point indices must be finite")
    axis_of = Y
    ranks = MappingProxyType({})
    whole_reason = "the new axis cannot be blocked"

    def axes(self, op: Op) -> Axes:
        """All axes of the result are iteration axes; the indices have all but the new one."""
        return _without(self.whole_axes(op), rank_of(op.y), X)

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The state of the two values, if they are constants; a floating-point index that may be NaN is refused."""
        x, values = op.inputs[0], op.constant(2)
        if inputs[0] is ANY and (x is None or x.dtype is None or x.dtype.is_float):
            return None
        return FINITE if values is None else state_of(values)


@register
class ReverseSequence(AxiswiseRule):
    """Reversal of sequences of different lengths: batch and time are the first two axes in either order, and outermost."""

    family = "rearrangement"
    ops = ("ReverseSequence",)
    formats = "batch and time outermost, the others in any format"
    padding = PADDING_KEPT
    ranks = MappingProxyType({X: 2})
    is_always_agnostic = True
    whole_reason = "batch and time cannot be blocked"

    @override
    def whole_axes(self, op: Op) -> Collection[int]:
        return 0, 1

    def misfit(self, op: Op, signature: Signature) -> str:
        """The reason if batch and time are not outermost."""
        x = signature[X]
        is_outermost = x is not None and {part.axis for part in x.format.parts[:2]} == {0, 1}
        return "" if is_outermost else "batch and time have to be the outermost axes"

    @override
    def physical_operands(self, op: Op, build: Builder) -> PhysicalOperands:
        order = [part.axis for part in build.format(X).parts[:2]]
        names = {"batch_axis": 1, "time_axis": 0}
        attributes = {name: order.index(op.integer(name, default)) for name, default in names.items()}
        return attributes, super().physical_operands(op, build)[1]


# --- Elements selected or written by indices ---
#
# An index counts along a logical axis, so that axis must not be blocked; the others may have any format. GatherND and
# ScatterND index the first axes of the array, so those stay outermost.


INDICES, UPDATES = Slot("in", 1), Slot("in", 2)


@register
class CacheUpdate(OneAxis):
    """TensorScatter: writes of keys and values into a cache, at one position per sequence of the batch."""

    family = "rearrangement"
    ops = ("TensorScatter",)
    default_axis = -2
    formats = "the batch outermost, the others in any format; the axis must not be blocked"
    padding = PADDING_KEPT
    operands = (X, INDICES, Y)
    whole_reason = "the axis of the op and the batch cannot be blocked"

    @override
    def whole_axes(self, op: Op) -> Collection[int]:
        return 0, self.axis(op)

    def misfit(self, op: Op, signature: Signature) -> str:
        """The reason if the batch is not the outermost axis, by which the write positions are indexed."""
        storages = (signature[slot] for slot in self.operands)
        is_outermost = all(storage is None or storage.format.parts[0] == Part(0) for storage in storages)
        return "" if is_outermost else "the batch has to be the outermost axis"


@register
class Gather(OneAxis):
    """Slices selected along one axis, which the axes of the indices replace.

    With several index axes, the format of the result with these axes merged is propagated through the reshape that splits them.
    """

    family = "rearrangement"
    ops = ("Gather",)
    padding = PADDING_KEPT
    default_axis = 0
    ranks = MappingProxyType({X: 1, INDICES: 0})

    def axes(self, op: Op) -> Axes:
        """The axes of x and y; a scalar index drops the indexed axis, a list keeps it."""
        return _without(self.whole_axes(op) if rank_of(op.inputs[1]) == 0 else (), rank_of(op.x), Y)

    @override
    def iteration_axes(self, op: Op) -> Axes | Inapplicable:
        axes = super().iteration_axes(op)
        if isinstance(axes, Inapplicable) or rank_of(op.inputs[1]) < 2:
            return axes
        return Inapplicable("the indices have several axes")

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The signature by the iteration axes, or by propagation between input and output."""
        shapes = self._merged_shapes(op)
        if shapes is None:
            return super().complete(op, known)
        source = X if X in known else Y
        if source not in known:
            return Inapplicable("neither side is given")
        formats = self._propagated(known[source], source, *shapes)
        if formats is None:
            return Inapplicable(f"{format_text(op, source, known[source])} does not propagate to the other side")
        if formats[X].block(self.axis(op)) > 1:
            return Inapplicable("the indexed axis cannot be blocked")
        return signature_of(op, formats)

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """The formats of one order of axes on both sides, even where one of them is canonical for its shape."""
        formats, shapes = super().physical_formats(op), self._merged_shapes(op)
        source = next((slot for slot in (Y, X) if not formats[slot].is_canonical), None)
        if shapes is None or source is None:
            return formats
        return {**formats, **(self._propagated(formats[source], source, *shapes) or {})}

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if self._merged_shapes(op) is None:
            super().lower(op, build)
            return
        x, indices, target = build.input(0), build.input(1), present_type(build.output_type(0))
        position, shape = self.physical_axis(op, build), shape_of(x)
        type = TensorType(target.dtype, (*shape[:position], *shape_of(indices), *shape[position + 1 :]))
        (result,) = build.op(op.op_type, [x, indices], [type], {**op.attributes, "axis": position})
        build.set_output(0, build.reshape(result, shape_of(target)))

    def _merged_shapes(self, op: Op) -> tuple[Shape, Shape] | None:
        """The shape of y with the index axes merged, and as it is; None for fewer than two index axes."""
        x, indices, y = (shape_of(value) for value in (op.inputs[0], op.inputs[1], op.outputs[0]))
        axis = self.axis(op)
        return ((*x[:axis], product(indices), *x[axis + 1 :]), y) if len(indices) > 1 else None

    def _propagated(self, format: Format, side: Slot, merged: Shape, y: Shape) -> dict[Slot, Format] | None:
        before, after = (merged, y) if side == X else (y, merged)
        other = propagate_reshape(format, before, after) if format.fits(before) else None
        return None if other is None else {side: format, Y if side == X else X: other}


def is_reduction(op: Op) -> bool:
    """Whether a scatter combines updates with the elements that they are written to."""
    return op.attributes.get("reduction", "none") != "none"


@register
class GatherElements(OneAxis):
    """Elements selected along one axis; the axes of the indices and of the array correspond by position."""

    family = "rearrangement"
    ops: ClassVar[tuple[str, ...]] = ("GatherElements",)
    padding = PaddingTransfer(ZERO, FINITE, ANY, "padding of the indices must be zero")
    default_axis = 0
    ranks = MappingProxyType({X: 1, INDICES: 1})
    operands: ClassVar[tuple[Slot, ...]] = (X, INDICES, Y)
    whole_reason = "the axis of the op, and an axis of which the indices have a part only, cannot be blocked"

    def whole_axes(self, op: Op) -> Collection[int]:
        """The indexed axis, and those whose extents differ in indices and data."""
        pairs = zip(op.x.dims, shape_of(op.inputs[1]), strict=False)
        return {self.axis(op), *(axis for axis, (data, indices) in enumerate(pairs) if data != indices)}

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The larger state of array and updates, if the padding of the indices is zero; any after a reduction."""
        if inputs[1]:
            return None
        return ANY if max(inputs) and is_reduction(op) else max(inputs)


@register
class ScatterElements(GatherElements):
    """Elements written along one axis."""

    ops = ("ScatterElements", "Scatter")
    padding = PaddingTransfer(ZERO, FINITE, ANY, "padding of the indices must be zero; any after a reduction")
    operands = (X, INDICES, UPDATES, Y)


class _LeadingAxesIndexed(AxiswiseRule):
    """Tuples of indices into the first axes of an array; the other axes may have any format.

    Attributes:
        slices: the operand that has the axes of the index tuples in place of the indexed axes.
    """

    family = "rearrangement"
    formats = "indexed axes outermost, the others in any format"
    padding = PADDING_KEPT
    is_always_agnostic = True
    slices: Slot

    def indexed_rank(self, op: Op) -> int:
        """The number of indexed axes of the array, batch axes included; -1 if unknown."""
        indices = op.inputs[1]
        depth = indices.shape[-1] if indices is not None and indices.shape else None
        return depth + op.integer("batch_dims") if isinstance(depth, int) else -1

    @override
    def inapplicability(self, op: Op) -> str:
        return "the number of indexed axes is unknown" if self.indexed_rank(op) < 0 else ""

    def axes(self, op: Op) -> Axes:
        """Axes of array and result correspond; the slices have the axes behind the indexed ones."""
        x, count = rank_of(op.x), self.leading_rank(op, self.slices)
        behind = (*range(x, x + count), *range(self.indexed_rank(op), x))
        return {**dict.fromkeys(self.slots(op), tuple(range(x))), self.slices: behind}

    def leading_rank(self, op: Op, slot: Slot) -> int:
        """The number of axes of an operand that have to be outermost: the indexed ones, or those of the index tuples."""
        indexed = self.indexed_rank(op)
        return rank_of(op.operand(slot)) - (rank_of(op.x) - indexed) if slot == self.slices else indexed

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if the indexed axes and the axes of the index tuples are outermost and not blocked."""
        for slot, format in known.items():
            count = self.leading_rank(op, slot) if slot in self.operands else 0
            if format.parts[:count] != tuple(map(Part, range(count))) or any(a < count for a in format.blocked_axes):
                return Inapplicable(f"the indexed axes are not outermost in {format_text(op, slot, format)}")
        return super().complete(op, known)


@register
class GatherND(_LeadingAxesIndexed):
    """Slices selected by tuples of indices."""

    ops = ("GatherND",)
    slices = Y


@register
class ScatterND(_LeadingAxesIndexed):
    """Slices written by tuples of indices."""

    ops = ("ScatterND",)
    padding = PaddingTransfer(ZERO, FINITE, ANY, "any after a reduction")
    operands = (X, UPDATES, Y)
    slices = UPDATES

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The larger state of array and updates; any after a reduction."""
        return ANY if max(inputs) and is_reduction(op) else super().result_padding(op, signature, inputs)
