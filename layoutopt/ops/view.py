"""View ops, whose result is the same bytes with other axes: Transpose and the Reshape family.

    Transpose(x, perm)   x in F   ->   y in F with permuted axes             for every F
    Reshape(x, shape)    x in F   ->   y in F propagated to the new axes     wherever merged parts are in order

They cost nothing. If a neighbour requires another format, a conversion behind the view op moves the bytes.
"""

from abc import abstractmethod

from typing_extensions import override

from layoutopt.formats import Format, propagate_reshape, volume
from layoutopt.ir.types import DType, Op, Padding, Signature, TensorType
from layoutopt.ops.base import LayoutRule, ShapeEdits, register, rule_of
from layoutopt.ops.builder import OpBuilder, computed_list
from layoutopt.ops.signatures import (
    PADDING_KEPT,
    PADDING_REFUSED,
    ZERO,
    Inapplicable,
    OperandFormats,
    States,
    X,
    Y,
    present,
    rank_of,
    shape_of,
    signature_of,
)


class View(LayoutRule):
    """An op that only changes the axes of a tensor."""

    family = "view"
    formats = "any on one side; the other has the same bytes"
    padding = PADDING_KEPT
    is_always_agnostic = True
    operations = (0.0, Y)

    @abstractmethod
    def output_format(self, op: Op, format: Format) -> Format | None:
        """The format of the output for a format of the input; None if the format does not propagate."""

    @abstractmethod
    def input_format(self, op: Op, format: Format) -> Format | None:
        """The format of the input for a format of the output; None if the format does not propagate."""

    @override
    def inapplicability(self, op: Op) -> str:
        lists = (dims for value in op.present_inputs for dims in (value.shape, value.elements))
        known = {dim for dims in lists for dim in dims or ()}
        unknown = [str(dim) for dim in op.y.dims if not isinstance(dim, int) and dim not in known]
        return f"no operand has the extents {', '.join(unknown)}" if len(unknown) > 1 else ""

    @override
    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        x, y = op.x, op.y
        given = known.get(X) or known.get(Y)
        if given is None:
            return Inapplicable("neither side is given")
        if not given.fits(shape_of(x if X in known else y)):
            return Inapplicable(f"{(x if X in known else y).format_text(given)} does not fit")
        other = self.output_format(op, given) if X in known else self.input_format(op, given)
        if other is None:
            text = (x if X in known else y).format_text(given)
            return Inapplicable(f"{text} does not propagate from {x.type} to {y.type}")
        return signature_of(op, {X: given, Y: other} if X in known else {X: other, Y: given})

    def permuted_axis(self, op: Op, axis: int) -> int | None:
        """The position of an axis of the input in the output; None unless the view op only permutes axes."""
        return None

    def unmerged_axis(self, op: Op, axis: int) -> int | None:
        """The axis of the output that has the extent of an axis of the input and as many elements before and behind it.

        None if the view op splits or merges the axis or moves elements across it; for a Reshape also if its extent is 1.
        """
        x, y = op.inputs[0], op.outputs[0]
        if x is None or y is None or x.shape is None or y.shape is None:
            return None
        found = (position for position, dim in enumerate(y.shape) if dim == x.shape[axis] and dim != 1)
        return next((position for position in found if volume(y.shape[:position]) == volume(x.shape[:axis])), None)

    def moves_bytes(self, op: Op, signature: Signature) -> bool:
        """Whether bytes move: the signature has an output format that is not the same bytes as the input."""
        x, y, value = signature.inputs[0], signature.outputs[0], op.outputs[0]
        if not x or not y or value is None or value.shape is None:
            return False
        same = self.output_format(op, x.format)
        return same is None or not same.same_bytes(y.format, value.shape)

    def lower(self, op: Op, build: OpBuilder) -> None:
        """A reshape, and a conversion where the format of the output is not the same bytes."""
        x, shape = present(build.input(0)), op.y.dims
        same = self.output_format(op, build.format(X))
        assert same is not None, f"{op!r}: {build.format(X)} does not propagate"
        viewed = build.reshape(x, same.physical_shape(shape))
        build.set_output(0, build.convert(viewed, same, build.format(Y), shape))


def is_reshape(op: Op) -> bool:
    """Whether an op of ONNX gives a tensor another shape without moving elements."""
    return isinstance(rule_of(op), View) and not op.domain and op.op_type != "Transpose"


@register
class Transpose(View):
    """A permutation of the axes."""

    ops = ("Transpose",)

    def perm(self, op: Op) -> tuple[int, ...]:
        """Output axis j is input axis perm[j]; by default the axes are reversed."""
        rank = op.inputs[0].rank if op.inputs[0] is not None else None
        return op.integers("perm") if "perm" in op.attributes else tuple(reversed(range(rank or 0)))

    @override
    def output_format(self, op: Op, format: Format) -> Format | None:
        return format.propagate_transpose(self.perm(op))

    @override
    def input_format(self, op: Op, format: Format) -> Format | None:
        perm = self.perm(op)
        return format.propagate_transpose([perm.index(axis) for axis in range(len(perm))])

    @override
    def permuted_axis(self, op: Op, axis: int) -> int | None:
        return self.perm(op).index(axis)

    @override
    def unmerged_axis(self, op: Op, axis: int) -> int | None:
        return self.permuted_axis(op, axis)

    @override
    def shape_edits(self, op: Op, axis: int, extent: int) -> ShapeEdits:
        return {}


@register
class Reshape(View):
    """Axes split and merged; the target is known from the shape of the output."""

    ops = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")

    def shape_edits(self, op: Op, axis: int, extent: int) -> ShapeEdits:
        """The elements of a Reshape's target that contain the extent; the other ops contain axes only.

        An element that copies the extent of the same position by being 0 is replaced by the old extent.
        """
        if op.op_type != "Reshape":
            return {}
        x, target, position = op.inputs[0], op.elements(1), self.unmerged_axis(op, axis)
        if x is None or x.shape is None or target is None or position is None:
            return None
        copies, named, old = not op.integer("allowzero"), target[position], x.shape[axis]
        if not isinstance(named, int) or not isinstance(old, int):
            return None
        changed = {} if named == -1 or (named == 0 and copies and position == axis) else {position: extent}
        if copies and position != axis and axis < len(target):
            if target[axis] == 0:
                changed[axis] = old
            elif not isinstance(target[axis], int):
                return None  # in an empty tensor an extent may be 0, which copies one
        return {1: changed} if changed else {}

    @override
    def output_format(self, op: Op, format: Format) -> Format | None:
        return propagate_reshape(format, op.x.shape, op.y.shape)

    @override
    def input_format(self, op: Op, format: Format) -> Format | None:
        return propagate_reshape(format, op.y.shape, op.x.shape)


# --- Shape and Size, which read no element, so the tensor may have any format ---


@register
class ShapeOp(LayoutRule):
    """The logical extents, for any physical format."""

    family = "shape_of"
    ops = ("Shape", "Size")
    formats = "any"
    padding = PADDING_REFUSED
    is_always_agnostic = True

    is_shape_query = True

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """Any format of the input in which blocked extents are numbers."""
        format = known.get(X)
        if format is None:
            return Inapplicable("the format of the input is not given")
        if any(not isinstance(op.x.dims[axis], int) for axis in format.blocked_axes):
            return Inapplicable("a blocked extent is unknown")
        return signature_of(op, {X: format})

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """Zero: the op reads no elements."""
        return ZERO

    def _selected(self, op: Op, rank: int) -> slice:
        """The axes whose extents Shape returns, an option since opset 15."""
        return slice(op.integer("start", 0), op.integer("end", rank)) if op.op_type == "Shape" else slice(None)

    def lower(self, op: Op, build: OpBuilder) -> None:
        """Known extents as constants, the others gathered from the shape of the array."""
        shape, array = op.x.dims, build.input(0)
        extents = build.result("Shape", [array], TensorType(DType.INT64, (rank_of(array),)))
        positions = {part.axis: position for position, part in enumerate(build.format(X).parts) if not part.block}
        selected = range(len(shape))[self._selected(op, len(shape))]
        dims = ((shape[axis], positions[axis]) for axis in selected)
        result = computed_list(build, [dim if isinstance(dim, int) else (extents, position) for dim, position in dims])
        if op.op_type == "Size":
            result = build.result("ReduceProd", [result], TensorType(DType.INT64, ()), {"keepdims": 0})
        build.set_output(0, result)
