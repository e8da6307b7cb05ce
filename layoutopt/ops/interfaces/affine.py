"""Per-channel affine maps: y = x * scale + shift, with numbers along one axis. BatchNormalization at inference is one.

A rule may declare that its op *is* an affine map (`AffineOp`), and that its op can *fold* one into its constants
(`AffineFolding`): a convolution whose output is scaled is the convolution with scaled weights. The arithmetic is done in
float64 and rounded once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from layoutopt.ir.types import Array, DType, Op, Value
from layoutopt.ops.base import rule_of

_PIECE = 1 << 20  # elements that are checked at a time

Side: TypeAlias = Literal["in", "out"]
"""Whether an affine map is applied to the input or to the output of the op that it is folded into."""


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """y = x * scale + shift.

    Attributes:
        index: the index of x among the inputs of the op.
        axis: the axis of x that the numbers run along; None where one number serves all elements.
        scale, shift: float64 arrays of shape (extent of the axis,) or (1,).
    """

    index: int
    axis: int | None
    scale: Array
    shift: Array

    @property
    def is_scale_only(self) -> bool:
        """Whether the shift is zero."""
        return not self.shift.any()

    def broadcast_to(self, extent: int) -> tuple[Array, Array]:
        """Scale and shift with one number per element of an axis of that extent."""
        return np.broadcast_to(self.scale, (extent,)), np.broadcast_to(self.shift, (extent,))

    def with_axis(self, axis: int | None) -> "Affine":
        """The same numbers along another axis, for x behind a Transpose."""
        return Affine(self.index, axis, self.scale, self.shift)


class AffineOp(ABC):
    """An op that may be an affine map."""

    @abstractmethod
    def affine(self, op: Op) -> Affine | None:
        """The affine map that the op is; None if it is none."""


class AffineFolding(ABC):
    """An op whose constants can absorb an affine map of its input or output."""

    @abstractmethod
    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """The constant inputs in float64, by index, with which the op computes the affine map too; None if it cannot."""


def affine_of(op: Op | None) -> Affine | None:
    """The affine map that an op is; None if it is none."""
    rule = rule_of(op) if op is not None else None
    return rule.affine(op) if op is not None and isinstance(rule, AffineOp) else None


def folded_affine(op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
    """The constant inputs with which an op computes an affine map of its input or output too; None if it cannot."""
    rule = rule_of(op)
    return rule.fold_affine(op, affine, side) if isinstance(rule, AffineFolding) else None


def rounded(constants: Mapping[int, Array], dtype: DType) -> dict[int, Array] | None:
    """Constants computed in float64, by input index, as type `dtype`; None if one overflows."""
    with np.errstate(over="ignore"):
        found = {index: array.astype(dtype.numpy) for index, array in constants.items()}
    return found if all(map(_is_finite, found.values())) else None


def _is_finite(array: Array) -> bool:
    """Whether all elements are finite; no copy of the array is made, which may be a large weight."""
    pieces = np.nditer(array, flags=["buffered", "external_loop", "zerosize_ok"], buffersize=_PIECE)
    return all(bool(np.isfinite(np.asarray(piece, np.float64)).all()) for piece in pieces)


def float_constant(op: Op, index: int) -> Array | None:
    """A copy of input `index` in float64, if it is a constant of finite floating-point numbers."""
    value = op.inputs[index] if index < len(op.inputs) else None
    if value is None or value.data is None or value.dtype is None or not value.dtype.is_float:
        return None
    array = value.data.numpy().astype(np.float64)
    return array if _is_finite(array) else None


def along_one_axis(constant: Array, x: Value) -> tuple[int | None, Array] | None:
    """The axis of x that a broadcast constant runs along, and its numbers; None if there are several, or it enlarges x."""
    if x.shape is None or constant.ndim > len(x.shape):
        return None
    wide = [axis for axis, extent in enumerate(constant.shape) if extent != 1]
    if len(wide) > 1:
        return None
    if not wide:
        return None, constant.reshape(1)
    axis = wide[0] + len(x.shape) - constant.ndim
    return (axis, constant.reshape(-1)) if x.shape[axis] == constant.size else None
