"""The layout of matrix products: MatMul, Gemm.

    MatMul   a (..., M, K)   b (..., K, N)   ->   y (..., M, N)
    Gemm     a (M, K) or (K, M), b (K, N) or (N, K), c broadcast   ->   y (M, N)

Each operand has a format of its own, and every order of digits is legal; the target declares which of them its kernels read
and write by strides (`interfaces.contraction_modes`). Blocked formats are those of matrix units (FRACTAL_NZ); padding of K has
to be zero, because K is summed over.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from typing_extensions import override

from layoutopt.formats import Format
from layoutopt.ir.types import Array, DType, Op, Padding, Signature, Slot, Value
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import LayoutRule, add_rule, padded_axes_of, state_of
from layoutopt.ops.builder import OpBuilder
from layoutopt.ops.contraction import (
    A,
    B,
    ContractionModes,
    aligned_format,
    modes_of,
)
from layoutopt.ops.convolution import ConstantWeight, MixedAxes, padding_after_activation
from layoutopt.ops.interfaces import float_constant
from layoutopt.ops.signatures import (
    ANY,
    FINITE,
    PADDING_REFUSED,
    ZERO,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    States,
    X,
    Y,
    estimated_extent,
    format_text,
    present,
    rank_of,
    shape_of,
    signature_of,
    volume_of,
)


class ProductOfTwo(LayoutRule):
    """A product of two matrices, or of batches of them.

    Attributes:
        factors: the inputs that are a and b.
    """

    family = "matmul"
    required = (B,)
    has_independent_operands = True
    factors: ClassVar[tuple[int, int]] = (0, 1)

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        a, b = self.factors
        return {"a": Slot("in", a), "b": Slot("in", b), "y": Y}

    @override
    def inapplicability(self, op: Op) -> str:
        operands = map(op.operand, self.roles(op).values())
        return "an operand is no matrix" if min(map(rank_of, operands)) < 2 else ""

    @override
    def canonical_inputs(self, op: Op, build: OpBuilder) -> list[Value | None]:
        inputs, (first, second) = super().canonical_inputs(op, build), self.factors
        inputs[first], inputs[second] = _with_equal_ranks(build, present(inputs[first]), present(inputs[second]))
        return inputs

    @override
    def flops(self, op: Op) -> float:
        a = shape_of(op.inputs[self.factors[0]]) or (1,)
        summed = a[max(len(a) - 2, 0) if op.integer("transA") else -1]
        return 2.0 * volume_of(op.y) * estimated_extent(summed)


class MatrixProduct(ConstantWeight, ProductOfTwo):
    """A batch of matrix products, whose constant b absorbs affine maps. Each operand has a format of its own."""

    formats = "a format for each operand, in any order of any digits"
    padding = PaddingTransfer(ZERO, ANY, ANY, "zero for the summed axis")

    @override
    def inapplicability(self, op: Op) -> str:
        has_batch_behind = op.integer("transBatchA") or op.integer("transBatchB")
        return "its batch axes are between rows and columns" if has_batch_behind else super().inapplicability(op)

    def mixed_axes(self, op: Op) -> MixedAxes | None:
        """The last axis of a, if b is one matrix."""
        last = rank_of(op.x) - 1
        if rank_of(op.inputs[1]) != 2 or op.integer("transA"):
            return None
        return (last, 1, 0) if op.integer("transB") else (last, 0, 1)

    def mapped_axis(self, op: Op) -> int | None:
        """The last axis of a, if b is one constant matrix."""
        axes = self.mixed_axes(op)
        is_map = self.is_linear and present(op.inputs[1]).is_constant and rank_of(op.x) > 1
        return axes[0] if is_map and axes is not None else None

    def axes(self, op: Op) -> Axes:
        """Batches from the right, then rows, columns and the summed axis, which follows the axes of the result."""
        rank_a, rank_b, rank = (rank_of(op.operand(slot)) for slot in (A, B, Y))
        row, column, summed = rank - 2, rank - 1, rank
        a, b = (row, summed), (summed, column)
        return {
            A: (*range(rank - rank_a, rank - 2), *(a[::-1] if op.integer("transA") else a)),
            B: (*range(rank - rank_b, rank - 2), *(b[::-1] if op.integer("transB") else b)),
            Y: tuple(range(rank)),
        }

    def iteration_axes(self, op: Op) -> Axes | Inapplicable:
        """The axes, or the reason why there are none, for any op."""
        reason = self.canonical_reason(op)
        return Inapplicable(reason) if reason else self.axes(op)

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The known formats, canonical for the other operands.

        If one operand is a matrix without shared batches, the result takes the order of axes of the other operand, and so does
        the matrix if it is a constant.
        """
        axes, shapes = self.axes(op), {slot: shape_of(op.operand(slot)) for slot in (A, B, Y)}
        formats = {slot: Format.canonical(len(shape)) for slot, shape in shapes.items()} | dict(known)
        shared = min(len(shapes[A]), len(shapes[B])) - 2
        single = [slot for slot in (B, A) if all(dim == 1 for dim in shapes[slot][-2 - shared : -2])]
        constants = {slot for slot in single if present(op.operand(slot)).is_constant}
        matrix = next((slot for slot in single if slot in constants or not constants), None)
        if matrix is not None:
            data = A if matrix == B else B
            source = next((slot for slot in (data, Y) if slot in known), data)
            format, shape = known.get(source), shapes[source]
            if format is not None and format.fits(shape) and not format.has_padding(shape):
                slots = (data, Y, matrix) if constants else (data, Y)
                others = [slot for slot in slots if slot not in known]
                formats |= {slot: aligned_format(format, source, slot, axes, shapes[slot]) for slot in others}
        return signature_of(op, formats)

    def misfit(self, op: Op, signature: Signature) -> str:
        """The reason if an operand would have padding of batch axes."""
        for slot in (A, B, Y):
            value, storage = op.operand(slot), signature[slot]
            if storage is not None and any(axis < rank_of(value) - 2 for axis in padded_axes_of(value, storage)):
                return f"{slot} would have padding in {format_text(op, slot, storage.format)}"
        return ""

    @override
    def is_transposed(self, op: Op, slot: Slot) -> bool:
        return bool(op.integer({A: "transA", B: "transB"}.get(slot, "")))

    def modes(self, op: Op, formats: OperandFormats) -> ContractionModes | None:
        """The modes of the iteration axes."""
        axes = self.iteration_axes(op)
        if isinstance(axes, Inapplicable) or not axes.keys() <= formats.keys():
            return None
        return modes_of(tuple((slot, own, formats[slot], shape_of(op.operand(slot))) for slot, own in axes.items()))

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The transfer of rows and columns; padding of K is summed, so it must be finite and multiplied by zeros."""
        if any(inputs[2:]):
            return None
        axes, summed = self.axes(op), rank_of(op.outputs[0])
        padded = {
            axes[slot][axis]
            for slot in (A, B)
            if inputs[slot.index] is not ZERO
            for axis in padded_axes_of(op.operand(slot), signature[slot])
        }
        if summed in padded and (ZERO not in inputs[:2] or ANY in inputs[:2]):
            return None
        return super().result_padding(op, signature, inputs) if padded - {summed} else ZERO


class BiasedMatrixProduct(MatrixProduct):
    """One product with a bias, and perhaps an activation. Its b and bias absorb affine maps."""

    ops = ("Gemm",)
    padding = PaddingTransfer(ZERO, ANY, ANY, "zero for the summed axis; that of the bias where it broadcasts")

    def mixed_axes(self, op: Op) -> MixedAxes | None:
        """The last axis of a, if alpha and beta are 1."""
        is_plain = op.attributes.get("beta", 1.0) == 1.0 and op.attributes.get("alpha", 1.0) == 1.0
        return super().mixed_axes(op) if is_plain else None

    def mapped_axis(self, op: Op) -> int | None:
        """The columns, if the bias has one number per column."""
        c = op.input(2)
        is_vector = c is None or (c.data is not None and all(dim == 1 for dim in shape_of(c)[:-1]))
        return super().mapped_axis(op) if is_vector else None

    @override
    def constant_bias(self, op: Op, extent: int) -> Array | None:
        return np.zeros(extent) if op.input(2) is None else float_constant(op, 2)

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """Padding of rows or columns is the bias where the bias broadcasts along them, behind the activation."""
        state, c = super().result_padding(op, signature, inputs), op.input(2)
        if state is ZERO and c is not None:
            full = {axis + 2 - rank_of(c) for axis, dim in enumerate(shape_of(c)) if dim != 1}
            if not full.issuperset(padded_axes_of(op.outputs[0], signature.outputs[0])):
                state = FINITE if c.data is None else state_of(c.data.numpy())
        return None if state is None else padding_after_activation(op, state)


def _with_equal_ranks(build: OpBuilder, a: Value, b: Value) -> tuple[Value, Value]:
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


add_rule(MatrixProduct("MatMul", has_bias=False))
add_rule(BiasedMatrixProduct())

# Fused matrix products of onnxruntime: transposed operands, a factor, an activation.
#
#     FusedMatMul   y = alpha * a' b'          ' swaps the last two axes of an operand, if its attribute is set
#     FusedGemm     y = activation(alpha * a' b' + beta * c)
#
# Attributes stay as they are, so only canonical matrices are the same op. TransposeMatMul is an older name of FusedMatMul.
_FUSED = ("com.microsoft::FusedMatMul", "com.microsoft::TransposeMatMul")
add_rule(MatrixProduct(*_FUSED, has_bias=False, is_linear=False))
add_rule(BiasedMatrixProduct("com.microsoft::FusedGemm", has_activation=True, is_linear=False))

# --- Matrix products of integers: QLinearMatMul, MatMulInteger, QGemm ---
#
#     y = saturate(round(sum (a - a_zero) * (b - b_zero) * a_scale * b_scale / y_scale) + y_zero)
#


class IntegerProduct(ProductOfTwo):
    """The layout of products of integers. Every operand has a format of its own; blocks have no padding."""

    is_quantized = True
    formats = "any; matrices may be blocked where they fill their blocks"
    padding = PADDING_REFUSED

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The known formats, canonical for the other operands."""
        for slot, format in known.items():
            if slot not in self.roles(op).values():
                return Inapplicable(f"{slot} is not a matrix")
            if any(axis < format.rank - 2 for axis in format.blocked_axes):
                return Inapplicable("a batch axis cannot be blocked")
        return signature_of(op, known)


add_rule(IntegerProduct("QLinearMatMul", "com.microsoft::QGemm", factors=(0, 3)))
add_rule(IntegerProduct("MatMulInteger"))


# Rows times a matrix in a kernel-specific packing, or rows that are quantised with one scale.
add_rule(
    ProductOfTwo(
        *("com.microsoft::DynamicQuantizeMatMul", "com.microsoft::MatMulBnb4", "com.microsoft::MatMulIntegerToFloat"),
        "com.microsoft::MatMulNBits",
        family="packed_matmul",
        formats="canonical",
        padding=PADDING_REFUSED,
        has_independent_operands=False,
        is_quantized=True,
        roles=lambda op: {"x": X, "y": Y},
    )
)
