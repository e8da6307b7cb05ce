"""Per-channel affines: y = x * scale + shift, with numbers along one axis; what BatchNormalization is at inference.

A rule may say that its op *is* one (`affine`), and that its op can *take one in* (`fold_affine`): a convolution with its
output scaled is the convolution with scaled weights. The arithmetic is done in float64 and rounded once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layoutopt.ir.types import Array, DType, Op, Value


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """y = x * scale + shift.

    Attributes:
        index: which input of the op is x.
        axis: the axis of x that the numbers run along; None where one number serves all.
        scale, shift: float64 arrays of shape (extent of the axis,) or (1,).
    """

    index: int
    axis: int | None
    scale: Array
    shift: Array

    @property
    def only_scales(self) -> bool:
        """Whether nothing is added."""
        return not self.shift.any()

    def along(self, extent: int) -> tuple[Array, Array]:
        """Scale and shift, one number per element of an axis of that extent."""
        return np.broadcast_to(self.scale, (extent,)), np.broadcast_to(self.shift, (extent,))

    def moved(self, axis: int | None) -> "Affine":
        """The same numbers along another axis, as a Transpose leaves them."""
        return Affine(self.index, axis, self.scale, self.shift)


def rounded(constants: Mapping[int, Array], dtype: DType) -> dict[int, Array] | None:
    """Numbers computed in float64, by input, as a model holds them; None if some are too large for that."""
    with np.errstate(over="ignore"):
        found = {index: array.astype(dtype.numpy) for index, array in constants.items()}
    return found if all(bool(np.isfinite(array.astype(np.float64)).all()) for array in found.values()) else None


def float_constant(op: Op, index: int) -> Array | None:
    """Input `index` in float64, if it is a constant of finite floating-point numbers."""
    value = op.inputs[index] if index < len(op.inputs) else None
    if value is None or value.data is None or value.dtype is None or not value.dtype.is_float:
        return None
    array = value.data.numpy().astype(np.float64)
    return array if bool(np.isfinite(array).all()) else None


def along_one_axis(constant: Array, x: Value) -> tuple[int | None, Array] | None:
    """The axis of x that a broadcast constant runs along and its numbers; None if several, or it enlarges x."""
    if x.shape is None or constant.ndim > len(x.shape):
        return None
    wide = [axis for axis, extent in enumerate(constant.shape) if extent != 1]
    if len(wide) > 1:
        return None
    if not wide:
        return None, constant.reshape(1)
    axis = wide[0] + len(x.shape) - constant.ndim
    return (axis, constant.reshape(-1)) if x.shape[axis] == constant.size else None
