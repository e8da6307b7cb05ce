"""The dialect `onnxruntime`: the blocked kernels that stock onnxruntime has for float32 on CPUs.

Its domain `com.microsoft.nchwc` has convolution (with a fused activation and a residual to add), pooling and reorders on
arrays that are declared as (N, C, H, W), C padded to the block, and stored as (N, C/b, H, W, b). Element-wise
ops run on these arrays without a change. A multiplication by one number per sample and channel is a
depthwise 1x1 convolution, whose filter may be computed: squeeze-and-excite needs no reorder.

Ops without a native kernel are written as in the dialect `ops`, with reshapes around them. The modules:

    writers                                   the declared shapes of blocked arrays, and the writers by op type
    blocked_passes, plain_passes, winograd    the passes on the lowered graph
    integer, integer_chains, integer_fits     the passes on quantised models
    default_blocks                            the ops that onnxruntime itself runs in blocks
    tables                                    kernels beyond ONNX
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from layoutopt.dialects.lowering import Dialect, stop_qdq_propagation
from layoutopt.dialects.onnxruntime.blocked_passes import (
    CheckBlockSize,
    DeclarePaddedChannels,
    FuseIntoConvolutions,
)
from layoutopt.dialects.onnxruntime.integer import ChooseIntegerKernels, DetachQuantizers, UnsignActivations
from layoutopt.dialects.onnxruntime.integer_chains import PoolChannelsLast, RequantizeChannels, Tabulate, WidenRows
from layoutopt.dialects.onnxruntime.plain_passes import AvoidPrepacking, AvoidSkipLayerNormalization
from layoutopt.dialects.onnxruntime.tables import kernels
from layoutopt.dialects.onnxruntime.winograd import Winograd
from layoutopt.dialects.onnxruntime.writers import (
    DOMAIN,
    KINDS,
    WRITERS,
    BlockedArrays,
    write_elementwise,
    write_reorder,
)
from layoutopt.dialects.passes import COMPACT, EqualizeMatmulRanks, SimplifyReshapes
from layoutopt.formats import Format, Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Operands, Value
from layoutopt.ops import is_dequantizer, rule_of
from layoutopt.ops.builder import OpBuilder
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes import RemoveDead, ShareConstants

_PASSES = (
    EqualizeMatmulRanks(),
    FuseIntoConvolutions(),
    SimplifyReshapes(),  # those on both sides of a fused op
    AvoidSkipLayerNormalization(),
    AvoidPrepacking(),
    UnsignActivations(),
    ChooseIntegerKernels(),
    PoolChannelsLast(),
    Winograd(),
    DetachQuantizers(),
    DeclarePaddedChannels(),
    CheckBlockSize(),
    *COMPACT,
)
_BAKED_PASSES = (
    Tabulate(),
    RequantizeChannels(),
    WidenRows(),
    PoolChannelsLast(),
    SimplifyReshapes(),
    ShareConstants(),
    RemoveDead(),
)


@dataclass(frozen=True, slots=True)
class OnnxRuntime(Dialect):
    """Calls the kernels of onnxruntime on CPUs: Conv in NCHW8c  -->  com.microsoft.nchwc.Conv.

    Attributes:
        arrays: the blocks of blocked arrays, and their declared shapes.
    """

    arrays: BlockedArrays = field(default_factory=BlockedArrays)

    name = "onnxruntime"
    is_native = True
    keeps_qdq_groups = True
    passes = _PASSES
    baked_passes = _BAKED_PASSES

    @property
    def kernels(self) -> frozenset[str]:
        """The op types of the table `kernels.toml`, with their domains."""
        return frozenset(f"{domain}::{op}" if domain else op for domain, op in kernels())

    def block(self, graph: Graph) -> int:
        """The block of the filters; 0 if none is blocked."""
        values = (op.inputs[1] for each in regions_with_rule(graph) for op in each.ops if op.kind in KINDS)
        formats = (value.storage.format for value in values if value is not None and value.storage is not None)
        return max(map(self.arrays.filter_block, formats), default=0)

    def shape(self, format: Format, shape: Shape) -> Shape:
        """The declared shape: four axes for blocked feature maps and filters."""
        return self.arrays.declared_shape(format, shape)

    def write_native(self, op: Op, builder: OpBuilder) -> bool:
        """Record an op on float32 with the writer of its op type; returns False if there is none."""
        first = op.input(0)
        if first is None or op.signature is None or not (first.dtype is DType.FLOAT32 or is_dequantizer(op)):
            return False
        rule = rule_of(op)
        writers = [WRITERS[op.kind]] if op.kind in WRITERS else []
        if rule is not None and rule.family == "elementwise":
            writers.append(write_elementwise)
        for write in writers:
            if (results := write(op, builder, self.arrays)) is not None:
                builder.set_outputs(results)
                return True
        return False

    def convert(self, builder: OpBuilder, value: Value, src: Format, dst: Format, shape: Shape) -> Value | None:
        """Record the reorder between a plain and a blocked format, of float32; None for any other conversion."""
        if value.dtype is not DType.FLOAT32:
            return None
        return write_reorder(builder, value, src, dst, shape, self.arrays)

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Operands) -> None:
        """Write the recorded ops."""
        if any(each.domain == DOMAIN for each in builder.ops):
            graph.opsets.setdefault(DOMAIN, 1)
        stop_qdq_propagation(graph, builder)
        Dialect.write(self, graph, op, builder, outputs)

    def lower(self, graph: Graph) -> Graph:
        """The lowered graph, in which only arrays of the block that its filters are packed for count as blocked."""
        block = self.block(graph)
        return Dialect.lower(OnnxRuntime(BlockedArrays((block,) if block else ())), graph)
