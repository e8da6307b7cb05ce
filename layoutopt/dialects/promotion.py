"""Element types that a data-movement op does not support, and the wider types to which they are promoted.

Slice and Concat do not support element types of fewer than eight bits or float8, and Transpose does not support float8 before
opset 21. Of the types that ONNX allows, onnxruntime's CPU kernels lack Pad of float8 and Reshape of 4-bit integers.
"""

from layoutopt.ir.types import DType

_NARROW = {
    **dict.fromkeys((DType.INT4, DType.INT2), DType.INT8),
    **dict.fromkeys((DType.UINT4, DType.UINT2), DType.UINT8),
    DType.FLOAT4E2M1: DType.FLOAT32,
}
_CODES = (
    *("", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16", "float64"),
    *("uint32", "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2"),
    *("float8e5m2fnuz", "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2"),
)
_MOVES_EIGHT_BITS = 21  # the opset from which Transpose takes float8


def promoted_type(dtype: DType, op_type: str, opset: int) -> DType | None:
    """The element type to which the operands of an op are promoted; None if the op supports this one."""
    if dtype in _NARROW:
        return _NARROW[dtype]
    is_supported = op_type in ("Reshape", "Transpose") and opset >= _MOVES_EIGHT_BITS
    return DType.FLOAT32 if dtype.label.startswith("float8") and not is_supported else None


def code_of(dtype: DType) -> int:
    """The number of an element type in ONNX, as in attribute `to` of Cast."""
    return _CODES.index(dtype.label)


__all__ = ["code_of", "promoted_type"]
