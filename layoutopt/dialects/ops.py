"""The dialect `ops`: expands ops and layout conversions to standard ONNX ops, for runtimes without model-local functions."""

from collections.abc import Sequence

from layoutopt.dialects.builder import OpBuilder, write_plain
from layoutopt.dialects.lowering import Dialect
from layoutopt.dialects.passes import COMPACT, EqualizeMatmulRanks, SimplifyReshapes
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.passes import HoistFromQdqGroups


class Ops(Dialect):
    """Conv in NHWC  -->  Transpose, Conv, Transpose.

    The conversions are written outside of QDQ groups, on integers, since runtimes match a group by adjacent ops.
    """

    name = "ops"
    passes = (
        EqualizeMatmulRanks(),
        HoistFromQdqGroups(only_views=False),
        SimplifyReshapes(moves_past_elementwise=True),
        *COMPACT,
    )

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """Write the recorded ops."""
        write_plain(graph, op, builder, outputs)
