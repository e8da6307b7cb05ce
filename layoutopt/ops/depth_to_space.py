"""DepthToSpace and SpaceToDepth: a Reshape, a Transpose and a Reshape in one op, so other names for the same bytes.

DepthToSpace, DCR    (N, r r C', H, W)  ->  (N, r, r, C', H, W)  ->  (N, C', H, r, W, r)  ->  (N, C', H r, W r)
DepthToSpace, CRD    (N, C' r r, H, W)  ->  (N, C', r, r, H, W)  ->  the same
SpaceToDepth, DCR    (N, C, H' r, W' r) ->  (N, C, H', r, W', r) ->  (N, r, r, C, H', W') ->  (N, r r C, H', W')
SpaceToDepth, CRD    since opset 28         the same             ->  (N, C, r, r, H', W') ->  (N, C r r, H', W')
"""

from layoutopt.formats import Dim, Extent, Format, Shape, propagate_reshape
from layoutopt.ir.types import Op
from layoutopt.ops.base import register
from layoutopt.ops.rename import Rename


@register
class DepthToSpace(Rename):
    """Channels that become space."""

    ops = ("DepthToSpace",)

    def forward(self, op: Op, format: Format) -> Format | None:
        """Carried to the pieces, renamed and carried to the result."""
        x, y = self._shapes(op)
        pieces, perm = self._pieces(op, x)
        return _through(format, x, pieces, perm, y)

    def backward(self, op: Op, format: Format) -> Format | None:
        """The same backwards."""
        x, y = self._shapes(op)
        pieces, perm = self._pieces(op, x)
        return _through(format, y, tuple(pieces[axis] for axis in perm), tuple(map(perm.index, range(len(perm)))), x)

    def same_axis(self, op: Op, axis: int) -> int | None:
        """The batch alone: channels and space are mixed, whatever their extents."""
        del op
        return axis if axis == 0 else None

    def _shapes(self, op: Op) -> tuple[Shape, Shape]:
        x, y = op.inputs[0], op.outputs[0]
        assert x is not None and y is not None and x.shape is not None and y.shape is not None
        return x.shape, y.shape

    def _pieces(self, op: Op, x: Shape) -> tuple[Shape, tuple[int, ...]]:
        """The shape into which x is cut, and the order in which the result has the pieces."""
        batch, channels, height, width = x
        block = op.integer("blocksize", 1)
        depth = _part(channels, block * block)
        if op.attributes.get("mode", "DCR") == "CRD":
            return (batch, depth, block, block, height, width), (0, 1, 4, 2, 5, 3)
        return (batch, block, block, depth, height, width), (0, 3, 4, 1, 5, 2)


@register
class SpaceToDepth(DepthToSpace):
    """Space that becomes channels."""

    ops = ("SpaceToDepth",)

    def _pieces(self, op: Op, x: Shape) -> tuple[Shape, tuple[int, ...]]:
        """The shape into which x is cut, and the order in which the result has the pieces."""
        batch, channels, height, width = x
        block = op.integer("blocksize", 1)
        perm = (0, 1, 3, 5, 2, 4) if op.attributes.get("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
        return (batch, channels, _part(height, block), block, _part(width, block), block), perm


def _part(dim: Dim, block: int) -> Dim:
    """How many blocks an axis has."""
    return (Extent.of(dim) // block).dim


def _through(format: Format, start: Shape, pieces: Shape, perm: tuple[int, ...], end: Shape) -> Format | None:
    """A format carried from one shape to pieces, to another order of them, and to another shape."""
    cut = propagate_reshape(format, start, pieces)
    if cut is None:
        return None
    return propagate_reshape(cut.propagate_transpose(perm), tuple(pieces[axis] for axis in perm), end)
