"""Element types."""

from enum import Enum
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class DType(Enum):
    """An element type of ONNX: its name, its size in bits, the numpy type that holds one element."""

    FLOAT32 = ("float32", 32, np.float32)
    FLOAT16 = ("float16", 16, np.float16)
    BFLOAT16 = ("bfloat16", 16, ml_dtypes.bfloat16)
    FLOAT64 = ("float64", 64, np.float64)
    FLOAT8E4M3FN = ("float8e4m3fn", 8, ml_dtypes.float8_e4m3fn)
    FLOAT8E4M3FNUZ = ("float8e4m3fnuz", 8, ml_dtypes.float8_e4m3fnuz)
    FLOAT8E5M2 = ("float8e5m2", 8, ml_dtypes.float8_e5m2)
    FLOAT8E5M2FNUZ = ("float8e5m2fnuz", 8, ml_dtypes.float8_e5m2fnuz)
    FLOAT8E8M0 = ("float8e8m0", 8, ml_dtypes.float8_e8m0fnu)
    FLOAT4E2M1 = ("float4e2m1", 4, ml_dtypes.float4_e2m1fn)
    INT8 = ("int8", 8, np.int8)
    INT16 = ("int16", 16, np.int16)
    INT32 = ("int32", 32, np.int32)
    INT64 = ("int64", 64, np.int64)
    INT4 = ("int4", 4, ml_dtypes.int4)
    INT2 = ("int2", 2, ml_dtypes.int2)
    UINT8 = ("uint8", 8, np.uint8)
    UINT16 = ("uint16", 16, np.uint16)
    UINT32 = ("uint32", 32, np.uint32)
    UINT64 = ("uint64", 64, np.uint64)
    UINT4 = ("uint4", 4, ml_dtypes.uint4)
    UINT2 = ("uint2", 2, ml_dtypes.uint2)
    BOOL = ("bool", 8, np.bool_)
    COMPLEX64 = ("complex64", 64, np.complex64)
    COMPLEX128 = ("complex128", 128, np.complex128)
    STRING = ("string", 64, np.object_)

    def __init__(self, label: str, bits: int, scalar: type) -> None:
        self.label = label
        self.bits = bits
        self.numpy: np.dtype[Any] = np.dtype(scalar)

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating-point or complex numbers."""
        return self.label.startswith(("float", "bfloat", "complex"))

    @classmethod
    def of(cls, array: Array) -> "DType":
        """The type of an array's elements."""
        return next(dtype for dtype in cls if dtype.numpy == array.dtype)

    def __str__(self) -> str:
        return self.label


__all__ = ["Array", "DType"]
