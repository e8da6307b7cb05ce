"""View ops, whose result is the same bytes with other axes: Transpose and the Reshape family.

    Transpose(x, perm)   x in F   ->   y in F with permuted axes             for every F
    Reshape(x, shape)    x in F   ->   y in F propagated to the new axes     wherever merged parts are in order

They cost nothing. If a neighbour requires another format, a conversion behind the view op moves the bytes.
"""

from abc import abstractmethod
from types import MappingProxyType

from typing_extensions import override

from layoutopt.formats import Format, Shape, propagate_reshape, volume
from layoutopt.ir.types import Op, Signature
from layoutopt.ops.base import Builder, LayoutRule, register
from layoutopt.ops.interfaces.resampling import ExtentChange
from layoutopt.ops.operands import present, shape_of
from layoutopt.ops.padding_transfer import PADDING_KEPT
from layoutopt.ops.runtime_extents import unresolved
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X, Y, signature_of


class View(LayoutRule):
    """An op that only changes the axes of a tensor."""

    family = "view"
    formats = "any on one side; the other has the same bytes"
    padding = PADDING_KEPT
    ranks = MappingProxyType({X: 0, Y: 0})
    is_always_agnostic = True

    @abstractmethod
    def output_format(self, op: Op, format: Format) -> Format | None:
        """The format of the output for a format of the input."""

    @abstractmethod
    def input_format(self, op: Op, format: Format) -> Format | None:
        """The format of the input for a format of the output."""

    @override
    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        x, y = present(op.inputs[0]), present(op.outputs[0])
        if len(unknown := unresolved(op, shape_of(y))) > 1:
            return Inapplicable(f"the extents {', '.join(map(str, unknown))} cannot be computed from its operands")
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
        del op, axis
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

    def moves_bytes(self, op: Op) -> bool:
        """Whether bytes move: the signature has an output format that is not the same bytes as the input."""
        x, y = op.signature and op.signature.inputs[0], op.signature and op.signature.outputs[0]
        value = op.outputs[0]
        if not x or not y or value is None or value.shape is None:
            return False
        same = self.output_format(op, x.format)
        return same is None or not same.same_bytes(y.format, value.shape)

    def lower(self, op: Op, build: Builder) -> None:
        """A reshape, and a conversion where the format of the output is not the same bytes."""
        x, shape = present(build.input(0)), shape_of(op.outputs[0])
        same = self.output_format(op, build.format(X))
        assert same is not None, f"{op!r}: {build.format(X)} does not propagate"
        viewed = build.reshape(x, same.physical_shape(shape))
        build.set_output(0, build.convert(viewed, same, build.format(Y), shape))

    @override
    def flops(self, op: Op) -> float:
        return 0.0


@register
class Transpose(View, ExtentChange):
    """A permutation of the axes."""

    ops = ("Transpose",)

    def perm(self, op: Op) -> tuple[int, ...]:
        """Output axis j is input axis perm[j]; by default the axes are reversed."""
        rank = op.inputs[0].rank if op.inputs[0] is not None else None
        return op.integers("perm") if "perm" in op.attributes else tuple(reversed(range(rank or 0)))

    @override
    def output_format(self, op: Op, format: Format) -> Format:
        return format.propagate_transpose(self.perm(op))

    @override
    def permuted_axis(self, op: Op, axis: int) -> int | None:
        return self.perm(op).index(axis)

    @override
    def unmerged_axis(self, op: Op, axis: int) -> int | None:
        return self.permuted_axis(op, axis)

    @override
    def shape_edits(self, op: Op, axis: int, extent: int) -> dict[int, dict[int, int]] | None:
        return {}

    @override
    def input_format(self, op: Op, format: Format) -> Format:
        perm = self.perm(op)
        return format.propagate_transpose(tuple(perm.index(axis) for axis in range(len(perm))))


@register
class Reshape(View, ExtentChange):
    """Axes split and merged; the target is known from the shape of the output."""

    ops = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")

    def shape_edits(self, op: Op, axis: int, extent: int) -> dict[int, dict[int, int]] | None:
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
        return _propagated(format, shape_of(op.inputs[0]), shape_of(op.outputs[0]))

    @override
    def input_format(self, op: Op, format: Format) -> Format | None:
        return _propagated(format, shape_of(op.outputs[0]), shape_of(op.inputs[0]))


def _propagated(format: Format, before: Shape, after: Shape) -> Format | None:
    """The format propagated to other axes; None if it does not propagate or the numbers of elements differ."""
    (count, symbols), (other, others) = volume(before), volume(after)
    return None if count != other and not symbols and not others else propagate_reshape(format, before, after)
