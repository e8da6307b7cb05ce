"""DepthToSpace and SpaceToDepth: view ops, equal to a Reshape, a Transpose and a Reshape.

DepthToSpace, DCR    (N, r r C', H, W)  ->  (N, r, r, C', H, W)  ->  (N, C', H, r, W, r)  ->  (N, C', H r, W r)
DepthToSpace, CRD    (N, C' r r, H, W)  ->  (N, C', r, r, H, W)  ->  the same
SpaceToDepth, DCR    (N, C, H' r, W' r) ->  (N, C, H', r, W', r) ->  (N, r, r, C, H', W') ->  (N, r r C, H', W')
SpaceToDepth, CRD    since opset 28         the same             ->  (N, C, r, r, H', W') ->  (N, C r r, H', W')
"""

from collections.abc import Mapping

from typing_extensions import override

from layoutopt.formats import Format, Shape, propagate_reshape
from layoutopt.ir.types import Op, Slot
from layoutopt.ops.base import register
from layoutopt.ops.interfaces.axis_letters import AxisLetters, feature_map_letters
from layoutopt.ops.operands import shape_of
from layoutopt.ops.signatures import X, Y
from layoutopt.ops.view import View


@register
class DepthToSpace(View, AxisLetters):
    """Channels moved to spatial axes."""

    ops = ("DepthToSpace",)

    def output_format(self, op: Op, format: Format) -> Format | None:
        """The format propagated through the split, the permutation and the merge."""
        x, y = self._shapes(op)
        pieces, perm = self._pieces(op, x)
        return _through(format, x, pieces, perm, y)

    @override
    def input_format(self, op: Op, format: Format) -> Format | None:
        x, y = self._shapes(op)
        pieces, perm = self._pieces(op, x)
        return _through(format, y, tuple(pieces[axis] for axis in perm), tuple(map(perm.index, range(len(perm)))), x)

    def unmerged_axis(self, op: Op, axis: int) -> int | None:
        """The batch axis for itself; None for the others, since channels and spatial axes are mixed."""
        del op
        return axis if axis == 0 else None

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        return feature_map_letters(op, X, Y)

    def _shapes(self, op: Op) -> tuple[Shape, Shape]:
        return shape_of(op.inputs[0]), shape_of(op.outputs[0])

    def _pieces(self, op: Op, x: Shape) -> tuple[Shape, tuple[int, ...]]:
        """The six extents that x is split into, and their order in the result."""
        batch, channels, height, width = x
        block = op.integer("blocksize", 1)
        depth = channels // (block * block)
        if op.attributes.get("mode", "DCR") == "CRD":
            return (batch, depth, block, block, height, width), (0, 1, 4, 2, 5, 3)
        return (batch, block, block, depth, height, width), (0, 3, 4, 1, 5, 2)


@register
class SpaceToDepth(DepthToSpace):
    """Spatial axes moved to channels."""

    ops = ("SpaceToDepth",)

    def _pieces(self, op: Op, x: Shape) -> tuple[Shape, tuple[int, ...]]:
        batch, channels, height, width = x
        block = op.integer("blocksize", 1)
        perm = (0, 1, 3, 5, 2, 4) if op.attributes.get("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
        return (batch, channels, height // block, block, width // block, block), perm


def _through(format: Format, start: Shape, pieces: Shape, perm: tuple[int, ...], end: Shape) -> Format | None:
    """A format propagated to `pieces`, permuted, and propagated to `end`; None if it does not propagate."""
    cut = propagate_reshape(format, start, pieces)
    return (
        None
        if cut is None
        else propagate_reshape(cut.propagate_transpose(perm), tuple(pieces[axis] for axis in perm), end)
    )
