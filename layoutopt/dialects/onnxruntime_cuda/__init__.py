"""The dialect `onnxruntime-cuda`: standard ONNX, and the kernels for NHWC of onnxruntime's CUDA execution provider.

images                                the arrays of these kernels
convolution, group_normalization      the writers, op by op
fuse_into_group_norms                 the pass on the lowered graph
"""

from collections.abc import Sequence

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime_cuda.convolution import NHWC_CONV, convolution
from layoutopt.dialects.onnxruntime_cuda.fuse_into_group_norms import SKIP_GROUP_NORM, FuseIntoGroupNorms
from layoutopt.dialects.onnxruntime_cuda.group_normalization import GROUP_NORM, group_normalization
from layoutopt.dialects.onnxruntime_cuda.images import DOMAIN
from layoutopt.dialects.passes import COMPACT
from layoutopt.dialects.standard import Standard
from layoutopt.ir.cast import DOMAIN as LAYOUTOPT
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.ops.group_normalization import KIND

_WRITERS = {"Conv": convolution, KIND: group_normalization, f"{LAYOUTOPT}::{KIND}": group_normalization}


class OnnxRuntimeCuda(Standard):
    """Conv in NHWC  -->  com.microsoft.NhwcConv; GroupNormalization in NHWC  -->  com.microsoft.GroupNorm."""

    name = "onnxruntime-cuda"
    passes = (*Standard.passes[: -len(COMPACT)], FuseIntoGroupNorms(), *COMPACT)

    def native(self, op: Op, builder: OpBuilder) -> bool:
        """By op type."""
        write = _WRITERS.get(op.kind)
        return write is not None and op.signature is not None and write(op, builder)

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """The recorded ops as they are."""
        if any(each.domain == DOMAIN for each in builder.ops):
            graph.opsets.setdefault(DOMAIN, 1)
        super().write(graph, op, builder, outputs)


__all__ = ["DOMAIN", "GROUP_NORM", "NHWC_CONV", "SKIP_GROUP_NORM", "OnnxRuntimeCuda"]
