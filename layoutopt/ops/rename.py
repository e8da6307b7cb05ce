"""Ops that give the same bytes other axes: Transpose and the Reshape family.

    Transpose(x, perm)   x in F   ->   y in F relabelled by perm         for every F
    Reshape(x, shape)    x in F   ->   y in F carried to the new axes    wherever the parts that merge lie in order

They are no work. Whether bytes move is decided by what the neighbours want: a cast behind the rename, if anything.
"""

from abc import abstractmethod

from layoutopt.formats import Format, Shape, propagate_reshape, volume
from layoutopt.ir.types import Lanes, Op, Signature
from layoutopt.ops.base import Builder, LayoutRule, register
from layoutopt.ops.passage import KEPT
from layoutopt.ops.readable import hidden
from layoutopt.ops.signatures import Inapplicable, Known, X, Y, signature_of


class Rename(LayoutRule):
    """The same bytes under other axes."""

    family = "rename"
    formats = "any on one side; the other has the same bytes"
    becomes = KEPT
    is_rename = True

    @abstractmethod
    def forward(self, op: Op, format: Format) -> Format | None:
        """The format of the output for a format of the input."""

    @abstractmethod
    def backward(self, op: Op, format: Format) -> Format | None:
        """The format of the input for a format of the output."""

    def complete(self, op: Op, known: Known) -> Signature | Inapplicable:
        """One side from the other."""
        x, y = op.inputs[0], op.outputs[0]
        if x is None or y is None or x.shape is None or y.shape is None:
            return Inapplicable("the rank of an operand is unknown")
        if len(unknown := hidden(op, y.shape)) > 1:
            return Inapplicable(f"the extents {', '.join(map(str, unknown))} cannot be computed from its operands")
        given = known.get(X) or known.get(Y)
        if given is None:
            return Inapplicable("neither side is given")
        if not given.fits(x.shape if X in known else y.shape):
            return Inapplicable(f"{given} does not fit")
        other = self.forward(op, given) if X in known else self.backward(op, given)
        if other is None:
            return Inapplicable(f"{given} cannot be carried from {x.type} to {y.type}")
        return signature_of(op, {X: given, Y: other} if X in known else {X: other, Y: given})

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """The same bytes."""
        return (inputs[0],)

    def is_direct(self, op: Op, signature: Signature) -> bool:
        """There is nothing to do, or bytes move and one Transpose does it."""
        return True

    def axis_after(self, op: Op, axis: int) -> int | None:
        """Which axis of the output an axis of the input becomes, if it stays one."""
        del op, axis
        return None

    def same_axis(self, op: Op, axis: int) -> int | None:
        """Which axis of the output has the elements of an axis of the input; as many lie before it and behind it."""
        x, y = op.inputs[0], op.outputs[0]
        if x is None or y is None or x.shape is None or y.shape is None:
            return None
        found = (place for place, dim in enumerate(y.shape) if dim == x.shape[axis] and dim != 1)
        return next((place for place in found if volume(y.shape[:place]) == volume(x.shape[:axis])), None)

    def moves(self, op: Op) -> bool:
        """Whether bytes move, because the signature gives the output another format than the same bytes have."""
        x, y = op.signature and op.signature.inputs[0], op.signature and op.signature.outputs[0]
        value = op.outputs[0]
        if not x or not y or value is None or value.shape is None:
            return False
        same = self.forward(op, x.format)
        return same is None or not same.same_bytes(y.format, value.shape)

    def lower(self, op: Op, build: Builder) -> None:
        """Nothing, or a conversion where the output was given a format that is not the one of the same bytes."""
        signature, y = op.signature, op.outputs[0]
        assert signature is not None and y is not None
        x, storage, target = build.input(0), signature.inputs[0], signature.outputs[0]
        assert x is not None and storage is not None and target is not None and y.shape is not None
        same = self.forward(op, storage.format)
        assert same is not None
        renamed = build.reshape(x, same.physical_shape(y.shape))
        build.set_output(0, build.convert(renamed, same, target.format, y.shape))

    def flops(self, op: Op) -> float:
        """None."""
        return 0.0


@register
class Transpose(Rename):
    """Other names for the axes."""

    ops = ("Transpose",)

    def perm(self, op: Op) -> tuple[int, ...]:
        """Output axis j is input axis perm[j]; by default the axes are reversed."""
        rank = op.inputs[0].rank if op.inputs[0] is not None else None
        return op.integers("perm") if "perm" in op.attributes else tuple(reversed(range(rank or 0)))

    def forward(self, op: Op, format: Format) -> Format:
        """The same parts under the new axes."""
        return format.propagate_transpose(self.perm(op))

    def axis_after(self, op: Op, axis: int) -> int | None:
        """Where perm puts it."""
        return self.perm(op).index(axis)

    def same_axis(self, op: Op, axis: int) -> int | None:
        """Where perm puts it."""
        return self.axis_after(op, axis)

    def with_extent(self, op: Op, axis: int, extent: int) -> dict[int, dict[int, int]] | None:
        """It speaks of no extents."""
        return {}

    def backward(self, op: Op, format: Format) -> Format:
        """The same parts under the old axes."""
        perm = self.perm(op)
        return format.propagate_transpose(tuple(perm.index(axis) for axis in range(len(perm))))


@register
class Reshape(Rename):
    """Axes split and merged; what the shape input says is known from the shape of the output."""

    ops = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")

    def with_extent(self, op: Op, axis: int, extent: int) -> dict[int, dict[int, int]] | None:
        """A Reshape names it, unless it copies it or infers it; the others name axes.

        What else copies the axis, since it stands in the same place, is named as it was.
        """
        if op.op_type != "Reshape":
            return {}
        x, target, place = op.inputs[0], op.elements(1), self.same_axis(op, axis)
        if x is None or x.shape is None or target is None or place is None:
            return None
        copies, named, old = not op.integer("allowzero"), target[place], x.shape[axis]
        if not isinstance(named, int) or not isinstance(old, int):
            return None
        changed = {} if named == -1 or (named == 0 and copies and place == axis) else {place: extent}
        if copies and place != axis and axis < len(target):
            if target[axis] == 0:
                changed[axis] = old
            elif not isinstance(target[axis], int):
                return None  # where a tensor is empty, an extent is 0, and that a copy
        return {1: changed} if changed else {}

    def forward(self, op: Op, format: Format) -> Format | None:
        """Carried to the new axes."""
        x, y = op.inputs[0], op.outputs[0]
        assert x is not None and y is not None and x.shape is not None and y.shape is not None
        return _carried(format, x.shape, y.shape)

    def backward(self, op: Op, format: Format) -> Format | None:
        """Carried to the old axes."""
        x, y = op.inputs[0], op.outputs[0]
        assert x is not None and y is not None and x.shape is not None and y.shape is not None
        return _carried(format, y.shape, x.shape)


def _carried(format: Format, before: Shape, after: Shape) -> Format | None:
    """The format under other axes; None where types are wrong about the number of elements, as inference lets pass."""
    (count, symbols), (other, others) = volume(before), volume(after)
    return None if count != other and not symbols and not others else propagate_reshape(format, before, after)
