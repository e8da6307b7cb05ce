"""The dialect `ops`: expands ops and layout conversions to standard ONNX ops, for runtimes without model-local functions."""

from collections.abc import Sequence

from layoutopt.cost.size_growth import Growth
from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.lowering import Dialect, write_plain
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.ops import move_outward


class Ops(Dialect):
    """Conv in NHWC  -->  Transpose, Conv, Transpose.

    Of a quantised unit they stand outside, on integers, since runtimes find a unit by its neighbours.
    """

    name = "ops"

    def lower(self, graph: Graph, growth: Growth | None = None) -> Graph:
        """The lowered graph; `graph` is not changed."""
        lowered = super().lower(graph, growth)
        for each in lowered.nest():
            move_outward(each, only_names=False)
        return lowered

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """The recorded ops as they are."""
        write_plain(graph, op, builder, outputs)
