"""Fusion patterns of data movement: equal ops that move less, or that other ops may be moved past."""

from layoutopt.formats import product
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.ops.contraction import permutation
from layoutopt.patterns.base import FusionPattern, Match, register_pattern, result_of


@register_pattern
class BatchedTranspose(FusionPattern):
    """A Transpose between a Reshape that merges the leading axes and one that splits them.

    before: x (B,H,S,D) -> Reshape (B*H,S,D) -> Transpose {perm = 0, 2, 1} -> Reshape (B,H,D,S)
    after:  x -> Transpose {perm = 0, 1, 3, 2}
    """

    name = "batched-transpose"
    fused_op = "Transpose"
    root_ops = ("Transpose",)

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The Reshapes around the Transpose."""
        merged, exchanged = op.inputs[0], op.outputs[0]
        if merged is None or exchanged is None or op.integers("perm") != (0, 2, 1):
            return None
        before, after = graph.producer(merged), graph.only_reader(exchanged)
        if before is None or after is None or before.kind != "Reshape" or after.kind != "Reshape":
            return None
        x, y = before.inputs[0], result_of(after)
        if x is None or y is None or not x.shape or not merged.shape or after.inputs[0] is not exchanged:
            return None
        *leading, rows, columns = x.shape
        if (
            len(leading) < 2
            or merged.shape != (product(leading), rows, columns)
            or y.shape != (*leading, columns, rows)
        ):
            return None
        rank = len(x.shape)
        return Match(y, (before, op, after), (x,), {"perm": (*range(rank - 2), rank - 1, rank - 2)})


@register_pattern
class PermutingEinsum(FusionPattern):
    """An Einsum that permutes the axes of its operand.

    before: x (N,H,W,C) -> Einsum "nhwc->nchw" -> y (N,C,H,W)
    after:  x (N,H,W,C) -> Transpose {perm = 0, 3, 1, 2} -> y

    A Transpose is a metadata-only op: it propagates every format and moves no bytes of its own.
    """

    name = "permuted-axes"
    fused_op = "Transpose"
    root_ops = ("Einsum",)

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The Transpose that computes the same as the Einsum; None if there is none."""
        del graph
        y, perm = result_of(op), permutation(op)
        return None if y is None or perm is None else Match(y, (op,), op.inputs, {"perm": perm})


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
        x, y = op.inputs[0], result_of(op)
        sizes = op.inputs[3] if len(op.inputs) > 3 else None
        if (
            op.version < _SINCE
            or sizes is None
            or sizes.is_constant
            or x is None
            or y is None
            or "axes" in op.attributes
        ):
            return None
        if op.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch" or x.shape is None or y.shape is None:
            return None
        if op.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            return None
        last = _last_piece(graph, sizes)
        count = last.static_shape[0] if last is not None and last.static_shape else 0
        kept = len(x.shape) - count
        if not count or kept <= 0 or x.shape[:kept] != y.shape[:kept]:
            return None
        axes = tuple(range(kept, len(x.shape)))
        return Match(y, (op,), (x, None, None, last), {**op.attributes, "axes": axes})


def _last_piece(graph: Graph, sizes: Value) -> Value | None:
    """The last tensor of those that sizes are concatenated from."""
    concat = graph.producer(sizes)
    return concat.inputs[-1] if concat is not None and concat.kind == "Concat" else None
