"""Fusion patterns of data movement: equal ops that move less, or that other ops may be moved past."""

from layoutopt.formats import product
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.patterns.base import FusionPattern, Match, find, register_pattern, tree


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
