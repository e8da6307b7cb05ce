"""The scale and the zero point of a tensor of 8-bit integers, and the arithmetic of Q/DQ ops with them.

x = (q - zero) * scale in float32, q = clip(round_to_even(x / scale) + zero), as onnxruntime computes both.
"""

from dataclasses import dataclass

import numpy as np

from layoutopt.ir.types import Array, DType, Op

_INTEGERS = (DType.INT8, DType.UINT8)


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantisation per tensor.

    Attributes:
        scale: the scale, above zero.
        zero: the zero point.
        dtype: int8 or uint8.
    """

    scale: np.float32
    zero: int
    dtype: DType

    @classmethod
    def of(cls, op: Op, scale: int = 1, integers: DType | None = None) -> "Quantization | None":
        """The quantisation that inputs `scale` and `scale` + 1 of an op contain; None unless both are constant scalars.

        Args:
            op: the op.
            scale: the index of the scale; the zero point is the input after it.
            integers: the element type where the zero point is absent.
        """
        scales, zeros = op.constant(scale), op.constant(scale + 1)
        value = op.inputs[scale + 1] if scale + 1 < len(op.inputs) else None
        dtype = integers if value is None else value.dtype
        if scales is None or scales.size != 1 or scales.dtype != np.float32 or dtype not in _INTEGERS or dtype is None:
            return None
        if value is not None and (zeros is None or zeros.size != 1):
            return None
        number = np.float32(scales.reshape(()))
        if not number > 0 or not np.isfinite(number):
            return None
        return cls(number, 0 if zeros is None else int(zeros.reshape(())), dtype)

    @property
    def integers(self) -> Array:
        """All integers of the type, ascending."""
        limits = np.iinfo(self.dtype.numpy)
        return np.arange(limits.min, limits.max + 1, dtype=np.int32)

    def dequantize(self, integers: Array) -> Array:
        """The float32 numbers of integers."""
        return (integers - self.zero).astype(np.float32) * self.scale

    def quantize(self, numbers: Array) -> Array:
        """The integers of float32 numbers, as int32."""
        return self.saturate(np.rint(numbers / self.scale))

    def saturate(self, steps: Array) -> Array:
        """The integers at whole numbers of steps from the zero point, as int32."""
        limits = np.iinfo(self.dtype.numpy)
        return np.asarray(np.clip(steps + self.zero, limits.min, limits.max), np.int32)
