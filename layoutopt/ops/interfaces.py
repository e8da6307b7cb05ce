"""Interfaces that a layout rule may implement in addition to `LayoutRule`; passes test for them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from layoutopt.formats import Format, Part, Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Attribute, DType, Op, OpaqueType, Slot, TensorType, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.signatures import OperandFormats

# --- Letters of the axes of an op's operands, where the definition of the op gives its axes roles ---
#
# N batch   C channels   D H W spatial axes        convolution, pooling, normalisation per channel
# N batch   H heads      S sequence     D head     attention
# N batch   T steps      D directions   C features recurrent networks


_FEATURE_MAPS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


class AxisLetters(ABC):
    """An op that defines the roles of its operands' axes."""

    @abstractmethod
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        """The letters of the axes, in logical order, of the operands whose axes have roles."""


def feature_map_letters(op: Op, *slots: Slot, is_channels_last: bool = False) -> dict[Slot, str]:
    """The letters of feature maps at some slots: (N, C, *spatial), or (N, *spatial, C).

    Operands without one, two or three spatial axes are absent.
    """
    found = {}
    for slot in slots:
        letters = _FEATURE_MAPS.get(_rank(op, slot), "")
        if letters:
            found[slot] = f"N{letters[2:]}C" if is_channels_last else letters
    return found


def letters_by_rank(op: Op, slots: Mapping[Slot, tuple[str, ...]]) -> dict[Slot, str]:
    """For every slot that of the given letters whose number is the rank of the operand; slots without such are absent."""
    return {slot: letters for slot, each in slots.items() for letters in each if len(letters) == _rank(op, slot)}


def _rank(op: Op, slot: Slot) -> int:
    values: tuple[Value | None, ...] = op.inputs if slot.side == "in" else op.outputs
    value = values[slot.index] if slot.index < len(values) else None
    return -1 if value is None or value.rank is None else value.rank


# --- Formats that a kernel cannot distinguish: it computes the same bytes from operands in either of them ---


class KernelFormats(ABC):
    """An op whose kernels accept more formats than those that targets list."""

    @abstractmethod
    def kernel_formats(self, op: Op, formats: OperandFormats) -> OperandFormats:
        """The formats with each one replaced by the equivalent format that targets list, if there is one."""


# --- Permuted channels: kernels that accept any order of channels, as long as all operands have the same order ---
#
#     x N H W 2c C    w O H W 2i I    y N H W O      is the channels-last kernel, its filter packed in another order
#
# So a channel shuffle costs nothing between dense convolutions, whose filters are constants, and propagates through ops that
# compute every channel in the same way. Grouped convolutions depend on the order.


Channels: TypeAlias = Sequence[tuple[Slot, int]]
"""Axes of operands that are the same channels."""


class PermutableChannels(KernelFormats):
    """An op whose kernels do not depend on the order of channels, as long as all operands have the same order."""

    @abstractmethod
    def permuted_formats(self, op: Op, base: OperandFormats, slot: Slot, format: Format) -> OperandFormats | None:
        """The formats `base` with the channel permutation that `format` has at `slot`; None if `format` differs in more."""


def axis_digits(format: Format, axis: int, shape: Shape) -> tuple[Part, ...] | None:
    """The digits of an axis, outermost first; None if they are not adjacent or the axis is padded."""
    positions = [position for position, part in enumerate(format.parts) if part.axis == axis]
    if (
        not positions
        or positions != list(range(positions[0], positions[-1] + 1))
        or format.padded_shape(shape)[axis] != shape[axis]
    ):
        return None
    return tuple(format.parts[position] for position in positions)


def with_axis_digits(format: Format, axis: int, digits: Iterable[Part]) -> Format:
    """The format with other digits for an axis, in the position of its first digit."""
    first = next(position for position, part in enumerate(format.parts) if part.axis == axis)
    replaced = (Part(axis, part.block, part.step) for part in digits)
    before = (part for part in format.parts[:first] if part.axis != axis)
    behind = (part for part in format.parts[first:] if part.axis != axis)
    return Format((*before, *replaced, *behind))


def with_permutation(
    op: Op, base: OperandFormats, slot: Slot, format: Format, channels: Channels
) -> OperandFormats | None:
    """The formats of a kernel with the channel permutation that one operand has.

    Args:
        op: the op.
        base: formats that the kernel accepts.
        slot: the operand.
        format: its format.
        channels: the axes that are the same channels as the operand's.

    Returns:
        The formats; None if `format` differs from `base` in more than the order of channels.
    """
    shapes = _shapes(op, channels)
    axis = next((channel_axis for each, channel_axis in channels if each == slot), None)
    if axis is None or len(shapes) < len({each for each, _ in channels}) or not format.fits(shapes[slot]):
        return None
    digits = axis_digits(format, axis, shapes[slot])
    if digits is None or len(digits) < 2:
        return None
    found = dict(base)
    for each, channel_axis in channels:
        own = found.get(each, Format.canonical(len(shapes[each])))
        if not own.fits(shapes[each]) or axis_digits(own, channel_axis, shapes[each]) is None:
            return None
        found[each] = with_axis_digits(own, channel_axis, digits)
    return found if found[slot] == format else None


def without_permutation(op: Op, formats: OperandFormats, channels: Channels) -> OperandFormats:
    """The formats with channels in natural order, if all operands have the same permutation."""
    shapes = _shapes(op, channels)
    if any(slot not in formats or slot not in shapes for slot, _ in channels):
        return formats
    runs = [axis_digits(formats[slot], axis, shapes[slot]) for slot, axis in channels]
    levels = {None if run is None else tuple((part.block, part.step) for part in run) for run in runs}
    if len(levels) != 1 or None in levels or levels == {((0, 0),)}:
        return formats
    return {**formats, **_whole(formats, channels)}


def _whole(formats: OperandFormats, channels: Channels) -> Mapping[Slot, Format]:
    found: dict[Slot, Format] = {}
    for slot, axis in channels:
        found[slot] = with_axis_digits(found.get(slot, formats[slot]), axis, (Part(axis),))
    return found


def _shapes(op: Op, channels: Channels) -> dict[Slot, Shape]:
    values = {slot: op.operand(slot) for slot, _ in channels}
    return {slot: value.shape for slot, value in values.items() if value is not None and value.shape is not None}


# --- Broadcasting: ops that broadcast their operands as numpy does, and ops that do nothing else ---


class BroadcastingOp:
    """Every operand is broadcast to the shape of the result, aligned with its last axes."""


class PureBroadcast:
    """The op only broadcasts its first input, or repeats it along axes along which its readers do not broadcast."""


# --- Concatenation of all inputs along one axis ---


class ConcatenationOp(ABC):
    """An op whose result is the concatenation of its inputs."""

    @abstractmethod
    def concatenated_axis(self, op: Op) -> int | None:
        """The axis along which the inputs are concatenated; None if the rank is unknown."""


# --- resampling ---
#
# Averages along axes, and ops that accept another extent of an axis; both commute with linear maps over channels.


class ExtentChange(ABC):
    """An op that may compute the same for an input with another extent along an axis that it does not change."""

    @abstractmethod
    def shape_edits(self, op: Op, axis: int, extent: int) -> dict[int, dict[int, int]] | None:
        """Edits to shape operands, as {input: {position: value}}, when the extent of x along `axis` becomes `extent`.

        The edited elements have to be numbers already, in a constant or in a computed list. None if the op may not be edited.
        """


class AveragingOp(ExtentChange):
    """An op whose results may be means of elements of its first input: interpolation, average pooling."""

    @abstractmethod
    def averaged_axes(self, op: Op) -> frozenset[int] | None:
        """The axes along which results are means of elements of x, with weights that sum to one; None if it computes no means.

        Other axes are unchanged, so the result is x if the set is empty.
        """


def averaged_axes_of(op: Op) -> frozenset[int] | None:
    """The axes along which the results of an op are means of elements of its first input; None if it computes no means."""
    rule = rule_of(op)
    return rule.averaged_axes(op) if isinstance(rule, AveragingOp) else None


def shape_edits_of(op: Op, axis: int, extent: int) -> dict[int, dict[int, int]] | None:
    """Edits to the shape operands of an op when the extent of its first input along `axis` changes; None if it may not."""
    rule = rule_of(op)
    return rule.shape_edits(op, axis, extent) if isinstance(rule, ExtentChange) else None


# --- Folding of zero pads into ops that have pads as attributes ---


Pads: TypeAlias = dict[int, tuple[int, int]]
"""Numbers of elements added before and behind each axis; axes without pads are absent."""


class ZeroPadOp(ABC):
    """An op that may do nothing but pad its input with zeros."""

    @abstractmethod
    def zero_pads(self, op: Op) -> Pads | None:
        """The zeros added around the first input, on axes of known extent; None if the op does anything else."""


class PadFolding(ABC):
    """An op whose attributes can pad its first input with zeros."""

    @abstractmethod
    def fold_pads(self, op: Op, pads: Pads) -> dict[str, Attribute] | None:
        """The attributes with which the op pads with these zeros too; None if there are none."""


def zero_pads_of(op: Op) -> Pads | None:
    """The zeros that an op adds around its first input; None if it does anything else."""
    rule = rule_of(op)
    return rule.zero_pads(op) if isinstance(rule, ZeroPadOp) else None


def folded_pads(op: Op, pads: Pads) -> dict[str, Attribute] | None:
    """The attributes with which an op pads its first input with these zeros too; None if it cannot."""
    rule = rule_of(op)
    return rule.fold_pads(op, pads) if isinstance(rule, PadFolding) else None


# --- affine ---
#
# Per-channel affine maps: y = x * scale + shift, with numbers along one axis. BatchNormalization at inference is one.
#
# A rule may declare that its op *is* an affine map (`AffineOp`), and that its op can *fold* one into its constants
# (`AffineFolding`): a convolution whose output is scaled is the convolution with scaled weights. The arithmetic is done in
# float64 and rounded once.


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


# --- linear map ---
#
# Channel-wise linear maps: a 1x1 convolution and a product with a constant matrix are linear maps over one axis.
#
#     y[.., o, ..] = sum over c of matrix[o, c] * x[.., c, ..] + shift[o]      at every position of the other axes
#
# Such a map commutes with every op that makes each element of its result a mean of elements of x along other axes, with
# weights that sum to one: interpolation, average pooling. Both are linear, act on different axes, and a mean of equal shifts
# is the shift. A map of tensors concatenated along its axis is the sum of maps of the tensors.


@dataclass(frozen=True, slots=True, eq=False)
class LinearMap:
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

    def scaled(self, scale: Array, shift: Array) -> "LinearMap":
        """This map of x * scale + shift, both of shape (extent in the input,)."""
        return LinearMap(self.axis, self.matrix * scale, self.matrix @ shift + self.shift)

    def of_ranges(self, pieces: Sequence[tuple[int, int]]) -> "LinearMap":
        """The map restricted to concatenated ranges (start, stop) of the axis; the range that starts at 0 has the shift."""
        shift = self.shift if any(start == 0 for start, _ in pieces) else np.zeros_like(self.shift)
        return LinearMap(self.axis, np.concatenate([self.matrix[:, slice(*each)] for each in pieces], axis=1), shift)


class LinearMapOp(ABC):
    """An op that may be a linear map over one axis of its first input."""

    @abstractmethod
    def mapped_axis(self, op: Op) -> int | None:
        """The axis, by shapes and attributes alone; None if the op is no such map, or its matrix is not constant."""

    @abstractmethod
    def linear_map(self, op: Op) -> LinearMap | None:
        """The map; None if the op is none, or its numbers are not finite."""

    @abstractmethod
    def with_linear_map(self, op: Op, map: LinearMap) -> dict[int, Array] | None:
        """The constant inputs with which the op computes another map over the same axis; None if there are none."""


def mapped_axis_of(op: Op) -> int | None:
    """The axis over which an op is a linear map with a constant matrix; None if it is none."""
    rule = rule_of(op)
    return rule.mapped_axis(op) if isinstance(rule, LinearMapOp) else None


def linear_map_of(op: Op) -> LinearMap | None:
    """The linear map over one axis that an op is; None if it is none."""
    rule = rule_of(op)
    return rule.linear_map(op) if isinstance(rule, LinearMapOp) else None


def with_linear_map(op: Op, map: LinearMap) -> dict[int, Array] | None:
    """The constant inputs with which an op computes another linear map over the same axis; None if there are none."""
    rule = rule_of(op)
    return rule.with_linear_map(op, map) if isinstance(rule, LinearMapOp) else None


def add_sum(graph: Graph, one: Value, other: Value, type: TensorType | OpaqueType, stem: str, near: Op) -> Value:
    """Add an Add of two tensors of one shape right behind the op `near`; returns its output."""
    return graph.new_result("Add", (one, other), type, stem, near)


# --- Ops that read the type of an operand and none of its elements ---


class ShapeQuery:
    """The result of the op depends on the types of its inputs alone."""


# --- Numeric behaviour that verification depends on: saturating activations, quantisation, discontinuity ---
#
#     saturation      Sigmoid, Softmax        large differences of the input become small ones of the result
#     quantisation    QuantizeLinear          the result is rounded to integers of few bits
#     discontinuity   TopK, Floor, Greater    an arbitrarily small difference of the input may change the result
#
# Two versions of a model that differ in rounding are compared with equal results of discontinuous ops (`verification`).


_DISCONTINUOUS = frozenset(
    {"Ceil", "Floor", "Hardmax", "MaxRoiPool", "Mod", "Round", "Shrink", "Sign", "ThresholdedRelu"}
)
"""Op types with discontinuous floating-point results; ops with integer or boolean results are discontinuous too."""


class QuantizedOp:
    """The op converts to or from integers of few bits, or computes on such integers with their scales."""


class SaturatingActivation:
    """An activation function that may be bounded, such as Sigmoid, and so map large differences of its input to small ones.

    Verification compares its input. Clamping in quantisation is not meant.
    """

    def is_saturating_activation(self, op: Op) -> bool:
        """Whether this op saturates; true for all ops of the rule by default."""
        del op
        return True


def is_quantized(op: Op) -> bool:
    """Whether an op converts to or from integers of few bits, or computes on them."""
    return isinstance(rule_of(op), QuantizedOp)


def is_saturating_activation(op: Op) -> bool:
    """Whether an op maps large differences of its input to small ones."""
    rule = rule_of(op)
    return isinstance(rule, SaturatingActivation) and rule.is_saturating_activation(op)


def discontinuous_inputs(op: Op) -> list[Value]:
    """The floating-point inputs of a discontinuous op; none for other ops and for quantisation."""
    if isinstance(rule_of(op), ShapeQuery | QuantizedOp):
        return []
    has_integers = any(
        value.dtype is not None and not value.dtype.is_float for value in op.outputs if value is not None
    )
    if op.op_type not in _DISCONTINUOUS and not has_integers:
        return []
    return [value for value in op.inputs if value is not None and value.dtype is not None and value.dtype.is_float]
