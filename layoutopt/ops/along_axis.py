"""Ops along logical axes: reductions, softmax, selection by indices.

An op counts elements along its axis, so the axis must not be blocked; the other axes may have any format.
"""

from collections.abc import Collection, Mapping
from typing import ClassVar

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Array, Attribute, Op, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, positions
from layoutopt.ops.base import Builder, add_rule, has_padding, register
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


class Reduction(AxiswiseRule):
    """Reduce*: the axes are an attribute or, in later opsets, an input.

    Attributes:
        accepts_zeros: whether padding of zeros in the reduced axes does not change the result.
    """

    family = "reduction"
    formats = "any; reduced axes may be blocked where they have no padding, in sums also if it is zero"
    is_always_agnostic = True
    operations = (1.0, X)
    accepts_zeros: ClassVar[bool] = False

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

    def misfit(self, op: Op, signature: Signature) -> str:
        """The reason if padding of reduced axes would add to the result."""
        is_read = not self.accepts_zeros and self._are_reduced_axes_blocked(op, signature)
        return "the reduction would read the padding" if is_read and has_padding(op.x, signature[X]) else ""

    def _are_reduced_axes_blocked(self, op: Op, signature: Signature) -> bool:
        x = signature[X]
        return x is not None and not set(self.reduced_axes(op) or ()).isdisjoint(x.format.blocked_axes)

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The transfer of the other axes, whose padding is reduced separately; padding of reduced axes must be zero."""
        is_read = inputs[0] and self._are_reduced_axes_blocked(op, signature)
        return None if is_read else super().result_padding(op, signature, inputs)

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


_SUM = PaddingTransfer(ZERO, ANY, ANY, "padding of reduced axes must be zero")
add_rule(Reduction("ReduceMean", "ReduceMax", "ReduceMin", padding=PADDING_KEPT))
add_rule(Reduction("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", padding=_SUM, accepts_zeros=True))
add_rule(Reduction("ReduceProd", padding=PaddingTransfer(ZERO, ANY, ANY)))
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

    def physical_axis(self, op: Op, build: Builder) -> int:
        """The position of the axis in the physical array."""
        (axis,) = positions(build.format(self.ranked), (self.axis(op),))
        return axis

    @override
    def physical_attributes(self, op: Op, build: Builder) -> Mapping[str, Attribute | None]:
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
