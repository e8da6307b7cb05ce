"""Slice: ranges of some axes. A blocked axis can be sliced at block boundaries."""

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Array, Attribute, Op
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.concat_split import block_of, outermost_position
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.operands import present, rank_of, shape_of
from layoutopt.ops.padding_transfer import PADDING_KEPT
from layoutopt.ops.signatures import Inapplicable, X, Y


@register
class Slice(AxiswiseRule):
    """Ranges of some axes; starts, ends, axes and steps come as attributes (before opset 10) or as inputs."""

    family = "rearrangement"
    ops = ("Slice",)
    formats = "any; axes that are sliced at block boundaries may be blocked"
    padding = PADDING_KEPT
    is_always_agnostic = True

    def sliced_axes(self, op: Op) -> tuple[int, ...] | None:
        """The axes that are sliced; None if they are computed."""
        x = op.inputs[0]
        if x is None or x.rank is None:
            return None
        if op.version < 10:
            axes = op.integers("axes", tuple(range(len(op.integers("starts")))))
        elif len(op.inputs) > 3 and op.inputs[3] is not None:
            array = op.constant(3)
            if array is None:
                return None
            axes = tuple(int(axis) for axis in array)
        else:
            starts = op.inputs[1].shape if op.inputs[1] is not None else None
            if starts is None or len(starts) != 1 or not isinstance(starts[0], int):
                return None
            axes = tuple(range(starts[0]))
        return tuple(axis % x.rank for axis in axes)

    def range_of(self, op: Op, axis: int) -> tuple[int, int] | None:
        """The first element of a sliced axis and the one behind the last; None if unknown or with a step other than 1."""
        x, axes = op.inputs[0], self.sliced_axes(op)
        extent = x.shape[axis] if x is not None and x.shape is not None else None
        if axes is None or not isinstance(extent, int):
            return None
        steps = op.constant(4) if len(op.inputs) > 4 and op.inputs[4] is not None else np.ones(len(axes))
        numbers, position = self._numbers(op), axes.index(axis)
        if numbers is None or steps is None or steps[position] != 1:
            return None
        start, stop, _ = slice(*numbers[:, position].tolist()).indices(extent)
        return (start, stop) if start < stop else None

    def _numbers(self, op: Op) -> Array | None:
        """Starts and ends, one column per sliced axis; None if they are computed."""
        if op.version < 10:
            return np.asarray([op.integers("starts"), op.integers("ends")], dtype=np.int64)
        starts, ends = op.constant(1), op.constant(2)
        return None if starts is None or ends is None else np.asarray([starts, ends], dtype=np.int64)

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        if self.sliced_axes(op) is None:
            return Inapplicable("the sliced axes are computed")
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """A sliced axis can be blocked only if it is sliced at block boundaries."""
        if axis not in (self.sliced_axes(op) or ()):
            return ""
        found, block = self.range_of(op, axis), block_of(order, axis)
        if found is None:
            return "a sliced axis cannot be blocked if the range is unknown or has a step"
        start, stop = found
        whole = start % block == 0 and (stop % block == 0 or stop == shape_of(op.inputs[0])[axis])
        return "" if whole and stop - start > 1 else f"an axis is sliced across blocks of {block}"

    @override
    def lower(self, op: Op, build: Builder) -> None:
        format, sliced_axes = build.format(X), self.sliced_axes(op) or ()
        positions = tuple(outermost_position(format, axis) for axis in sliced_axes)
        inputs = [build.input(index) for index in range(len(op.inputs))]
        attributes: dict[str, Attribute] = dict(op.attributes)
        # Blocked axes are sliced in blocks; ranges of other axes may be computed.
        blocked = [(position, axis) for position, axis in enumerate(sliced_axes) if format.block(axis) > 1]
        ranges = self._numbers(op) if blocked else None
        for position, axis in blocked:
            found, block = self.range_of(op, axis), format.block(axis)
            assert ranges is not None and found is not None
            ranges[:, position] = found[0] // block, -(-found[1] // block)
        if op.version < 10:
            attributes["axes"] = positions
            if ranges is not None:
                attributes["starts"], attributes["ends"] = (tuple(row) for row in ranges.tolist())
        else:
            starts = present(op.inputs[1])
            assert starts.dtype is not None
            # Starts may be int32; all index inputs have one type.
            axes = build.constant(np.asarray(positions, dtype=starts.dtype.numpy), "axes")
            if ranges is not None:
                inputs[1:3] = [build.constant(row.astype(starts.dtype.numpy), "range") for row in ranges]
            inputs = [*inputs[:3], axes, *inputs[4:]]
        lower_directly(op, build, attributes, inputs)
