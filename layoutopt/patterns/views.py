"""Fusion patterns of data movement: equal ops that move less, or that other ops may be moved past."""

from collections.abc import Sequence

from layoutopt.formats import Shape, product
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Value
from layoutopt.patterns.base import FusionPattern, Match, find, register_pattern, reshaped, tree


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


# --- pixel shuffle ------------------------------------------------------------------------------------------------------
#
# Blocks of r x r elements that move between an axis and an image. Axes that stay adjacent count as one:
#
#     DepthToSpace      (A, r, r, H, W)  ->  (A, H, r, W, r)         also in DCR mode: A = N, H = C * H
#     SpaceToDepth      (A, H, r, W, r)  ->  (A, r, r, H, W)         and with channels first: A = N * C


def block_transpose(graph: Graph, op: Op) -> Value | None:
    """The result of a Transpose that moves blocks between an axis and an image, by DepthToSpace or SpaceToDepth.

    before: x (N,C,r,r,H,W) -> Transpose {perm = 0, 1, 4, 2, 5, 3}
    after:  x -> Reshape (1,N*C*r*r,H,W) -> DepthToSpace {blocksize = r, mode = "CRD"} -> Reshape (N,C,H,r,W,r)

    onnxruntime's Transpose takes 1.8 to 6 times as long as DepthToSpace, and 2 to 9 times as long as SpaceToDepth (1.32, one
    thread, AVX2).
    """
    x, y = op.x, op.y
    if x.dtype is not DType.FLOAT32 or x.shape is None or op.version < _SINCE_MODE:
        return None
    dims, perm = _movement(x.shape, op.integers("perm"))
    if len(dims) == 4:  # A is 1
        dims, perm = (1, *dims), (0, *(axis + 1 for axis in perm))
    if perm == (0, 3, 1, 4, 2):
        kind, (rest, size, other, rows, columns) = "DepthToSpace", dims
        target: Shape = (1, product((rest, size, size)), rows, columns)
        shape: Shape = (1, rest, product((rows, size)), product((columns, size)))
    elif perm == (0, 2, 4, 1, 3):
        kind, (rest, rows, size, columns, other) = "SpaceToDepth", dims
        target = rest, 1, product((rows, size)), product((columns, size))
        shape = rest, product((size, size)), rows, columns
    else:
        return None
    symbols = max(sum(not isinstance(dim, int) for dim in each) for each in (target, y.dims))
    if size != other or not isinstance(size, int) or symbols > 1:
        return None
    attributes = {"blocksize": size} | ({"mode": "CRD"} if kind == "DepthToSpace" else {})
    inputs, stem = (reshaped(graph, op, x, target),), f"{y.name}__blocks"
    return reshaped(
        graph, op, graph.new_result(kind, inputs, x.type_with(shape), stem, op, attributes=attributes), y.dims
    )


_SINCE_MODE = 11


def _movement(shape: Shape, perm: Sequence[int]) -> tuple[Shape, tuple[int, ...]]:
    """The shape and the permutation of a Transpose without axes of one element, and with one axis for adjacent ones."""
    kept = [axis for axis, dim in enumerate(shape) if dim != 1]
    groups: list[list[int]] = []
    for axis in (kept.index(axis) for axis in perm if axis in kept):
        if groups and axis == groups[-1][-1] + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    order = sorted(groups)
    return tuple(product(shape[kept[axis]] for axis in group) for group in order), tuple(map(order.index, groups))
