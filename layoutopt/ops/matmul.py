"""MatMul and Gemm: matrix products that fold affine maps into a constant matrix, and may be linear maps over one axis."""

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Array, Op
from layoutopt.ops.base import register
from layoutopt.ops.interfaces.affine import Affine, AffineFolding, Side, float_constant
from layoutopt.ops.interfaces.linear_map import LinearMap, LinearMapOp
from layoutopt.ops.matrix_product import BiasedMatrixProduct, MatrixProduct, operand_axes


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


__all__ = ["AffineFoldingProduct", "Gemm", "MatMul", "ScaleFoldingProduct"]
