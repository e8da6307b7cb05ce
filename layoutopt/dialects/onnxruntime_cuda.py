"""The dialect `onnxruntime-cuda`: standard ONNX, and convolutions in NHWC for onnxruntime's CUDA execution provider."""

from collections.abc import Sequence

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.standard import Standard
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Slot, TensorType, Value
from layoutopt.ops import X, Y

DOMAIN = "com.microsoft"
NHWC_CONV = "NhwcConv"
_W = Slot("in", 1)
_NHWC = Format.plain((0, 2, 3, 1))
_DTYPES = (DType.FLOAT32, DType.FLOAT16)


class OnnxRuntimeCuda(Standard):
    """Conv in NHWC  -->  com.microsoft.NhwcConv, with filters (O, H, W, I)."""

    name = "onnxruntime-cuda"

    def native(self, op: Op, builder: OpBuilder) -> bool:
        """Convolutions of images (N, H, W, C) with constant filters (O, H, W, I), in float32 and float16.

        Formats are compared by the bytes that they store: a filter of one pixel has the same bytes in (O, I, H, W).
        """
        if op.kind != "Conv" or op.signature is None:
            return False
        x, w, y = op.inputs[0], op.inputs[1], op.outputs[0]
        if x is None or w is None or y is None or not w.is_constant or x.dtype not in _DTYPES:
            return False
        if not all(_is_channels_last(builder, slot, value) for slot, value in ((X, x), (_W, w), (Y, y))):
            return False
        image, filters = builder.raw(0), builder.constant_in(w, _NHWC)
        assert image is not None and x.shape is not None
        image = builder.reshape(image, _NHWC.physical_shape(x.shape))
        bias = builder.raw(2) if len(op.inputs) > 2 else None
        assert y.shape is not None and y.dtype is not None
        type = TensorType(y.dtype, _NHWC.physical_shape(y.shape))
        inputs = [image, filters, *([bias] if bias is not None else [])]
        (result,) = builder.op(NHWC_CONV, inputs, [type], op.attributes, DOMAIN)
        builder.set_output(0, result)
        return True

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """The recorded ops as they are."""
        if any(each.domain == DOMAIN for each in builder.ops):
            graph.opsets.setdefault(DOMAIN, 1)
        super().write(graph, op, builder, outputs)


def _is_channels_last(builder: OpBuilder, slot: Slot, value: Value) -> bool:
    shape = value.shape
    return shape is not None and len(shape) == _NHWC.rank and builder.format(slot).same_bytes(_NHWC, shape)


__all__ = ["DOMAIN", "NHWC_CONV", "OnnxRuntimeCuda"]
