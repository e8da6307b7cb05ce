"""Ops that join, cut, pad, repeat or fill tensors along axes."""

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import cast

import numpy as np
from typing_extensions import override

from layoutopt.formats import Dim, Format
from layoutopt.ir.types import Array, Attribute, Data, DType, Op, Opaque, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder, OneAxis, aligned_input, positions
from layoutopt.ops.base import Builder, lower_directly, register, state_of
from layoutopt.ops.elementwise import broadcast_padding
from layoutopt.ops.interfaces import ConcatenationOp, Pads, PureBroadcast, ZeroPadOp
from layoutopt.ops.signatures import (
    PADDING_KEPT,
    Inapplicable,
    PaddingTransfer,
    X,
    Y,
    chosen_signature,
    is_canonical,
    present,
    rank_of,
    shape_of,
)

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

    def pieces(self, op: Op) -> tuple[Value | None, ...]:
        """The pieces in order."""
        raise NotImplementedError

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the concatenated axis cannot be blocked: a piece other than the last does not fill its blocks."""
        is_along = axis == self.axis(op)
        return misalignment(extents_along(self.pieces(op), axis), block_of(order, axis)) if is_along else ""

    @override
    def operand_classes(self, op: Op) -> Mapping[Slot, Hashable]:
        return self.classes_by_axes(op)

    def lower(self, op: Op, build: Builder) -> None:
        """The same op along the outermost part of the axis."""
        position = outermost_position(build.format(op.slots()[0]), self.axis(op))
        inputs, attributes = self.physical_inputs(op, build, position)
        types = [build.output_type(index) for index in range(len(op.outputs))]
        indices = [index for index, value in enumerate(op.outputs) if value is not None]
        for index, result in zip(indices, build.op(op.op_type, inputs, types, attributes), strict=True):
            build.set_output(index, result)

    def physical_inputs(self, op: Op, build: Builder, position: int) -> tuple[list[Value | None], dict[str, Attribute]]:
        """Inputs and attributes of the op along physical axis `position`."""
        return [build.input(index) for index in range(len(op.inputs))], {**op.attributes, "axis": position}


@register
class Concat(ConcatOrSplit, ConcatenationOp):
    """Concatenation of pieces."""

    ops = ("Concat",)

    @override
    def pieces(self, op: Op) -> tuple[Value | None, ...]:
        return op.inputs

    @override
    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
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
class Split(ConcatOrSplit):
    """A tensor split into pieces."""

    ops = ("Split",)

    @override
    def pieces(self, op: Op) -> tuple[Value | None, ...]:
        return op.outputs

    @override
    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        return dict.fromkeys((X, *(slot for slot in op.slots() if slot.side == "out")), 0)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position; the input with the lengths does not take part."""
        return dict.fromkeys(self.minimum_ranks(op), tuple(range(rank_of(op.inputs[0]))))

    @override
    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        states = super().transfer_padding(op, signature, inputs)
        return None if states is None else states * len(op.outputs)

    def physical_inputs(self, op: Op, build: Builder, position: int) -> tuple[list[Value | None], dict[str, Attribute]]:
        """Inputs and attributes of the op along physical axis `position`, with lengths in blocks."""
        inputs, attributes = super().physical_inputs(op, build, position)
        block = build.format(X).block(self.axis(op))
        if block == 1:
            return inputs, attributes
        lengths = tuple(-(-int(shape_of(piece)[self.axis(op)]) // block) for piece in op.outputs)
        if len(op.inputs) > 1 and op.inputs[1] is not None:
            inputs[1] = build.constant(np.asarray(lengths, dtype=np.int64), "split")
        elif "split" in op.attributes:
            attributes["split"] = lengths
        elif len(set(lengths)) > 1:
            attributes.pop("num_outputs", None)
            inputs = [inputs[0], build.constant(np.asarray(lengths, dtype=np.int64), "split")]
        return inputs, attributes


# --- Slice: ranges of some axes. A blocked axis can be sliced at block boundaries ---


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


# --- Pad: elements added at both ends of axes ---


@register
class Pad(AxiswiseRule, ZeroPadOp):
    """Elements added at both ends of axes; pads are an attribute (before opset 11) or an input."""

    family = "rearrangement"
    ops = ("Pad",)
    formats = "any; padded axes must not be blocked"
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.ANY, "the state of the constant that it pads with")
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
        return {axis: (numbers[position], numbers[position + half]) for position, axis in enumerate(axes)}

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

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why a padded axis cannot be blocked; empty for other axes."""
        return "a padded axis cannot be blocked" if any((self.pads(op) or {}).get(axis, (0, 0))) else ""

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The larger state of x and of the constant, which is also written behind padding elements."""
        if op.attributes.get("mode", "constant") != "constant":
            return super().transfer_padding(op, signature, inputs)
        value: object = op.attributes.get("value", 0.0)
        if op.version >= 11 and len(op.inputs) > 2 and op.inputs[2] is not None:
            array = op.constant(2)
            value = 1.0 if array is None else array  # a computed constant is finite, like data
        fill_state = state_of(np.asarray(value))
        return super().transfer_padding(op, signature, inputs) if fill_state <= inputs[0] else (fill_state,)

    def must_be_expanded(self, op: Op) -> bool:
        """Whether the op has axes: onnxruntime 1.31 moves a Transpose across it as if it had pads for every axis."""
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


# --- tile ---
#
# Layout rule of Tile, which repeats a tensor along its axes. A repeated axis is not blocked unless it has one element.


@register
class Tile(AxiswiseRule, PureBroadcast):
    """Repeats a tensor along its axes. The input `repeats` has to be constant."""

    family = "rearrangement"
    ops = ("Tile",)
    formats = "any; repeated axes must not be blocked"
    padding = PaddingTransfer(
        Padding.ZERO, Padding.FINITE, Padding.ANY, "elements broadcast over a block count as finite"
    )
    ranks = MappingProxyType({X: 0, Y: 0})
    is_always_agnostic = True

    def repeats(self, op: Op) -> tuple[int, ...] | None:
        """The number of repetitions along each axis; None if it is computed."""
        array = op.constant(1)
        return None if array is None else tuple(int(number) for number in array)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond by position; the input `repeats` has no format."""
        if self.repeats(op) is None:
            return Inapplicable("the repeats are computed")
        x, y = shape_of(op.inputs[0]), shape_of(op.outputs[0])
        if any(before == 1 and not isinstance(after, int) for before, after in zip(x, y, strict=True)):
            return Inapplicable("an extent of the result is unknown")
        return dict.fromkeys((X, Y), tuple(range(len(x))))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Repeated axes of more than one element cannot be blocked."""
        repeats = self.repeats(op)
        is_kept = (repeats is not None and repeats[axis] == 1) or shape_of(op.inputs[0])[axis] == 1
        return "" if is_kept else "a repeated axis cannot be blocked"

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The padding state of x; the elements of x count too if they are broadcast over a block."""
        return super().transfer_padding(op, signature, (broadcast_padding(op, signature, 0, inputs[0]),))

    def lower(self, op: Op, build: Builder) -> None:
        """Tile on the physical arrays; an axis of one element is repeated to the extent of each physical axis of y."""
        x, target, axes, repeats = shape_of(op.inputs[0]), build.output_type(0), self.axes(op), self.repeats(op)
        assert repeats is not None and not isinstance(axes, Inapplicable)
        counts: list[int] = []
        for part, extent in zip(build.format(Y).parts, shape_of(target), strict=True):
            if x[part.axis] == 1:
                assert isinstance(extent, int)
                counts.append(extent)
            else:
                counts.append(1 if part.block else repeats[part.axis])
        numbers = build.constant(np.asarray(counts, dtype=np.int64), "repeats")
        lower_directly(op, build, inputs=[aligned_input(build, op, 0, axes), numbers])


# --- Axes cropped or padded to given extents around their centres ---


_INT64 = 7  # TensorProto.INT64


@register
class CenterCrop(AxiswiseRule):
    """CenterCropPad: the extents are an input, in the order of the attribute `axes`."""

    family = "rearrangement"
    ops = ("CenterCropPad",)
    formats = "any; axes that are cut or padded must not be blocked"
    padding = PADDING_KEPT
    is_always_agnostic = True

    def cropped_axes(self, op: Op) -> tuple[int, ...]:
        """The axes whose extents are given; all by default."""
        rank = rank_of(op.inputs[0])
        return tuple(axis % rank for axis in op.integers("axes", tuple(range(rank))))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why an axis that is cut or padded cannot be blocked; empty for other axes."""
        return "an axis that is cut or padded cannot be blocked" if axis in self.cropped_axes(op) else ""

    def lower(self, op: Op, build: Builder) -> None:
        """The same op with extents for all physical axes.

        onnxruntime 1.31 moves a Transpose past the Pad that it expands the op to, and computes a wrong result if that Pad has
        axes.
        """
        x, extents = build.input(0), present(build.input(1))
        order, cropped_axes = build.format(X).parts, self.cropped_axes(op)
        if extents.dtype is not DType.INT64:
            (extents,) = build.op("Cast", [extents], [TensorType(DType.INT64, shape_of(extents))], {"to": _INT64})
        if len(cropped_axes) < len(order):
            (own,) = build.op("Shape", [x], [TensorType(DType.INT64, (len(order),))])
            both = TensorType(DType.INT64, (len(cropped_axes) + len(order),))
            (extents,) = build.op("Concat", [extents, own], [both], {"axis": 0})
        sources = {positions(build.format(X), (axis,))[0]: index for index, axis in enumerate(cropped_axes)}
        indices = build.constant(
            np.asarray([sources.get(at, len(cropped_axes) + at) for at in range(len(order))]), "indices"
        )
        (target_shape,) = build.op("Gather", [extents, indices], [TensorType(DType.INT64, (len(order),))])
        attributes = {name: value for name, value in op.attributes.items() if name != "axes"}
        (result,) = build.op(op.op_type, [x, target_shape], [build.output_type(0)], attributes)
        build.set_output(0, result)


# --- The upper or lower triangle of matrices, the other elements set to zero ---


@register
class Triangle(AxiswiseRule):
    """Trilu. Each matrix is computed from its row and column indices, which padding behind them does not change."""

    family = "triangle"
    ops = ("Trilu", "com.microsoft::Trilu")
    formats = "any; one kernel where rows and columns are the innermost axes"
    padding = PADDING_KEPT
    ranks = MappingProxyType({X: 2})

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether rows and columns are the innermost axes."""
        x = signature.inputs[0]
        if x is None or is_canonical(signature):
            return True
        *_, rows, columns = x.format.parts
        matrix = (x.format.rank - 2, x.format.rank - 1)
        return not rows.block and not columns.block and (rows.axis, columns.axis) == matrix

    def lower(self, op: Op, build: Builder) -> None:
        """The same op on the physical array, or emulated."""
        if self.is_layout_agnostic(op, chosen_signature(op)):
            lower_directly(op, build)
        else:
            super().lower(op, build)


# --- Tensors filled with one number; the shape is an input ---


@register
class Fill(AxiswiseRule):
    """ConstantOfShape."""

    family = "fill"
    ops = ("ConstantOfShape",)
    formats = "any"
    padding = PaddingTransfer(Padding.ZERO, None, None, "the number")
    ranks = MappingProxyType({Y: 0})
    is_always_agnostic = True

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        return {Y: tuple(range(rank_of(op.outputs[0])))}

    def number(self, op: Op) -> Array:
        """The number; zero by default."""
        value = op.attributes.get("value")
        return cast(Data, value.payload).numpy() if isinstance(value, Opaque) else np.zeros(1, dtype=np.float32)

    @override
    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...]:
        return (state_of(np.asarray(self.number(op))),)

    def lower(self, op: Op, build: Builder) -> None:
        """The same op for the physical shape; symbolic extents are gathered from the logical shape."""
        shape, type = build.input(0), build.output_type(0)
        pieces: list[Value | None] = []
        for part, dim in zip(build.format(Y).parts, shape_of(type), strict=True):
            number = np.asarray([dim if isinstance(dim, int) else part.axis], dtype=np.int64)
            if isinstance(dim, int):
                pieces.append(build.constant(number, "extent"))
            else:
                pieces += build.op("Gather", [shape, build.constant(number, "index")], [TensorType(DType.INT64, (1,))])
        (physical,) = build.op("Concat", pieces, [TensorType(DType.INT64, (len(pieces),))], {"axis": 0})
        (result,) = build.op(op.op_type, [physical], [type], op.attributes)
        build.set_output(0, result)
