"""A Transpose of the last two axes, with the axes before them merged around it, as torch.onnx.export writes key transposes.

before: x (B,H,S,D) -> Reshape (B*H,S,D) -> Transpose {perm = 0, 2, 1} -> Reshape (B,H,D,S)
after:  x -> Transpose {perm = 0, 1, 3, 2}
"""

from layoutopt.formats import product
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.patterns.base import FusionPattern, Match, register_pattern, result_of


@register_pattern
class BatchedTranspose(FusionPattern):
    """A Transpose between a Reshape that merges the leading axes and one that splits them."""

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
