"""The dialect `ops`: everything is expanded to plain ONNX ops, for runtimes that take nothing else."""

from collections.abc import Sequence

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.lowering import Dialect, write_plain
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value


class Ops(Dialect):
    """Conv in NHWC  -->  Transpose, Conv, Transpose."""

    name = "ops"

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """The recorded ops as they are."""
        write_plain(graph, op, builder, outputs)
