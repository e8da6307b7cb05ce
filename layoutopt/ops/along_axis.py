"""Ops along logical axes: reductions, softmax, selection by indices; ops that join, cut, pad or repeat tensors.

An op counts elements along its axis, so the axis must not be blocked, unless Concat, Split or Slice cuts it between blocks;
the other axes may have any format.
"""

from collections.abc import Collection, Sequence
from typing import ClassVar

import numpy as np
from typing_extensions import override

from layoutopt.formats import Dim, Format
from layoutopt.ir.types import Array, Attributes, Op, Operands, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder, positions
from layoutopt.ops.base import PhysicalAttributes, PhysicalOperands, add_rule, register, state_of
from layoutopt.ops.builder import OpBuilder
from layoutopt.ops.interfaces import Pads
from layoutopt.ops.signatures import (
    ANY,
    FINITE,
    PADDING_BECOMES_FINITE,
    PADDING_KEPT,
    ZERO,
    PaddingTransfer,
    States,
    X,
    Y,
    present,
    present_type,
    rank_of,
    shape_of,
)


def given_integers(op: Op, name: str, index: int) -> tuple[int, ...] | None:
    """Integers that are an attribute up to some opset and an input from then on; () if absent, None if computed."""
    if op.input(index) is None:
        value = op.attributes.get(name, ())
        return (value,) if isinstance(value, int) else op.integers(name)
    array = op.constant(index)
    return None if array is None else tuple(int(number) for number in array.reshape(-1))


def with_integers(
    build: OpBuilder, name: str, numbers: Sequence[int], *, is_attribute: bool
) -> tuple[Attributes, list[Value | None]]:
    """The attributes and inputs of an op of one input, with integers in an attribute or in a second input."""
    x = build.input(0)
    return ({name: tuple(numbers)}, [x]) if is_attribute else ({}, [x, build.integers(numbers, name)])


# --- reductions ---


class Reduction(AxiswiseRule):
    """Reduce*: the axes are an attribute or, in later opsets, an input."""

    family = "reduction"
    formats = "any; reduced axes must not be blocked"
    whole_reason = "a reduced axis cannot be blocked"
    is_always_agnostic = True
    operations = (1.0, X)

    def reduced_axes(self, op: Op) -> tuple[int, ...] | None:
        """The axes that are reduced; None if they are computed."""
        axes, rank = given_integers(op, "axes", 1), rank_of(op.x)
        if axes == ():
            axes = () if op.integer("noop_with_empty_axes") else tuple(range(rank))
        return None if axes is None else tuple(sorted(axis % rank for axis in axes))

    def canonical_reason(self, op: Op) -> str:
        """The reason; the rank of the result is unknown if the axes are computed."""
        is_computed = op.x.rank is not None and self.reduced_axes(op) is None
        return "the reduced axes are computed" if is_computed else super().canonical_reason(op)

    def axes(self, op: Op) -> Axes:
        """All axes of the input are iteration axes; the output has those that remain."""
        return without(() if op.integer("keepdims", 1) else self.reduced_axes(op) or (), rank_of(op.x), Y)

    @override
    def whole_axes(self, op: Op) -> Collection[int]:
        return self.reduced_axes(op) or ()

    @override
    def lower(self, op: Op, build: OpBuilder) -> None:
        target = present_type(build.output_type(0))
        dims = positions(build.format(X), self.reduced_axes(op) or ())
        is_attribute = op.version < (13 if op.op_type == "ReduceSum" else 18)
        attributes, inputs = with_integers(build, "axes", dims, is_attribute=is_attribute)
        shape = tuple(dim for position, dim in enumerate(shape_of(inputs[0])) if position not in dims)
        attributes = {**op.attributes, **attributes, "keepdims": 0}
        result = build.result(op.op_type, inputs, TensorType(target.dtype, shape), attributes)
        build.set_output(0, build.reshape(result, shape_of(target)))


add_rule(Reduction("ReduceMean", "ReduceMax", "ReduceMin", padding=PADDING_KEPT))
add_rule(
    Reduction(
        *("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd"),
        padding=PaddingTransfer(ZERO, ANY, ANY),
    )
)
add_rule(Reduction("ReduceLogSum", padding=PaddingTransfer(ANY, ANY, ANY)))
add_rule(Reduction("ReduceLogSumExp", padding=PaddingTransfer(FINITE, FINITE, ANY)))


def without(axes: Collection[int], rank: int, slot: Slot) -> Axes:
    """The iteration axes of x and y, without some axes in one of them."""
    rest = tuple(axis for axis in range(rank) if axis not in axes)
    return {each: rest if each == slot else tuple(range(rank)) for each in (X, Y)}


# --- ops along one axis ---


class OneAxis(AxiswiseRule):
    """An op along one axis, which must not be blocked.

    Attributes:
        ranked: the operand whose axes the attribute `axis` counts.
        default_axis: the value of the attribute if it is absent.
    """

    formats = "any; the axis must not be blocked"
    default_axis = -1
    least_rank = 1
    is_always_agnostic = True

    def axis(self, op: Op) -> int:
        """The axis, counted from the front."""
        return op.integer("axis", self.default_axis) % rank_of(op.operand(self.ranked))

    @override
    def whole_axes(self, op: Op) -> Collection[int]:
        return (self.axis(op),)

    def physical_axis(self, op: Op, build: OpBuilder) -> int:
        """The position of the axis in the physical array."""
        (axis,) = positions(build.format(self.ranked), (self.axis(op),))
        return axis

    @override
    def physical_attributes(self, op: Op, build: OpBuilder) -> PhysicalAttributes:
        return {"axis": self.physical_axis(op, build)}


@register
class Softmax(OneAxis):
    """Softmax, LogSoftmax, Hardmax. Before opset 13 they normalise over all axes from `axis` on together."""

    family = "softmax"
    ops: ClassVar[tuple[str, ...]] = ("Softmax", "LogSoftmax", "Hardmax")
    padding = PaddingTransfer(FINITE, FINITE, ANY)
    is_always_agnostic = False
    is_saturating_activation = True

    def axis(self, op: Op) -> int:
        """The axis; its default was 1 before opset 13."""
        return op.integer("axis", -1 if op.version >= 13 else 1) % rank_of(op.x)

    @override
    def inapplicability(self, op: Op) -> str:
        behind = op.x.dims[self.axis(op) + 1 :]
        is_flattened = op.version < 13 and any(dim != 1 for dim in behind)
        return "before opset 13 it normalises over several axes" if is_flattened else ""

    @override
    def is_one_op(self, op: Op, signature: Signature) -> bool:
        return op.version >= 13


@register
class ArgReduction(OneAxis):
    """ArgMax and ArgMin: the result is an index along the logical axis."""

    family = "reduction"
    ops = ("ArgMax", "ArgMin")
    padding = PADDING_BECOMES_FINITE
    default_axis = 0

    def axes(self, op: Op) -> Axes:
        """The output has all axes, or all but the reduced one."""
        return without(() if op.integer("keepdims", 1) else self.whole_axes(op), rank_of(op.x), Y)


@register
class Gather(OneAxis):
    """Slices selected along one axis by a list of indices, or by one index, which drops the axis."""

    family = "rearrangement"
    ops = ("Gather",)
    padding = PADDING_KEPT
    default_axis = 0

    @override
    def inapplicability(self, op: Op) -> str:
        return "the indices have several axes" if rank_of(op.inputs[1]) > 1 else ""

    def axes(self, op: Op) -> Axes:
        """The axes of x and y; a scalar index drops the indexed axis, a list keeps it."""
        return without(self.whole_axes(op) if rank_of(op.inputs[1]) == 0 else (), rank_of(op.x), Y)


# --- Concat and Split along one axis, at block boundaries if it is blocked. Only the last piece may have padding ---


def block_of(order: IterationOrder, axis: int) -> int:
    """The number of elements of a block of an iteration axis."""
    return int(np.prod([part.block for part in order.parts if part.axis == axis and part.block] or [1]))


def misalignment(extents: Sequence[Dim | None], block: int) -> str:
    """The reason why pieces of an axis cannot be blocked; empty if every piece but the last fills its blocks."""
    if any(not isinstance(dim, int) or dim <= 1 for dim in extents):
        return "a piece of the blocked axis has one element or an unknown extent"
    if any(isinstance(dim, int) and dim % block for dim in extents[:-1]):
        return f"a piece of the blocked axis does not fill blocks of {block}"
    return ""


def outermost_position(format: Format, axis: int) -> int:
    """The position of the outermost part of an axis in the physical array."""
    return next(position for position, part in enumerate(format.parts) if part.axis == axis and not part.block)


def extents_along(values: Sequence[Value | None], axis: int) -> list[Dim | None]:
    """The extents of several tensors along an axis; None where unknown."""
    return [value.shape[axis] if value is not None and value.shape is not None else None for value in values]


class ConcatOrSplit(OneAxis):
    """The layout of Concat and Split: a tensor and its pieces along an axis."""

    family = "rearrangement"
    formats = "any; the axis may be blocked if every piece but the last fills its blocks"
    padding = PADDING_KEPT
    default_axis = 0
    has_operand_classes = True

    def pieces(self, op: Op) -> Operands:
        """The pieces in order."""
        raise NotImplementedError

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the concatenated axis cannot be blocked: a piece other than the last does not fill its blocks."""
        is_along = axis == self.axis(op)
        return misalignment(extents_along(self.pieces(op), axis), block_of(order, axis)) if is_along else ""

    def physical_axis(self, op: Op, build: OpBuilder) -> int:
        """The position of the outermost part of the axis."""
        return outermost_position(build.format(X), self.axis(op))


@register
class Concat(ConcatOrSplit):
    """Concatenation of pieces."""

    ops = ("Concat",)
    operands = ()
    default_axis = 1  # before it was required

    @override
    def pieces(self, op: Op) -> Operands:
        return op.inputs

    @override
    def concatenated_axis(self, op: Op) -> int | None:
        return self.axis(op) if op.x.rank else None


@register
class Split(ConcatOrSplit):
    """A tensor split into pieces; their lengths are an attribute or, in later opsets, an input."""

    ops = ("Split",)

    @override
    def slots(self, op: Op) -> list[Slot]:
        return [slot for slot in op.slots() if slot == X or slot.side == "out"]

    @override
    def pieces(self, op: Op) -> Operands:
        return op.outputs

    def physical_operands(self, op: Op, build: OpBuilder) -> PhysicalOperands:
        """The outermost part of the axis, and the lengths in blocks."""
        block = build.format(X).block(self.axis(op))
        lengths = [
            -(-extent // block) for extent in extents_along(op.outputs, self.axis(op)) if isinstance(extent, int)
        ]
        is_attribute = "split" in op.attributes
        is_even = op.input(1) is None and not is_attribute and len(set(lengths)) == 1
        if block == 1 or is_even:
            return super().physical_operands(op, build)
        changed, inputs = with_integers(build, "split", lengths, is_attribute=is_attribute)
        return {"axis": self.physical_axis(op, build), **changed, "num_outputs": None}, inputs


# --- Slice: ranges of some axes. A blocked axis can be sliced at block boundaries ---


@register
class Slice(AxiswiseRule):
    """Ranges of some axes; starts, ends, axes and steps are inputs, before opset 10 attributes."""

    family = "rearrangement"
    ops = ("Slice",)
    formats = "any; axes that are sliced at block boundaries may be blocked"
    padding = PADDING_KEPT
    is_always_agnostic = True

    def sliced_axes(self, op: Op) -> tuple[int, ...] | None:
        """The axes that are sliced; None if they are computed."""
        rank, axes, starts = rank_of(op.x), given_integers(op, "axes", 3), op.input(1)
        if op.input(3) is None:
            count = starts.shape[0] if starts is not None and starts.shape else None
            axes = tuple(range(count)) if isinstance(count, int) else None
        return None if axes is None else tuple(axis % rank for axis in axes)

    def range_of(self, op: Op, axis: int) -> tuple[int, int] | None:
        """The first element of a sliced axis and the one behind the last; None if unknown or with a step other than 1."""
        axes, numbers, steps = self.sliced_axes(op), self._numbers(op), given_integers(op, "steps", 4)
        extent = op.x.dims[axis]
        if axes is None or numbers is None or steps is None or not isinstance(extent, int):
            return None
        position = axes.index(axis)
        if steps and steps[position] != 1:
            return None
        start, stop, _ = slice(*numbers[:, position].tolist()).indices(extent)
        return (start, stop) if start < stop else None

    def _numbers(self, op: Op) -> Array | None:
        """Starts and ends, one column per sliced axis; None if they are computed."""
        starts, ends = given_integers(op, "starts", 1), given_integers(op, "ends", 2)
        return None if starts is None or ends is None else np.asarray([starts, ends], dtype=np.int64)

    @override
    def inapplicability(self, op: Op) -> str:
        if op.version < 10:
            return "before opset 10 its ranges are attributes"
        return "the sliced axes are computed" if self.sliced_axes(op) is None else ""

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """A sliced axis can be blocked only if it is sliced at block boundaries."""
        if axis not in (self.sliced_axes(op) or ()):
            return ""
        found, block = self.range_of(op, axis), block_of(order, axis)
        if found is None:
            return "a sliced axis cannot be blocked if the range is unknown or has a step"
        start, stop = found
        whole = start % block == 0 and (stop % block == 0 or stop == op.x.dims[axis])
        return "" if whole and stop - start > 1 else f"an axis is sliced across blocks of {block}"

    @override
    def physical_operands(self, op: Op, build: OpBuilder) -> PhysicalOperands:
        format, sliced_axes = build.format(X), self.sliced_axes(op) or ()
        positions = np.asarray([outermost_position(format, axis) for axis in sliced_axes], dtype=np.int64)
        # Blocked axes are sliced in blocks; ranges of other axes may be computed.
        blocked = [(position, axis) for position, axis in enumerate(sliced_axes) if format.block(axis) > 1]
        ranges = self._numbers(op) if blocked else None
        for position, axis in blocked:
            found, block = self.range_of(op, axis), format.block(axis)
            assert ranges is not None and found is not None
            ranges[:, position] = found[0] // block, -(-found[1] // block)
        changed = {"axes": positions} if ranges is None else {"axes": positions, "starts": ranges[0], "ends": ranges[1]}
        _, inputs = super().physical_operands(op, build)
        inputs += [None] * (4 - len(inputs))
        starts = present(op.inputs[1])
        assert starts.dtype is not None
        for name, numbers in changed.items():  # starts may be int32; all index inputs have one type
            constant = build.constant(numbers.astype(starts.dtype.numpy), "axes" if name == "axes" else "range")
            inputs[("", "starts", "ends", "axes").index(name)] = constant
        return {}, inputs


# --- Pad: elements added at both ends of axes ---


@register
class Pad(AxiswiseRule):
    """Elements added at both ends of axes; pads are an input, before opset 11 an attribute."""

    family = "rearrangement"
    ops = ("Pad",)
    formats = "any; padded axes must not be blocked"
    padding = PaddingTransfer(ZERO, FINITE, ANY, "the state of the constant that it pads with")
    is_always_agnostic = True
    whole_reason = "a padded axis cannot be blocked"

    def pads(self, op: Op) -> Pads | None:
        """The numbers of elements added before and behind each axis; None if computed."""
        numbers, axes = given_integers(op, "pads", 1), given_integers(op, "axes", 3)
        if numbers is None or axes is None:
            return None
        rank, half = rank_of(op.x), len(numbers) // 2
        listed = range(rank) if op.input(3) is None else [axis % rank for axis in axes]
        return {axis: (numbers[position], numbers[position + half]) for position, axis in enumerate(listed)}

    def _filler(self, op: Op) -> Array | None:
        """The constant that the op pads with; None if it is computed, or the op pads with elements of x."""
        if op.attributes.get("mode", "constant") != "constant":
            return None
        return np.asarray(0.0) if op.input(2) is None else op.constant(2)

    def zero_pads(self, op: Op) -> Pads | None:
        """The pads, if they are constant, not negative, and of zeros."""
        x, filler = op.inputs[0], self._filler(op)
        pads = None if self.canonical_reason(op) else self.pads(op)
        if pads is None or filler is None or filler.any():
            return None
        padding = {axis: ends for axis, ends in pads.items() if any(ends)}
        known = all(min(ends) >= 0 and isinstance(shape_of(x)[axis], int) for axis, ends in padding.items())
        return padding if known else None

    @override
    def inapplicability(self, op: Op) -> str:
        if op.version < 11:
            return "before opset 11 its pads are an attribute"
        return "the pads are computed" if self.pads(op) is None else ""

    @override
    def whole_axes(self, op: Op) -> Collection[int]:
        return [axis for axis, ends in (self.pads(op) or {}).items() if any(ends)]

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The larger state of x and of the constant, which is also written behind padding elements."""
        if op.attributes.get("mode", "constant") != "constant":
            return super().result_padding(op, signature, inputs)
        filler = self._filler(op)
        return max(inputs[0], FINITE if filler is None else state_of(filler))  # a computed one is finite, like data

    def must_be_expanded(self, op: Op) -> bool:
        """Whether the op has axes: onnxruntime 1.31 moves a Transpose across it as if it had pads for every axis."""
        return op.input(3) is not None and not self.canonical_reason(op)

    @override
    def physical_operands(self, op: Op, build: OpBuilder) -> PhysicalOperands:
        pads = self.pads(op)
        assert pads is not None
        ends = [(0, 0) if part.block else pads.get(part.axis, (0, 0)) for part in build.format(X).parts]
        flat = np.asarray(ends, dtype=np.int64).reshape(-1, 2).T.reshape(-1)
        return {}, [
            build.input(0),
            build.constant(flat, "pads"),
            *([build.input(2)] if op.input(2) is not None else []),
        ]


# --- Tile, which repeats a tensor along its axes ---


@register
class Tile(AxiswiseRule):
    """Repeats a tensor along its axes. The input `repeats` has to be constant."""

    family = "rearrangement"
    ops = ("Tile",)
    formats = "any; repeated axes must not be blocked"
    padding = PADDING_KEPT
    is_always_agnostic = True
    is_pure_broadcast = True
    whole_reason = "a repeated axis cannot be blocked"

    @override
    def inapplicability(self, op: Op) -> str:
        return "the repeats are computed" if op.constant(1) is None else ""

    @override
    def whole_axes(self, op: Op) -> Collection[int]:
        return [axis for axis, count in enumerate(given_integers(op, "repeats", 1) or ()) if count != 1]

    @override
    def physical_operands(self, op: Op, build: OpBuilder) -> PhysicalOperands:
        repeats = given_integers(op, "repeats", 1) or ()
        counts = [1 if part.block else repeats[part.axis] for part in build.format(X).parts]
        return {}, [build.input(0), build.integers(counts, "repeats")]
