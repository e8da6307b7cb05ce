"""The layout of matrix products: MatMul, Gemm.

    MatMul   a (..., M, K)   b (..., K, N)   ->   y (..., M, N)
    Gemm     a (M, K) or (K, M), b (K, N) or (N, K), c broadcast   ->   y (M, N)

Each operand has a format of its own, and every order of digits is legal; the target declares which of them its kernels read
and write by strides (`interfaces.contraction_modes`). Blocked formats are those of matrix units (FRACTAL_NZ); padding of K has
to be zero, because K is summed over.

Axes outside of the matrices may be in any order that is the same in all operands: interleaved windows of rows are rows of one
large matrix if b has no batches (`collapsed_batch`).
"""

from collections.abc import Collection
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from typing_extensions import override

from layoutopt.formats import Shape
from layoutopt.ir.types import Array, DType, Op, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import Builder, padded_axes_of, register, state_of
from layoutopt.ops.contraction import A, B, CollapsedBatch, Contraction, collapse_batch
from layoutopt.ops.convolution import padding_after_activation
from layoutopt.ops.interfaces import Affine, AffineFolding, KernelFormats, LinearMap, LinearMapOp, Side, float_constant
from layoutopt.ops.signatures import (
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    Y,
    chosen_signature,
    estimated_extent,
    estimated_volume,
    is_canonical,
    padded_output,
    present,
    present_type,
    rank_of,
    shape_of,
)

C = Slot("in", 2)


class MatrixProduct(Contraction, KernelFormats):
    """The layout of a batch of matrix products."""

    padding = PaddingTransfer(Padding.ZERO, Padding.ANY, Padding.ANY, "zero for the summed axis")
    ranks = MappingProxyType({A: 2, B: 2, Y: 2})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Batches from the right, then rows, columns and the summed axis."""
        a, b, y = (shape_of(op.operand(slot)) for slot in (A, B, Y))
        c = op.inputs[2] if len(op.inputs) > 2 else None
        if c is not None and c.static_shape is None:
            return Inapplicable("the shape of the bias is unknown")
        return _axes_of(a, b, y, bool(op.integer("transA")), bool(op.integer("transB")))

    @override
    def padded_axes(self, op: Op, slot: Slot) -> Collection[int]:
        rank = rank_of(op.operand(slot))
        return range(rank - 2, rank)

    def kernel_formats(self, op: Op, formats: OperandFormats) -> OperandFormats:
        """The formats with collapsed axes in logical order."""
        collapsed = self._collapsed(op, formats)
        return {**formats, **collapsed.formats} if collapsed is not None and collapsed.has_uniform_batch else formats

    def _collapsed(self, op: Op, formats: OperandFormats) -> CollapsedBatch | None:
        """The product without its batches, and without its rows if b is one matrix; None if these are not outermost."""
        axes = self.iteration_axes(op)
        if isinstance(axes, Inapplicable):
            return None
        shapes = {slot: value.shape or () for slot in axes if (value := op.operand(slot)) is not None}
        batches = range(len(axes[Y]) - 2)
        if all(dim == 1 for dim in shapes[B][:-2]):
            collapsed = collapse_batch(axes, formats, shapes, range(len(axes[Y]) - 1))
            if collapsed is not None:
                return collapsed
        return collapse_batch(axes, formats, shapes, batches)

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether the matrices are canonical after batches are collapsed."""
        known = {slot: storage.format for slot in op.slots() if (storage := signature[slot]) is not None}
        collapsed = self._collapsed(op, known)
        return collapsed is not None and all(format.is_canonical for format in collapsed.formats.values())

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer of rows and columns; padding of K is summed, so it must be finite and multiplied by zeros."""
        if any(inputs[2:]):
            return None
        summed, outside = False, False
        for index, (name, position) in enumerate((("transA", 1), ("transB", 0))):
            value = op.inputs[index]
            axis, padded = (
                operand_axes(op, name, rank_of(value))[position],
                padded_axes_of(value, signature.inputs[index]),
            )
            if inputs[index] is not Padding.ZERO:
                summed = summed or axis in padded
                outside = outside or any(each != axis for each in padded)
        if summed and (Padding.ZERO not in inputs[:2] or Padding.ANY in inputs[:2]):
            return None
        return super().transfer_padding(op, signature, inputs) if outside else (Padding.ZERO,)

    def lower(self, op: Op, build: Builder) -> None:
        """The same op on the collapsed arrays, or the canonical op on padded matrices of equal extents."""
        signature = chosen_signature(op)
        if self.is_layout_agnostic(op, signature) and not is_canonical(signature):
            self._lower_collapsed(op, build)
            return
        a, b, y_type = present(build.padded(0)), present(build.padded(1)), padded_output(op)
        a, b = _with_equal_ranks(build, *self._with_matching_extents(op, build, a, b, shape_of(y_type)))
        c = build.padded(2) if len(op.inputs) > 2 else None
        inputs: list[Value | None] = [a, b]
        if c is not None:
            inputs.append(self._matching_bias(op, build, c, shape_of(y_type)))
        types: list[TensorType | None] = [y_type]
        (result,) = build.op(op.op_type, inputs, types, op.attributes)
        build.set_padded_output(0, result)

    def _lower_collapsed(self, op: Op, build: Builder) -> None:
        """The product of the physical arrays, with extents of 1 where an operand lacks a collapsed axis."""
        formats = {slot: build.format(slot) for slot in (A, B, Y)}
        collapsed, axes, target = self._collapsed(op, formats), self.axes(op), present_type(build.output_type(0))
        assert collapsed is not None and not isinstance(axes, Inapplicable)
        operands: list[Value | None] = []
        for slot in (A, B):
            shape = collapsed.shape(axes[slot], shape_of(op.operand(slot)))
            operands.append(build.reshape(present(build.input(slot.index)), shape))
        type = TensorType(target.dtype, collapsed.shape(axes[Y], shape_of(op.outputs[0])))
        (result,) = build.op("MatMul", operands, [type], op.attributes)
        build.set_output(0, result)

    def _with_matching_extents(self, op: Op, build: Builder, a: Value, b: Value, y: Shape) -> tuple[Value, Value]:
        """The operands with the same K, and with M and N of the result."""
        (m, ka), (kb, n) = operand_axes(op, "transA", rank_of(a)), operand_axes(op, "transB", rank_of(b))
        if shape_of(a)[ka] != shape_of(b)[kb]:
            a, b = self._without_padding(op, build, 0, a, ka), self._without_padding(op, build, 1, b, kb)
        if shape_of(a)[m] != y[-2] and isinstance(y[-2], int):
            a = build.resize_axis(a, m, y[-2])
        if shape_of(b)[n] != y[-1] and isinstance(y[-1], int):
            b = build.resize_axis(b, n, y[-1])
        return a, b

    def _without_padding(self, op: Op, build: Builder, index: int, value: Value, axis: int) -> Value:
        """The value without the padding of one axis."""
        dim = shape_of(op.inputs[index])[axis]
        return build.resize_axis(value, axis, dim) if isinstance(dim, int) else value

    def _matching_bias(self, op: Op, build: Builder, c: Value, y: Shape) -> Value:
        """The bias, padded where it does not broadcast, cut where it does."""
        for axis, dim in enumerate(shape_of(op.inputs[2])):
            target = y[len(y) - rank_of(c) + axis] if dim != 1 else 1
            if isinstance(target, int):
                c = build.resize_axis(c, axis, target)
        return c

    @override
    def flops(self, op: Op) -> float:
        a, y = op.inputs[0], op.outputs[0]
        if a is None or y is None or not a.shape or y.shape is None:
            return 0.0
        return 2.0 * estimated_volume(y.shape) * estimated_extent(a.shape[-2 if op.integer("transA") else -1])


class BiasedMatrixProduct(MatrixProduct):
    """The layout of one product with a bias; transA and transB are attributes."""

    padding = PaddingTransfer(
        Padding.ZERO,
        Padding.ANY,
        Padding.ANY,
        "zero for the summed axis; that of the bias where it broadcasts",
    )

    def _collapsed(self, op: Op, formats: OperandFormats) -> CollapsedBatch | None:
        """None: Gemm accepts matrices only, and its bias may have rows."""
        del op, formats
        return None

    @override
    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        return is_canonical(signature)

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Padding of rows or columns is the bias where the bias broadcasts along them."""
        states = super().transfer_padding(op, signature, inputs)
        c = op.inputs[2] if len(op.inputs) > 2 else None
        if states != (Padding.ZERO,) or c is None or c.shape is None:
            return states
        full = {axis + 2 - len(c.shape) for axis, dim in enumerate(c.shape) if dim != 1}
        if full.issuperset(padded_axes_of(op.outputs[0], signature.outputs[0])):
            return (Padding.ZERO,)
        return (Padding.FINITE if c.data is None else state_of(c.data.numpy()),)


def operand_axes(op: Op, transposed: str, rank: int) -> tuple[int, int]:
    """The row and column axes of an operand as the product reads it; attribute `transposed` swaps them."""
    return (rank - 1, rank - 2) if op.integer(transposed) else (rank - 2, rank - 1)


def _with_equal_ranks(build: Builder, a: Value, b: Value) -> tuple[Value, Value]:
    """The operands reshaped to equal ranks if they are float16, because onnxruntime 1.31 crashes otherwise.

    The crash is on a Transpose in front of the operand of larger rank; `dialects.passes.equalize_matmul_ranks` handles a
    Transpose that belongs to another op.
    """
    if a.dtype is not DType.FLOAT16 or a.shape is None or b.shape is None:
        return a, b
    rank = max(len(a.shape), len(b.shape))
    one, other = (
        build.reshape(value, (1,) * (rank - len(value.shape or ())) + (value.shape or ())) for value in (a, b)
    )
    return one, other


@lru_cache(maxsize=1 << 12)
def _axes_of(a: Shape, b: Shape, y: Shape, is_a_transposed: bool, is_b_transposed: bool) -> Axes | Inapplicable:
    """The iteration axes: those of the result, followed by the summed axis."""
    rank = len(y)
    row, column, summed = rank - 2, rank - 1, rank
    axes = {
        A: (*range(rank - len(a), rank - 2), *((summed, row) if is_a_transposed else (row, summed))),
        B: (*range(rank - len(b), rank - 2), *((column, summed) if is_b_transposed else (summed, column))),
        Y: tuple(range(rank)),
    }
    if a[axes[A].index(row)] != y[row] or b[axes[B].index(column)] != y[column]:
        return Inapplicable("rows and columns of the operands may differ from those of the result")
    return axes


# --- matmul ---
#
# MatMul and Gemm: matrix products that fold affine maps into a constant matrix, and may be linear maps over one axis.


class ScaleFoldingProduct(MatrixProduct, AffineFolding):
    """A product whose constant b absorbs scales."""

    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """A scale along K of a, or along N of the result, is folded into b."""
        weight, x = float_constant(op, 1), op.inputs[0]
        if weight is None or weight.ndim != 2 or x is None or x.rank is None or not affine.is_scale_only:
            return None
        (k, n), rank = operand_axes(op, "transB", 2), x.rank
        if affine.axis not in (None, rank - 1) or op.integer("transA"):
            return None
        axis = n if side == "out" else k
        scale, _ = affine.broadcast_to(weight.shape[axis])
        weight *= scale if axis else scale[:, None]
        return {1: weight}


@register
class MatMul(ScaleFoldingProduct, LinearMapOp):
    """A batch of products."""

    ops = ("MatMul",)

    @override
    def mapped_axis(self, op: Op) -> int | None:
        return _matrix_axis(op)

    @override
    def linear_map(self, op: Op) -> LinearMap | None:
        weight, axis = float_constant(op, 1), self.mapped_axis(op)
        return None if weight is None or axis is None else LinearMap(axis, weight.T, np.zeros(weight.shape[1]))

    @override
    def with_linear_map(self, op: Op, map: LinearMap) -> dict[int, Array] | None:
        return None if map.shift.any() else {1: map.matrix.T}


class AffineFoldingProduct(BiasedMatrixProduct, AffineFolding):
    """A product whose constant b and bias absorb affine maps."""

    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """Scales are folded into b, shifts into the bias."""
        weight = float_constant(op, 1)
        c = float_constant(op, 2) if len(op.inputs) > 2 and op.inputs[2] is not None else np.zeros(1)
        if weight is None or c is None or affine.axis not in (None, 1) or op.integer("transA"):
            return None
        if op.attributes.get("beta", 1.0) != 1.0 or op.attributes.get("alpha", 1.0) != 1.0:
            return None
        k, n = operand_axes(op, "transB", 2)
        scale, shift = affine.broadcast_to(weight.shape[n if side == "out" else k])
        bias = c * scale + shift if side == "out" else c + shift @ (weight if k == 0 else weight.T)
        weight *= scale if (n if side == "out" else k) else scale[:, None]
        return {1: weight, 2: bias}


@register
class Gemm(AffineFoldingProduct, LinearMapOp):
    """One product with a bias."""

    ops = ("Gemm",)

    def mapped_axis(self, op: Op) -> int | None:
        """The columns, if alpha and beta are 1 and the bias has one number per column."""
        c = op.inputs[2] if len(op.inputs) > 2 else None
        rows = c.shape[:-1] if c is not None and c.shape is not None else ()
        plain = op.attributes.get("beta", 1.0) == 1.0 and op.attributes.get("alpha", 1.0) == 1.0
        constant = c is None or (c.data is not None and all(dim == 1 for dim in rows))
        return _matrix_axis(op) if plain and constant and not op.integer("transA") else None

    @override
    def linear_map(self, op: Op) -> LinearMap | None:
        weight = float_constant(op, 1)
        c = float_constant(op, 2) if len(op.inputs) > 2 and op.inputs[2] is not None else np.zeros(1)
        if weight is None or c is None or self.mapped_axis(op) is None:
            return None
        matrix = weight if op.integer("transB") else weight.T
        return LinearMap(1, matrix, np.broadcast_to(c.reshape(-1), matrix.shape[:1]))

    @override
    def with_linear_map(self, op: Op, map: LinearMap) -> dict[int, Array] | None:
        bias = {2: map.shift} if map.shift.any() or (len(op.inputs) > 2 and op.inputs[2] is not None) else {}
        return {1: map.matrix if op.integer("transB") else map.matrix.T, **bias}


def _matrix_axis(op: Op) -> int | None:
    """The last axis of a, if b is one constant matrix."""
    x, weight = op.inputs[0], op.inputs[1]
    if x is None or x.rank is None or x.rank < 2 or weight is None or weight.data is None or weight.rank != 2:
        return None
    return x.rank - 1


# --- Fused matrix products of onnxruntime: transposed operands, a factor, an activation ---
#
#     FusedMatMul   y = alpha * a' b'          ' swaps the last two axes of an operand, if its attribute is set
#     FusedGemm     y = activation(alpha * a' b' + beta * c)
#
# Attributes stay as they are, so only canonical matrices are the same op.


@register
class FusedMatMul(ScaleFoldingProduct):
    """A product with a factor and transpositions as attributes."""

    ops = ("com.microsoft::FusedMatMul",)

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        if op.integer("transBatchA") or op.integer("transBatchB"):
            return Inapplicable("its batch axes are between rows and columns")
        return super().axes(op)

    @override
    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        return is_canonical(signature)


@register
class TransposeMatMul(FusedMatMul):
    """The older name of FusedMatMul."""

    ops = ("com.microsoft::TransposeMatMul",)


@register
class FusedGemm(AffineFoldingProduct):
    """FusedGemm: an affine map of its output cannot be folded, because the activation comes first."""

    ops = ("com.microsoft::FusedGemm",)
    padding = PaddingTransfer(Padding.ZERO, Padding.ANY, Padding.ANY, "the activation of zero and the bias")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The activation of the padding that Gemm leaves."""
        states = super().transfer_padding(op, signature, inputs)
        return None if states is None else (padding_after_activation(op, states[0]),)

    @override
    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        return super().fold_affine(op, affine, side) if side == "in" else None
