"""The dialect `ops`: expands ops and layout conversions to standard ONNX ops, for runtimes without model-local functions.

The dialect `standard` is the same on plans with the formats that ONNX can express, for every runtime.
"""

from collections.abc import Sequence

from layoutopt.dialects.builder import OpBuilder, write_plain
from layoutopt.dialects.lowering import Dialect
from layoutopt.dialects.passes import COMPACT, EqualizeMatmulRanks, FoldTransposes, ShareTransposes, SimplifyReshapes
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
        HoistFromQdqGroups(),
        SimplifyReshapes(moves_past_elementwise=True),
        *COMPACT,
    )

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """Write the recorded ops."""
        write_plain(graph, op, builder, outputs)


class Standard(Ops):
    """Relu in NHWC  -->  Relu on an array of that shape; Conv stays in NCHW.

    A convolution has another format only if it is pinned, and is then written with Transposes, as in the dialect `ops`.
    """

    name = "standard"
    passes = (*Ops.passes[: -len(COMPACT)], ShareTransposes(), FoldTransposes(), *COMPACT)
