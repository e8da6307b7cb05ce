"""Matrix products: MatMul, Gemm.

    MatMul   a (..., M, K)   b (..., K, N)   ->   y (..., M, N)
    Gemm     a (M, K) or (K, M), b (K, N) or (N, K), c broadcast   ->   y (M, N)

Each operand has a format of its own. A plain one is a matrix with a leading dimension as long as rows or columns are
contiguous, which is how head shuffles and transposed weights are read for free by kernels that take strides. Blocked
ones are those of matrix units (FRACTAL_NZ); their lanes have to be zero, since K is summed over.
"""

from collections.abc import Mapping

import numpy as np

from layoutopt.formats import Format, Shape
from layoutopt.ir.types import Array, Lanes, Op, Signature, Slot, TensorType, Value
from layoutopt.ops.affine import Affine, float_constant
from layoutopt.ops.base import Builder, LayoutRule, Side, register
from layoutopt.ops.channel_map import ChannelMap
from layoutopt.ops.lanes import laned_axes, state_of
from layoutopt.ops.signatures import Inapplicable, Known, Y, elements, extent, padded_type, signature_of

A, B, C = Slot("in", 0), Slot("in", 1), Slot("in", 2)


def is_strided_matrix(format: Format, shape: Shape) -> bool:
    """Whether a plain format is a batch of matrices with a stride per batch, row and column, one of the latter being 1.

    Axes of extent 1 have no stride. The batch axes must collapse into one, so they lie in order and next to each other.
    """
    rank = format.rank
    if not format.is_plain or rank < 2:
        return False
    order = [axis for axis in format.order if shape[axis] != 1]
    if not order:
        return True
    batch = [place for place, axis in enumerate(order) if axis < rank - 2]
    together = batch == list(range(batch[0], batch[0] + len(batch))) if batch else True
    in_order = [order[place] for place in batch] == sorted(order[place] for place in batch)
    return order[-1] >= rank - 2 and together and in_order


@register
class MatMul(LayoutRule):
    """A batch of products."""

    family = "matmul"
    ops = ("MatMul",)
    is_independent = True

    def roles(self, op: Op) -> Mapping[str, Slot]:
        """Operands a and b, result y."""
        return {"a": A, "b": B, "y": Y}

    def complete(self, op: Op, known: Known) -> Signature | Inapplicable:
        """The known formats, canonical for the rest."""
        if reason := self._unknown(op):
            return Inapplicable(reason)
        for slot, format in known.items():
            value = op.operand(slot)
            if value is None or value.shape is None or not format.fits(value.shape):
                return Inapplicable(f"{format} does not fit {slot}")
            if any(part.block and part.axis < format.rank - 2 for part in format.parts):
                return Inapplicable("a batch axis cannot be blocked")
            if format.is_plain and format.rank > 1 and not is_strided_matrix(format, value.shape):
                return Inapplicable(f"neither rows nor columns of {slot} are contiguous in {format}")
        return signature_of(op, known)

    def _unknown(self, op: Op) -> str:
        """Why the operands are no matrices, or what is not known of them."""
        a, b, y = (value.shape if value is not None else None for value in (*op.inputs[:2], op.outputs[0]))
        if a is None or b is None or y is None or min(len(a), len(b), len(y)) < 2:
            return "an operand is not known to be a matrix"
        m, n = self._axes(op, "transA", len(a))[0], self._axes(op, "transB", len(b))[1]
        if a[m] != y[-2] or b[n] != y[-1]:
            return "rows and columns of the operands are not known to be those of the result"
        c = op.inputs[2] if len(op.inputs) > 2 else None
        return "the shape of the bias is unknown" if c is not None and c.static_shape is None else ""

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Sums over zeros; anything else would be added to the logical elements or to other lanes."""
        return None if any(inputs) else (Lanes.ZERO,)

    def lower(self, op: Op, build: Builder) -> None:
        """The canonical product on padded matrices; operands padded apart are brought to the same extents."""
        assert op.signature is not None
        a, b = build.padded(0), build.padded(1)
        y_type = padded_type(op.outputs[0], op.signature.outputs[0])
        assert a is not None and b is not None and y_type is not None and y_type.shape is not None
        a, b = self._match(op, build, a, b, y_type.shape)
        c = build.padded(2) if len(op.inputs) > 2 else None
        inputs: list[Value | None] = [a, b]
        if c is not None:
            inputs.append(self._match_bias(op, build, c, y_type.shape))
        types: list[TensorType | None] = [y_type]
        (result,) = build.op(op.op_type, inputs, types, op.attributes)
        build.set_padded_output(0, result)

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


@register
class Gemm(MatMul):
    """One product with a bias; transA and transB are attributes."""

    ops = ("Gemm",)

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
        if any(inputs):
            return None
        c = op.inputs[2] if len(op.inputs) > 2 else None
        if c is None or c.shape is None:
            return (Lanes.ZERO,)
        full = {axis + 2 - len(c.shape) for axis, dim in enumerate(c.shape) if dim != 1}
        if full.issuperset(laned_axes(op.outputs[0], signature.outputs[0])):
            return (Lanes.ZERO,)
        return (Lanes.FINITE if c.data is None else state_of(c.data.numpy()),)


__all__ = ["Gemm", "MatMul", "is_strided_matrix"]
