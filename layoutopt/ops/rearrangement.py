"""Concatenation, splitting and padding along axes: Concat, Split, Slice, Pad.

A blocked axis can be cut at block boundaries. Only the last piece may have padding.
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from typing_extensions import override

from layoutopt.formats import Dim, Format
from layoutopt.ir.types import Array, Attribute, Lanes, Op, Signature, Slot, Value
from layoutopt.ops.axis import OneAxis
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.interfaces.concatenation import ConcatenationOp
from layoutopt.ops.interfaces.pads import Pads, ZeroPadOp
from layoutopt.ops.operands import present, rank_of, shape_of
from layoutopt.ops.padding_state import state_of
from layoutopt.ops.padding_transfer import PADDING_KEPT, PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y


def block_of(order: IterationOrder, axis: int) -> int:
    """The number of elements of a block of an iteration axis."""
    return int(np.prod([part.block for part in order.parts if part.axis == axis and part.block] or [1]))


def unaligned(extents: Sequence[Dim], block: int) -> str:
    """The reason why pieces of an axis cannot be blocked; empty if every piece but the last fills its blocks."""
    if any(not isinstance(dim, int) or dim <= 1 for dim in extents):
        return "a piece of the blocked axis has one element or an unknown extent"
    if any(isinstance(dim, int) and dim % block for dim in extents[:-1]):
        return f"a piece of the blocked axis does not fill blocks of {block}"
    return ""


def outer_position(format: Format, axis: int) -> int:
    """The position of the outermost part of an axis in the physical array."""
    return next(place for place, part in enumerate(format.parts) if part.axis == axis and not part.block)


def pieces_along(values: Sequence[Value | None], axis: int) -> list[Dim]:
    """The extents of several tensors along an axis; "?" where unknown."""
    return [value.shape[axis] if value is not None and value.shape is not None else "?" for value in values]


class Pieces(OneAxis):
    """One tensor on one side, its pieces along an axis on the other."""

    family = "rearrangement"
    formats = "any; the axis may be blocked if every piece but the last fills its blocks"
    padding = PADDING_KEPT
    default_axis = 0

    def pieces(self, op: Op) -> tuple[Value | None, ...]:
        """The pieces in order."""
        raise NotImplementedError

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """All other axes; this one if every piece but the last fills its blocks."""
        return unaligned(pieces_along(self.pieces(op), axis), block_of(order, axis)) if axis == self.axis(op) else ""

    @override
    def operand_classes(self, op: Op) -> Mapping[Slot, Hashable]:
        return self.aligned_classes(op)

    def lower(self, op: Op, build: Builder) -> None:
        """The same op along the outermost part of the axis."""
        place = outer_position(build.format(op.slots()[0]), self.axis(op))
        inputs, attributes = self.physical(op, build, place)
        types = [build.output_type(index) for index in range(len(op.outputs))]
        indices = [index for index, value in enumerate(op.outputs) if value is not None]
        for index, result in zip(indices, build.op(op.op_type, inputs, types, attributes), strict=True):
            build.set_output(index, result)

    def physical(self, op: Op, build: Builder, place: int) -> tuple[list[Value | None], dict[str, Attribute]]:
        """Inputs and attributes of the op along physical axis `place`."""
        return [build.input(index) for index in range(len(op.inputs))], {**op.attributes, "axis": place}


@register
class Concat(Pieces, ConcatenationOp):
    """Concatenation of pieces."""

    ops = ("Concat",)

    @override
    def pieces(self, op: Op) -> tuple[Value | None, ...]:
        return op.inputs

    @override
    def required_ranks(self, op: Op) -> Mapping[Slot, int]:
        return {**dict.fromkeys((Slot("in", index) for index in range(len(op.inputs))), 0), Y: 0}

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        return dict.fromkeys(op.slots(), tuple(range(rank_of(op.inputs[0]))))

    def axis(self, op: Op) -> int:
        """The axis; its default was 1 before it was required."""
        return op.integer("axis", 1) % rank_of(op.inputs[0])

    @override
    def concatenated_axis(self, op: Op) -> int | None:
        return self.axis(op) if op.inputs[0] is not None and op.inputs[0].rank else None


@register
class Split(Pieces):
    """A tensor split into pieces."""

    ops = ("Split",)

    @override
    def pieces(self, op: Op) -> tuple[Value | None, ...]:
        return op.outputs

    @override
    def required_ranks(self, op: Op) -> Mapping[Slot, int]:
        return dict.fromkeys((X, *(slot for slot in op.slots() if slot.side == "out")), 0)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position; the input with the lengths does not take part."""
        return dict.fromkeys(self.required_ranks(op), tuple(range(rank_of(op.inputs[0]))))

    @override
    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        states = super().transfer_padding(op, signature, inputs)
        return None if states is None else states * len(op.outputs)

    def physical(self, op: Op, build: Builder, place: int) -> tuple[list[Value | None], dict[str, Attribute]]:
        """Lengths are counted in blocks."""
        inputs, attributes = super().physical(op, build, place)
        block = build.format(X).block(self.axis(op))
        if block == 1:
            return inputs, attributes
        lengths = tuple(-(-int(dim) // block) for dim in pieces_along(op.outputs, self.axis(op)))
        if len(op.inputs) > 1 and op.inputs[1] is not None:
            inputs[1] = build.constant(np.asarray(lengths, dtype=np.int64), "split")
        elif "split" in op.attributes:
            attributes["split"] = lengths
        elif len(set(lengths)) > 1:
            attributes.pop("num_outputs", None)
            inputs = [inputs[0], build.constant(np.asarray(lengths, dtype=np.int64), "split")]
        return inputs, attributes


@register
class Slice(AxiswiseRule):
    """Ranges of some axes; starts, ends, axes and steps come as attributes (before opset 10) or as inputs."""

    family = "rearrangement"
    ops = ("Slice",)
    formats = "any; axes that are sliced at block boundaries may be blocked"
    padding = PADDING_KEPT
    is_always_agnostic = True

    def sliced(self, op: Op) -> tuple[int, ...] | None:
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
        x, axes = op.inputs[0], self.sliced(op)
        extent = x.shape[axis] if x is not None and x.shape is not None else None
        if axes is None or not isinstance(extent, int):
            return None
        steps = op.constant(4) if len(op.inputs) > 4 and op.inputs[4] is not None else np.ones(len(axes))
        numbers, place = self._numbers(op), axes.index(axis)
        if numbers is None or steps is None or steps[place] != 1:
            return None
        start, stop, _ = slice(*numbers[:, place].tolist()).indices(extent)
        return (start, stop) if start < stop else None

    def _numbers(self, op: Op) -> Array | None:
        """Starts and ends, one column per sliced axis; None if they are computed."""
        if op.version < 10:
            return np.asarray([op.integers("starts"), op.integers("ends")], dtype=np.int64)
        starts, ends = op.constant(1), op.constant(2)
        return None if starts is None or ends is None else np.asarray([starts, ends], dtype=np.int64)

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        if self.sliced(op) is None:
            return Inapplicable("the sliced axes are computed")
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Axes that are not sliced, or sliced at block boundaries."""
        if axis not in (self.sliced(op) or ()):
            return ""
        found, block = self.range_of(op, axis), block_of(order, axis)
        if found is None:
            return "a sliced axis cannot be blocked if the range is unknown or has a step"
        start, stop = found
        whole = start % block == 0 and (stop % block == 0 or stop == shape_of(op.inputs[0])[axis])
        return "" if whole and stop - start > 1 else f"an axis is sliced across blocks of {block}"

    @override
    def lower(self, op: Op, build: Builder) -> None:
        format, sliced = build.format(X), self.sliced(op) or ()
        places = tuple(outer_position(format, axis) for axis in sliced)
        inputs = [build.input(index) for index in range(len(op.inputs))]
        attributes: dict[str, Attribute] = dict(op.attributes)
        # Blocked axes are sliced in blocks; ranges of other axes may be computed.
        blocked = [(place, axis) for place, axis in enumerate(sliced) if format.block(axis) > 1]
        ranges = self._numbers(op) if blocked else None
        for place, axis in blocked:
            found, block = self.range_of(op, axis), format.block(axis)
            assert ranges is not None and found is not None
            ranges[:, place] = found[0] // block, -(-found[1] // block)
        if op.version < 10:
            attributes["axes"] = places
            if ranges is not None:
                attributes["starts"], attributes["ends"] = (tuple(row) for row in ranges.tolist())
        else:
            starts = present(op.inputs[1])
            assert starts.dtype is not None
            # Starts may be int32; all index inputs have one type.
            axes = build.constant(np.asarray(places, dtype=starts.dtype.numpy), "axes")
            if ranges is not None:
                inputs[1:3] = [build.constant(row.astype(starts.dtype.numpy), "range") for row in ranges]
            inputs = [*inputs[:3], axes, *inputs[4:]]
        lower_directly(op, build, attributes, inputs)


@register
class Pad(AxiswiseRule, ZeroPadOp):
    """Elements added at both ends of axes; pads are an attribute (before opset 11) or an input."""

    family = "rearrangement"
    ops = ("Pad",)
    formats = "any; padded axes must not be blocked"
    padding = PaddingTransfer(Lanes.ZERO, Lanes.FINITE, Lanes.ANY, "the state of the constant that it pads with")
    is_always_agnostic = True

    def pads(self, op: Op) -> dict[int, tuple[int, int]] | None:
        """The numbers of elements added before and behind each axis; None if computed."""
        x = op.inputs[0]
        if x is None or x.rank is None:
            return None
        axes: Sequence[int] = range(x.rank)
        if op.version < 11:
            numbers = op.integers("pads") or op.integers("paddings")
        else:
            array = op.constant(1)
            if array is None:
                return None
            numbers = tuple(int(number) for number in array)
            if len(op.inputs) > 3 and op.inputs[3] is not None:
                chosen: Array | None = op.constant(3)
                if chosen is None:
                    return None
                axes = [int(axis) % x.rank for axis in chosen]
        half = len(numbers) // 2
        return {axis: (numbers[place], numbers[place + half]) for place, axis in enumerate(axes)}

    def zero_pads(self, op: Op) -> Pads | None:
        """The pads, if they are constant, not negative, and of zeros."""
        pads, x = self.pads(op), op.inputs[0]
        if pads is None or x is None or x.shape is None or op.attributes.get("mode", "constant") != "constant":
            return None
        value: object = op.attributes.get("value", 0.0)
        if op.version >= 11 and len(op.inputs) > 2 and op.inputs[2] is not None:
            value = op.constant(2)
        if value is None or np.any(np.asarray(value) != 0):
            return None
        padding = {axis: ends for axis, ends in pads.items() if any(ends)}
        known = all(min(ends) >= 0 and isinstance(x.shape[axis], int) for axis, ends in padding.items())
        return padding if known else None

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        if self.pads(op) is None:
            return Inapplicable("the pads are computed")
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Axes that are not padded."""
        return "a padded axis cannot be blocked" if any((self.pads(op) or {}).get(axis, (0, 0))) else ""

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Pads with a constant reach the padding elements too."""
        if op.attributes.get("mode", "constant") != "constant":
            return super().transfer_padding(op, signature, inputs)
        value: object = op.attributes.get("value", 0.0)
        if op.version >= 11 and len(op.inputs) > 2 and op.inputs[2] is not None:
            array = op.constant(2)
            value = 1.0 if array is None else array  # a computed constant is finite, like data
        filling = state_of(np.asarray(value))
        return super().transfer_padding(op, signature, inputs) if filling <= inputs[0] else (filling,)

    def must_be_expanded(self, op: Op) -> bool:
        """With axes: onnxruntime 1.31 moves a Transpose past it as if it had pads for every axis."""
        return len(op.inputs) > 3 and op.inputs[3] is not None and self.pads(op) is not None

    @override
    def lower(self, op: Op, build: Builder) -> None:
        pads = self.pads(op)
        assert pads is not None
        ends = [(0, 0) if part.block else pads.get(part.axis, (0, 0)) for part in build.format(X).parts]
        flat = tuple(before for before, _ in ends) + tuple(behind for _, behind in ends)
        inputs = [build.input(index) for index in range(len(op.inputs))]
        attributes: dict[str, Attribute] = dict(op.attributes)
        if op.version < 11:
            attributes["pads" if "pads" in op.attributes else "paddings"] = flat
        else:
            value = inputs[2:3] if len(op.inputs) > 2 and op.inputs[2] is not None else []
            inputs = [inputs[0], build.constant(np.asarray(flat, dtype=np.int64), "pads"), *value]
        lower_directly(op, build, attributes, inputs)
