"""The dialect `onnxruntime-cuda`: standard ONNX, and the kernels for NHWC of onnxruntime's CUDA execution provider.

images                                the shapes of the arrays of these kernels
convolution, group_normalization      the writers, by op type
fuse_into_group_norms                 the pass on the lowered graph
"""

from collections.abc import Sequence

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime_cuda.convolution import NHWC_CONV, write_convolution
from layoutopt.dialects.onnxruntime_cuda.fuse_into_group_norms import SKIP_GROUP_NORM, FuseIntoGroupNorms
from layoutopt.dialects.onnxruntime_cuda.group_normalization import GROUP_NORM, write_group_normalization
from layoutopt.dialects.onnxruntime_cuda.images import DOMAIN
from layoutopt.dialects.passes import COMPACT
from layoutopt.dialects.standard import Standard
from layoutopt.ir.cast import DOMAIN as LAYOUTOPT
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.ops.group_normalization import KIND

_WRITERS = {
    "Conv": write_convolution,
    KIND: write_group_normalization,
    f"{LAYOUTOPT}::{KIND}": write_group_normalization,
}


class OnnxRuntimeCuda(Standard):
    """Conv in NHWC  -->  com.microsoft.NhwcConv; GroupNormalization in NHWC  -->  com.microsoft.GroupNorm."""

    name = "onnxruntime-cuda"
    passes = (*Standard.passes[: -len(COMPACT)], FuseIntoGroupNorms(), *COMPACT)

    def write_native(self, op: Op, builder: OpBuilder) -> bool:
        """Record an op with the writer of its op type; returns False if there is none."""
        write = _WRITERS.get(op.kind)
        return write is not None and op.signature is not None and write(op, builder)

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """Write the recorded ops."""
        if any(each.domain == DOMAIN for each in builder.ops):
            graph.opsets.setdefault(DOMAIN, 1)
        super().write(graph, op, builder, outputs)


__all__ = ["DOMAIN", "GROUP_NORM", "NHWC_CONV", "SKIP_GROUP_NORM", "OnnxRuntimeCuda"]
