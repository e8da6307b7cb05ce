"""The dialect `ops`: standard ONNX operators only, for every runtime; plans use the formats that these operators express."""

from collections.abc import Sequence

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.lowering import Dialect
from layoutopt.dialects.passes import COMPACT, EqualizeMatmulRanks, SimplifyReshapes
from layoutopt.dialects.write_plain import write_plain
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.passes import HoistFromQdqGroups


class Ops(Dialect):
    """Relu in NHWC  -->  Relu on an array of that shape; Conv in NHWC  -->  Transpose, Conv, Transpose.

    A convolution has another format than ONNX's only where it is pinned. Conversions are written outside of QDQ groups, on
    integers, since runtimes match a group by adjacent ops.
    """

    name = "ops"
    is_standard = True
    passes = (EqualizeMatmulRanks(), HoistFromQdqGroups(only_views=False), SimplifyReshapes(), *COMPACT)

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """The recorded ops as they are."""
        write_plain(graph, op, builder, outputs)
