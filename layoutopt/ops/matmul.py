"""Matrix products: MatMul, Gemm.

    MatMul   a (..., M, K)   b (..., K, N)   ->   y (..., M, N)
    Gemm     a (M, K) or (K, M), b (K, N) or (N, K), c broadcast   ->   y (M, N)

Each operand has a format of its own, and any order of any digits is a legal one; which of them a kernel reads and writes
as they lie is for the target to say (`ops.contraction`). Blocked ones are those of matrix units (FRACTAL_NZ); the lanes
of K have to be zero, since it is summed over.

What lies outside of the matrices does not matter as long as it is the same in all operands: windows of rows that are
interleaved with each other are rows of one large matrix all the same, if b is one matrix.
"""

from collections.abc import Collection
from functools import lru_cache

import numpy as np

from layoutopt.formats import Shape
from layoutopt.ir.types import Array, DType, Lanes, Op, Signature, Slot, TensorType, Value
from layoutopt.ops.affine import Affine, float_constant
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import Builder, Side, register
from layoutopt.ops.channel_map import ChannelMap
from layoutopt.ops.contraction import A, B, Contraction
from layoutopt.ops.lanes import laned_axes, state_of
from layoutopt.ops.passage import Passage
from layoutopt.ops.peeled import Peeled, peeled
from layoutopt.ops.signatures import Inapplicable, Known, Y, elements, extent, is_canonical, padded_type

C = Slot("in", 2)


@register
class MatMul(Contraction):
    """A batch of products."""

    ops = ("MatMul",)
    becomes = Passage(Lanes.ZERO, Lanes.ANY, Lanes.ANY, "zero where it is summed over")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Batches from the right, then rows, columns, and what is summed."""
        a, b, y = (value.shape if value is not None else None for value in (*op.inputs[:2], op.outputs[0]))
        if a is None or b is None or y is None or min(len(a), len(b), len(y)) < 2:
            return Inapplicable("an operand is not known to be a matrix")
        c = op.inputs[2] if len(op.inputs) > 2 else None
        if c is not None and c.static_shape is None:
            return Inapplicable("the shape of the bias is unknown")
        return _axes_of(a, b, y, bool(op.integer("transA")), bool(op.integer("transB")))

    def padded_axes(self, op: Op, slot: Slot) -> Collection[int]:
        """Rows and columns."""
        value = op.operand(slot)
        assert value is not None and value.rank is not None
        return range(value.rank - 2, value.rank)

    def kernel_formats(self, op: Op, formats: Known) -> Known:
        """Canonical order for what lies outside of the matrices."""
        core = self._core(op, formats)
        return {**formats, **core.formats} if core is not None and core.is_whole else formats

    def _core(self, op: Op, formats: Known) -> Peeled | None:
        """The product without its batches, and without its rows if b is one matrix; None if these do not lie outside."""
        axes = self.axes(op)
        if isinstance(axes, Inapplicable):
            return None
        shapes = {slot: value.shape or () for slot in axes if (value := op.operand(slot)) is not None}
        batches = range(len(axes[Y]) - 2)
        if all(dim == 1 for dim in shapes[B][:-2]):
            core = peeled(axes, formats, shapes, range(len(axes[Y]) - 1))
            if core is not None:
                return core
        return peeled(axes, formats, shapes, batches)

    def is_direct(self, op: Op, signature: Signature) -> bool:
        """Where the matrices are canonical, whatever lies outside of them."""
        known = {slot: storage.format for slot in op.slots() if (storage := signature[slot]) is not None}
        core = self._core(op, known)
        return core is not None and all(format.is_canonical for format in core.formats.values())

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Garbage in rows and columns is garbage there; where it is summed over, it has to meet zeros, and be finite."""
        if any(inputs[2:]):
            return None
        summed, outside = False, False
        for index, (name, place) in enumerate((("transA", 1), ("transB", 0))):
            value = op.inputs[index]
            assert value is not None and value.rank is not None
            axis, laned = self._axes(op, name, value.rank)[place], laned_axes(value, signature.inputs[index])
            if inputs[index] is not Lanes.ZERO:
                summed = summed or axis in laned
                outside = outside or any(each != axis for each in laned)
        if summed and (Lanes.ZERO not in inputs[:2] or Lanes.ANY in inputs[:2]):
            return None
        return (Lanes.ANY if outside else Lanes.ZERO,)

    def lower(self, op: Op, build: Builder) -> None:
        """The same op on the arrays, or the canonical one on padded matrices, brought to the same extents."""
        assert op.signature is not None
        if self.is_direct(op, op.signature) and not is_canonical(op.signature):
            self._lower_core(op, build)
            return
        a, b = build.padded(0), build.padded(1)
        y_type = padded_type(op.outputs[0], op.signature.outputs[0])
        assert a is not None and b is not None and y_type is not None and y_type.shape is not None
        a, b = _of_even_rank(build, *self._match(op, build, a, b, y_type.shape))
        c = build.padded(2) if len(op.inputs) > 2 else None
        inputs: list[Value | None] = [a, b]
        if c is not None:
            inputs.append(self._match_bias(op, build, c, y_type.shape))
        types: list[TensorType | None] = [y_type]
        (result,) = build.op(op.op_type, inputs, types, op.attributes)
        build.set_padded_output(0, result)

    def _lower_core(self, op: Op, build: Builder) -> None:
        """The product of the physical arrays, with extents of 1 where an operand does not have what is outside."""
        formats = {slot: build.format(slot) for slot in (A, B, Y)}
        core, axes, target = self._core(op, formats), self.axes(op), build.output_type(0)
        assert core is not None and not isinstance(axes, Inapplicable) and target is not None
        operands: list[Value | None] = []
        for slot in (A, B):
            value, logical = build.input(slot.index), op.inputs[slot.index]
            assert value is not None and logical is not None and logical.shape is not None
            operands.append(build.reshape(value, core.shape(axes[slot], logical.shape)))
        y = op.outputs[0]
        assert y is not None and y.shape is not None
        type = TensorType(target.dtype, core.shape(axes[Y], y.shape))
        (result,) = build.op("MatMul", operands, [type], op.attributes)
        build.set_output(0, result)

    def _match(self, op: Op, build: Builder, a: Value, b: Value, y: Shape) -> tuple[Value, Value]:
        """Give both operands the same K, and the M and N of the result."""
        assert a.shape is not None and b.shape is not None
        (m, ka), (kb, n) = self._axes(op, "transA", len(a.shape)), self._axes(op, "transB", len(b.shape))
        if a.shape[ka] != b.shape[kb]:
            a, b = self._cut(op, build, 0, a, ka), self._cut(op, build, 1, b, kb)
        if a.shape is not None and a.shape[m] != y[-2] and isinstance(y[-2], int):
            a = build.resize_axis(a, m, y[-2])
        if b.shape is not None and b.shape[n] != y[-1] and isinstance(y[-1], int):
            b = build.resize_axis(b, n, y[-1])
        return a, b

    def _cut(self, op: Op, build: Builder, index: int, value: Value, axis: int) -> Value:
        """Without the lanes of one axis."""
        logical = op.inputs[index]
        assert logical is not None and logical.shape is not None
        dim = logical.shape[axis]
        return build.resize_axis(value, axis, dim) if isinstance(dim, int) else value

    def _axes(self, op: Op, transposed: str, rank: int) -> tuple[int, int]:
        """The row and column axes of an operand as the product reads it."""
        return (rank - 1, rank - 2) if op.integer(transposed) else (rank - 2, rank - 1)

    def _match_bias(self, op: Op, build: Builder, c: Value, y: Shape) -> Value:
        """Pad the bias where it does not broadcast, cut it where it does."""
        logical = op.inputs[2]
        assert logical is not None and logical.shape is not None and c.shape is not None
        for axis in range(len(c.shape)):
            target = y[len(y) - len(c.shape) + axis] if logical.shape[axis] != 1 else 1
            if isinstance(target, int):
                c = build.resize_axis(c, axis, target)
        return c

    def absorb(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """A scale along K of a, or along N of the result, goes into a constant b."""
        weight, x = float_constant(op, 1), op.inputs[0]
        if weight is None or weight.ndim != 2 or x is None or x.rank is None or not affine.only_scales:
            return None
        (k, n), rank = self._axes(op, "transB", 2), x.rank
        if affine.axis not in (None, rank - 1) or op.integer("transA"):
            return None
        axis = n if side == "out" else k
        scale, _ = affine.along(weight.shape[axis])
        return {1: weight * (scale if axis else scale[:, None])}

    def mapped_axis(self, op: Op) -> int | None:
        """The last one, if b is one constant matrix."""
        x, weight = op.inputs[0], op.inputs[1]
        if x is None or x.rank is None or x.rank < 2 or weight is None or weight.data is None or weight.rank != 2:
            return None
        return x.rank - 1

    def channel_map(self, op: Op) -> ChannelMap | None:
        """The matrix."""
        weight, axis = float_constant(op, 1), self.mapped_axis(op)
        return None if weight is None or axis is None else ChannelMap(axis, weight.T, np.zeros(weight.shape[1]))

    def with_channel_map(self, op: Op, map: ChannelMap) -> dict[int, Array] | None:
        """The matrix; there is no place for a shift."""
        return None if map.shift.any() else {1: map.matrix.T}

    def flops(self, op: Op) -> float:
        """Two per element of the result and of K."""
        a, y = op.inputs[0], op.outputs[0]
        if a is None or y is None or not a.shape or y.shape is None:
            return 0.0
        return 2.0 * elements(y.shape) * extent(a.shape[0 if op.integer("transA") else -1])


def _of_even_rank(build: Builder, a: Value, b: Value) -> tuple[Value, Value]:
    """Two operands of float16 with as many axes: onnxruntime does not survive a Transpose in front of one that has more.

    See `dialects.passes.equalize_matmul_ranks`, which does the same where what stands in front belongs to another op.
    """
    if a.dtype is not DType.FLOAT16 or a.shape is None or b.shape is None:
        return a, b
    rank = max(len(a.shape), len(b.shape))
    one, other = (
        build.reshape(value, (1,) * (rank - len(value.shape or ())) + (value.shape or ())) for value in (a, b)
    )
    return one, other


@lru_cache(maxsize=1 << 12)
def _axes_of(a: Shape, b: Shape, y: Shape, a_swapped: bool, b_swapped: bool) -> Axes | Inapplicable:
    """The iteration axes: those of the result, and behind them what is summed."""
    rank = len(y)
    row, column, summed = rank - 2, rank - 1, rank
    axes = {
        A: (*range(rank - len(a), rank - 2), *((summed, row) if a_swapped else (row, summed))),
        B: (*range(rank - len(b), rank - 2), *((column, summed) if b_swapped else (summed, column))),
        Y: tuple(range(rank)),
    }
    if a[axes[A].index(row)] != y[row] or b[axes[B].index(column)] != y[column]:
        return Inapplicable("rows and columns of the operands are not known to be those of the result")
    return axes


@register
class Gemm(MatMul):
    """One product with a bias; transA and transB are attributes."""

    ops = ("Gemm",)
    becomes = Passage(Lanes.ZERO, Lanes.ANY, Lanes.ANY, "zero where it is summed over; of the bias where it broadcasts")

    def _core(self, op: Op, formats: Known) -> Peeled | None:
        """Not looked for: Gemm takes matrices only, and its bias may have rows."""
        del op, formats
        return None

    def is_direct(self, op: Op, signature: Signature) -> bool:
        """In canonical order alone."""
        return is_canonical(signature)

    def absorb(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """As for MatMul, and what is added goes into the bias."""
        weight = float_constant(op, 1)
        c = float_constant(op, 2) if len(op.inputs) > 2 and op.inputs[2] is not None else np.zeros(1)
        if weight is None or c is None or affine.axis not in (None, 1) or op.integer("transA"):
            return None
        if op.attributes.get("beta", 1.0) != 1.0 or op.attributes.get("alpha", 1.0) != 1.0:
            return None
        k, n = self._axes(op, "transB", 2)
        scale, shift = affine.along(weight.shape[n if side == "out" else k])
        if side == "out":
            return {1: weight * (scale if n else scale[:, None]), 2: c * scale + shift}
        added = shift @ (weight if k == 0 else weight.T)
        return {1: weight * (scale if k else scale[:, None]), 2: c + added}

    def mapped_axis(self, op: Op) -> int | None:
        """The columns, if nothing else is done and the bias has one number per column."""
        c = op.inputs[2] if len(op.inputs) > 2 else None
        rows = c.shape[:-1] if c is not None and c.shape is not None else ()
        plain = op.attributes.get("beta", 1.0) == 1.0 and op.attributes.get("alpha", 1.0) == 1.0
        constant = c is None or (c.data is not None and all(dim == 1 for dim in rows))
        return super().mapped_axis(op) if plain and constant and not op.integer("transA") else None

    def channel_map(self, op: Op) -> ChannelMap | None:
        """The matrix and the bias."""
        weight = float_constant(op, 1)
        c = float_constant(op, 2) if len(op.inputs) > 2 and op.inputs[2] is not None else np.zeros(1)
        if weight is None or c is None or self.mapped_axis(op) is None:
            return None
        matrix = weight if op.integer("transB") else weight.T
        return ChannelMap(1, matrix, np.broadcast_to(c.reshape(-1), matrix.shape[:1]))

    def with_channel_map(self, op: Op, map: ChannelMap) -> dict[int, Array] | None:
        """The matrix and the bias."""
        bias = {2: map.shift} if map.shift.any() or (len(op.inputs) > 2 and op.inputs[2] is not None) else {}
        return {1: map.matrix if op.integer("transB") else map.matrix.T, **bias}

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Lanes of rows or columns get the bias where it broadcasts along them."""
        states = super().lanes(op, signature, inputs)
        c = op.inputs[2] if len(op.inputs) > 2 else None
        if states != (Lanes.ZERO,) or c is None or c.shape is None:
            return states
        full = {axis + 2 - len(c.shape) for axis, dim in enumerate(c.shape) if dim != 1}
        if full.issuperset(laned_axes(op.outputs[0], signature.outputs[0])):
            return (Lanes.ZERO,)
        return (Lanes.FINITE if c.data is None else state_of(c.data.numpy()),)


__all__ = ["Gemm", "MatMul"]
