"""A Resize of the spatial axes whose operand `sizes` has computed sizes of all axes.

before: x (N,C,H,W), Concat(Slice(Shape(x)), [h, w]) -> Resize -> y (N,C,h,w)
after:  x (N,C,H,W), [h, w] -> Resize {axes = 2, 3} -> y

The sizes then do not contain batch and channels, so other ops may be moved past it. ONNX has the attribute since opset 18.
"""

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.patterns.base import FusionPattern, Match, register_pattern, result_of

_SINCE = 18


@register_pattern
class ResizedAxes(FusionPattern):
    """A Resize whose sizes are concatenated from extents of its operand and new sizes."""

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
