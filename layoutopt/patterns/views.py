"""Fusion patterns of data movement: equal ops that move less, or that other ops may be moved past."""

from collections.abc import Sequence
from math import isqrt

from layoutopt.formats import Dim, product
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op
from layoutopt.patterns.base import FusionPattern, Match, add_pattern, find, register_pattern, tree


@register_pattern
class BatchedTranspose(FusionPattern):
    """A Transpose between a Reshape that merges the leading axes and one that splits them.

    before: x (B,H,S,D) -> Reshape (B*H,S,D) -> Transpose {perm = 0, 2, 1} -> Reshape (B,H,D,S)
    after:  x -> Transpose {perm = 0, 1, 3, 2}
    """

    name = "batched-transpose"
    fused_op = "Transpose"
    root_ops = ("Reshape",)

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The Reshapes around the Transpose, from the last one."""
        found = find(graph, op.y, tree("Reshape", tree("Transpose", tree("Reshape", "x"))))
        x, transpose = (found.values["x"], found.op("Transpose")) if found is not None else (op.x, op)
        if found is None or x.shape is None or len(x.shape) < 2 or transpose.integers("perm") != (0, 2, 1):
            return None
        *leading, rows, columns = x.shape
        is_merged = len(leading) > 1 and transpose.x.shape == (product(leading), rows, columns)
        if not is_merged or op.y.shape != (*leading, columns, rows):
            return None
        rank = len(x.shape)
        return Match(op.y, found.ops, (x,), {"perm": (*range(rank - 2), rank - 1, rank - 2)})


_SINCE = 18


@register_pattern
class ResizedAxes(FusionPattern):
    """A Resize whose sizes are concatenated from extents of its operand and new sizes.

    before: x (N,C,H,W), Concat(Slice(Shape(x)), [h, w]) -> Resize -> y (N,C,h,w)
    after:  x (N,C,H,W), [h, w] -> Resize {axes = 2, 3} -> y

    The sizes then do not contain batch and channels, so other ops may be moved past it. ONNX has the attribute since opset
    18.
    """

    name = "resized-axes"
    fused_op = "Resize"
    root_ops = ("Resize",)

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The Resize with the last piece of the sizes, if that has the sizes of all axes that change."""
        sizes = op.inputs[3] if len(op.inputs) > 3 and op.version >= _SINCE and "axes" not in op.attributes else None
        if sizes is None or sizes.is_constant or op.x.shape is None or op.y.shape is None:
            return None
        if op.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return None
        if op.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            return None
        x, y, concat = op.x, op.y, graph.producer(sizes)
        last = concat.inputs[-1] if concat is not None and concat.kind == "Concat" else None
        count = last.static_shape[0] if last is not None and last.static_shape else 0
        kept = len(x.dims) - count
        if not count or kept <= 0 or x.dims[:kept] != y.dims[:kept]:
            return None
        axes = tuple(range(kept, len(x.dims)))
        return Match(y, (op,), (x, None, None, last), {**op.attributes, "axes": axes})


class PixelShuffle(FusionPattern):
    """A Transpose between two Reshapes that moves blocks of r x r pixels from the channels to the image, or back.

    before: x (N,C*r*r,H,W) -> Reshape (N,C,r,r,H,W) -> Transpose -> Reshape (N,C,H*r,W*r) -> y
    after:  x -> DepthToSpace {blocksize = r, mode = "CRD"} -> y

    Axes of one element may be missing, and axes that stay adjacent may be split. onnxruntime's Transpose of so many axes takes
    2.1 to 3.4 times as long as DepthToSpace, and 4 to 9 times as long as SpaceToDepth (1.32, one thread, AVX2).
    """

    root_ops = ("Transpose",)
    needs_kernel = True

    def __init__(self, fused_op: str, split: str, perm: tuple[int, ...], **attributes: str) -> None:
        """A pattern.

        Args:
            fused_op: the op type.
            split: the six axes in front of the Transpose, as letters: c for the smaller number of channels, h, w for the
                smaller image, r for an extent of a block.
            perm: the order of the axes behind it.
            attributes: the attributes of the fused op besides `blocksize`.
        """
        self.name, self.fused_op = f"pixel-shuffle-{split}", fused_op
        self._split, self._perm, self._attributes = split, perm, attributes

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The Reshapes around the Transpose."""
        before, after = graph.producer(op.x), graph.only_reader(op.y)
        if before is None or after is None or {before.kind, after.kind} != {"Reshape"}:
            return None
        x, y, steps = before.x, after.y, op.x.shape
        if x.dtype is not DType.FLOAT32 or x.rank != 4 or y.rank != 4 or steps is None or op.version < _SINCE_MODE:
            return None
        few, many = (y.dims, x.dims) if self.fused_op == "DepthToSpace" else (x.dims, y.dims)
        if not isinstance(few[1], int) or not isinstance(many[1], int) or many[1] % few[1]:
            return None
        size = isqrt(many[1] // few[1])
        extents = {"n": few[0], "c": few[1], "r": size, "h": many[2], "w": many[3]}
        split = tuple(extents[letter] for letter in self._split)
        ends = (many[0], few[1] * size * size, many[2] * size, many[3] * size)
        if size < 2 or (few[0], many[1], *few[2:]) != ends:
            return None
        if _movement(steps, op.integers("perm")) != _movement(split, self._perm):
            return None
        return Match(y, (before, op, after), (x,), {"blocksize": size, **self._attributes})


_SINCE_MODE = 11


def _movement(shape: Sequence[Dim], perm: Sequence[int]) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    """The shape and the permutation of a Transpose without axes of one element, and with one axis for adjacent ones."""
    order = [axis for axis in perm if shape[axis] != 1]
    kept = [axis for axis in range(len(shape)) if shape[axis] != 1]
    rank = {axis: position for position, axis in enumerate(kept)}
    groups: list[list[int]] = []
    for axis in order:
        if groups and rank[axis] == rank[groups[-1][-1]] + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    first = sorted(range(len(groups)), key=lambda position: groups[position][0])
    shapes = tuple(product([shape[axis] for axis in groups[position]]) for position in first)
    return shapes, tuple(first)


add_pattern(PixelShuffle("DepthToSpace", "ncrrhw", (0, 1, 4, 2, 5, 3), mode="CRD"))
add_pattern(PixelShuffle("DepthToSpace", "nrrchw", (0, 3, 4, 1, 5, 2), mode="DCR"))
add_pattern(PixelShuffle("SpaceToDepth", "nchrwr", (0, 3, 5, 1, 2, 4)))
