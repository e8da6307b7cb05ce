"""The dialect `onnxruntime`: the blocked kernels that stock onnxruntime has for float32 on CPUs.

Its domain `com.microsoft.nchwc` has convolution (with a fused activation and a residual to add), pooling and reorders on
arrays that are declared as (N, C, H, W), C padded to the block, and stored as (N, C/b, H, W, b). Ops whose result does not
depend on the positions of elements run on them as they are. A multiplication by one number per sample and channel is a
depthwise 1x1 convolution, whose filter may be computed: squeeze-and-excite needs no reorder.

Ops without a native kernel are written as in the dialect `ops`, with reshapes around them. The modules:

    arrays        how blocked arrays are declared, and who writes which op
    convolution, pooling, elementwise, pieces, reorder, resize, group_norm    the writers, op by op
    passes        the passes on the lowered graph
    integer       the passes on the baked graph of a quantised model
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.lowering import Dialect
from layoutopt.dialects.onnxruntime import (  # noqa: F401  (they register writers)
    convolution,
    group_norm,
    pieces,
    pooling,
    resize,
)
from layoutopt.dialects.onnxruntime.arrays import BLOCKS, DOMAIN, WRITERS, BlockedArrays
from layoutopt.dialects.onnxruntime.elementwise import elementwise
from layoutopt.dialects.onnxruntime.integer import INTEGER_PASSES
from layoutopt.dialects.onnxruntime.kernels import kernels
from layoutopt.dialects.onnxruntime.passes import PASSES
from layoutopt.dialects.onnxruntime.reorder import reorder
from layoutopt.dialects.passes import COMPACT, EqualizeMatmulRanks
from layoutopt.dialects.qdq_propagation import stop_qdq_propagation
from layoutopt.dialects.write_plain import write_plain
from layoutopt.formats import Format, Shape
from layoutopt.ir.cast import is_cast
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Value
from layoutopt.ops import rule_of
from layoutopt.ops.region_ops import regions_with_rule

__all__ = ["BLOCKS", "DOMAIN", "OnnxRuntime"]


@dataclass(frozen=True, slots=True)
class OnnxRuntime(Dialect):
    """Conv in NCHW8c  -->  com.microsoft.nchwc.Conv.

    Attributes:
        arrays: which arrays are blocked.
    """

    arrays: BlockedArrays = field(default_factory=BlockedArrays)

    name = "onnxruntime"
    is_native = True
    keeps_qdq_groups = True
    passes = (EqualizeMatmulRanks(), *PASSES, *COMPACT)
    baked_passes = INTEGER_PASSES

    @property
    def kernels(self) -> frozenset[str]:
        """Those of the table."""
        return frozenset(f"{kernel.domain}::{kernel.op}" for kernel in kernels())

    def block(self, graph: Graph) -> int:
        """That of the filters; 0 if none is packed."""
        values = (op.inputs[1] for each in regions_with_rule(graph) for op in each.ops if op.kind in convolution.KINDS)
        formats = (value.storage.format for value in values if value is not None and value.storage is not None)
        return max(map(self.arrays.filter_block, formats), default=0)

    def shape(self, format: Format, shape: Shape) -> Shape:
        """Blocked feature maps and filters are declared with four axes."""
        return self.arrays.declared_shape(format, shape)

    def native(self, op: Op, builder: OpBuilder) -> bool:
        """By op type; on float32 only."""
        first = op.inputs[0] if op.inputs else None
        if first is None or first.dtype is not DType.FLOAT32 or op.signature is None:
            return False
        if is_cast(op):
            return reorder(op, builder, self.arrays)
        write = WRITERS.get(op.kind)
        if write is not None and write(op, builder, self.arrays):
            return True
        rule = rule_of(op)
        return rule is not None and rule.family == "elementwise" and elementwise(op, builder, self.arrays)

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """The recorded ops as they are."""
        if any(each.domain == DOMAIN for each in builder.ops):
            graph.opsets.setdefault(DOMAIN, 1)
        stop_qdq_propagation(graph, builder)
        write_plain(graph, op, builder, outputs)

    def lower(self, graph: Graph) -> Graph:
        """The lowered graph, in which only arrays of the block that its filters are packed for count as blocked."""
        block = self.block(graph)
        return Dialect.lower(OnnxRuntime(BlockedArrays((block,) if block else ())), graph)
