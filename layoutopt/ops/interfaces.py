"""Facts about ops other than layouts, which methods of `LayoutRule` declare: axis letters, pads, maps."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Op, OpaqueType, Slot, TensorType, Value
from layoutopt.ops.signatures import X, Y
from layoutopt.record import Record

# --- Letters of the axes of an op's operands, where the definition of the op gives its axes roles ---
#
# N batch   C channels   D H W spatial axes        convolution, pooling, normalisation per channel
# N batch   H heads      S sequence     D head     attention
# N batch   T steps      D directions   C features recurrent networks


FEATURE_MAPS: Mapping[Slot, Sequence[str]] = MappingProxyType(dict.fromkeys((X, Y), ("NCW", "NCHW", "NCDHW")))
"""The letters of x and y, if they are feature maps (N, C, *spatial)."""


def letters_by_rank(op: Op, slots: Mapping[Slot, Sequence[str]]) -> dict[Slot, str]:
    """For every slot that of the given letters whose number is the rank of the operand; slots without such are absent."""
    ranks = {slot: None if (value := op.operand(slot)) is None else value.rank for slot in slots}
    return {slot: letters for slot, each in slots.items() for letters in each if len(letters) == ranks[slot]}


# --- Folding of zero pads into ops that have pads as attributes ---


Pads: TypeAlias = dict[int, tuple[int, int]]
"""Numbers of elements added before and behind each axis; axes without pads are absent."""


# --- affine ---
#
# Per-channel affine maps: y = x * scale + shift, with numbers along one axis. BatchNormalization at inference is one.
#
# A rule may declare that its op *is* an affine map (`LayoutRule.affine`), and that its op can *fold* one into its constants
# (`LayoutRule.fold_affine`): a convolution whose output is scaled is the convolution with scaled weights. The arithmetic is
# done in float64 and rounded once.


_PIECE = 1 << 20  # elements that are checked at a time

Side: TypeAlias = Literal["in", "out"]
"""Whether an affine map is applied to the input or to the output of the op that it is folded into."""


class Affine(Record, eq=False):
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

    def without_shift(self) -> "Affine":
        """The map y = x * scale."""
        return Affine(self.index, self.axis, self.scale, np.zeros_like(self.shift))

    def with_axis(self, axis: int | None) -> "Affine":
        """The same numbers along another axis, for x behind a Transpose."""
        return Affine(self.index, axis, self.scale, self.shift)


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
    value = op.input(index)
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


# --- linear map ---
#
# Channel-wise linear maps: a 1x1 convolution and a product with a constant matrix are linear maps over one axis.
#
#     y[.., o, ..] = sum over c of matrix[o, c] * x[.., c, ..] + shift[o]      at every position of the other axes
#
# Such a map commutes with every op that makes each element of its result a mean of elements of x along other axes, with
# weights that sum to one: interpolation, average pooling. Both are linear, act on different axes, and a mean of equal shifts
# is the shift. A map of tensors concatenated along its axis is the sum of maps of the tensors.


class LinearMap(Record, eq=False):
    """A linear map over one axis of the first input, which is that axis of the result too.

    Attributes:
        axis: the axis.
        matrix: float64, of shape (extent in the result, extent in the input).
        shift: float64, of shape (extent in the result,).
    """

    axis: int
    matrix: Array
    shift: Array

    @property
    def extents(self) -> tuple[int, int]:
        """The extents of the axis in the result and in the input."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def after(self, first: "LinearMap") -> "LinearMap":
        """This map of the result of `first`, as one map along the axis of this one."""
        return LinearMap(self.axis, self.matrix @ first.matrix, self.matrix @ first.shift + self.shift)

    def scaled(self, affines: Sequence[Affine]) -> "LinearMap":
        """This map of a tensor to which affines along its axis are applied before, the last one first."""
        result = self
        for affine in affines:
            scale, shift = affine.broadcast_to(self.extents[1])
            result = LinearMap(self.axis, result.matrix * scale, result.matrix @ shift + result.shift)
        return result

    def of_ranges(self, pieces: Sequence[tuple[int, int]]) -> "LinearMap":
        """The map restricted to concatenated ranges (start, stop) of the axis; the range that starts at 0 has the shift."""
        shift = self.shift if any(start == 0 for start, _ in pieces) else np.zeros_like(self.shift)
        return LinearMap(self.axis, np.concatenate([self.matrix[:, slice(*each)] for each in pieces], axis=1), shift)


def add_sum(graph: Graph, one: Value, other: Value, type: TensorType | OpaqueType, stem: str, near: Op) -> Value:
    """Add an Add of two tensors of one shape right behind the op `near`; returns its output."""
    return graph.new_result("Add", (one, other), type, stem, near)
