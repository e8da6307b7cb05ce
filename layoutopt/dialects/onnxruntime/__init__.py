"""The dialect `onnxruntime`: the blocked kernels that stock onnxruntime has for float32 on CPUs.

Its domain `com.microsoft.nchwc` has convolution (with a fused activation and a residual to add), pooling and reorders on
arrays that are declared as (N, C, H, W), C padded to the block, and lie as (N, C/b, H, W, b). Ops that do not care where
an element lies run on them as they are. A multiplication by one number per sample and channel is a depthwise 1x1
convolution, whose filter may be computed: squeeze-and-excite needs no reorder.

What has no native kernel is written as the dialect `ops` would, with reshapes around it. Where to find what:

    arrays        how blocked arrays are declared, and who writes which op
    convolution, pooling, elementwise, pieces, reorder, resize, group_norm    the writers, op by op
    tidy, fusion, gates, residual, winograd    what is done to the whole graph afterwards
    guard         what stops the model on a machine with another block
"""

from collections.abc import Sequence

from layoutopt.cost.size_growth import Growth
from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.lowering import Dialect, write_plain
from layoutopt.dialects.onnxruntime import (  # noqa: F401  (they register writers)
    convolution,
    group_norm,
    pieces,
    pooling,
    resize,
)
from layoutopt.dialects.onnxruntime.arrays import BLOCKS, DOMAIN, WRITERS, blocks_of, filter_block, spell
from layoutopt.dialects.onnxruntime.elementwise import elementwise
from layoutopt.dialects.onnxruntime.fusion import fuse
from layoutopt.dialects.onnxruntime.gates import scale_filters
from layoutopt.dialects.onnxruntime.guard import guard
from layoutopt.dialects.onnxruntime.kernels import kernels
from layoutopt.dialects.onnxruntime.reorder import reorder
from layoutopt.dialects.onnxruntime.residual import keep_residuals
from layoutopt.dialects.onnxruntime.tidy import tidy
from layoutopt.dialects.onnxruntime.winograd import winograd
from layoutopt.dialects.shield import shield
from layoutopt.formats import Format, Shape
from layoutopt.ir.cast import is_cast
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Value
from layoutopt.ops import rule_of
from layoutopt.ops.bodies import insides

__all__ = ["BLOCKS", "DOMAIN", "OnnxRuntime"]


class OnnxRuntime(Dialect):
    """Conv in NCHW8c  -->  com.microsoft.nchwc.Conv."""

    name = "onnxruntime"
    is_native = True
    keeps_units = True

    @property
    def kernels(self) -> frozenset[str]:
        """Those of the table."""
        return frozenset(f"{kernel.domain}::{kernel.op}" for kernel in kernels())

    def block(self, graph: Graph) -> int:
        """That of the filters; 0 if none is packed."""
        values = (op.inputs[1] for each in insides(graph) for op in each.ops if op.kind in convolution.KINDS)
        formats = (value.storage.format for value in values if value is not None and value.storage is not None)
        return max(map(filter_block, formats), default=0)

    def shape(self, format: Format, shape: Shape) -> Shape:
        """Blocked feature maps and filters are declared with four axes."""
        return spell(format, shape)

    def native(self, op: Op, builder: OpBuilder) -> bool:
        """By op type; on float32 only."""
        first = op.inputs[0] if op.inputs else None
        if first is None or first.dtype is not DType.FLOAT32 or op.signature is None:
            return False
        if is_cast(op):
            return reorder(op, builder)
        write = WRITERS.get(op.kind)
        if write is not None and write(op, builder):
            return True
        rule = rule_of(op)
        return rule is not None and rule.family == "elementwise" and elementwise(op, builder)

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """The recorded ops as they are."""
        if any(each.domain == DOMAIN for each in builder.ops):
            graph.opsets.setdefault(DOMAIN, 1)
        shield(graph, builder)
        write_plain(graph, op, builder, outputs)

    def lower(self, graph: Graph, growth: Growth | None = None) -> Graph:
        """Lowered, then neighbours taken into the convolutions, and a guard against machines with another block put in."""
        block = self.block(graph)
        with blocks_of(block):
            lowered = super().lower(graph)
            for each in insides(lowered):
                tidy(each)
                fuse(each)
                scale_filters(each, block)
                keep_residuals(each)
            winograd(lowered, block, growth=growth)
            guard(lowered, block)
        return lowered
