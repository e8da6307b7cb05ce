"""Fusion patterns: several ops that exporters write for one op that some runtimes have; and ops that others compute faster."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.patterns import activations, attention, norms, views
from layoutopt.patterns.base import FusionPattern, Match, patterns_at, register_pattern
from layoutopt.patterns.einsum import einsum_as_product
from layoutopt.patterns.global_response import factored_response, norm_by_product
from layoutopt.patterns.pixel_shuffle import block_transpose
from layoutopt.patterns.row_moves import gathered_patches, gathered_rows

Reformulation: TypeAlias = Callable[[Graph, Op], Value | None]
"""Returns the result of an op by new ops behind it, or None if they would not be faster."""


def _rows_or_blocks(graph: Graph, op: Op) -> Value | None:
    """The result of a Transpose that moves rows, patches or blocks."""
    return gathered_rows(graph, op) or gathered_patches(graph, op) or block_transpose(graph, op)


_REFORMULATIONS: Mapping[str, Reformulation] = {
    "Add": factored_response,
    "Concat": gathered_rows,
    "Einsum": einsum_as_product,
    "Transpose": gathered_rows,
}
_OF_ONNXRUNTIME: Mapping[str, Reformulation] = {
    "LRN": norms.lrn_by_convolution,
    "ReduceL2": norm_by_product,
    "Reshape": gathered_patches,
    "Transpose": _rows_or_blocks,
}


def reformulation(op: Op, *, has_kernels: bool) -> Reformulation | None:
    """The function that writes an op by others, if there is one and its tensors have elements.

    Args:
        op: the op.
        has_kernels: whether the dialect calls kernels of onnxruntime, for whose times some functions are meant.
    """
    if any(0 in (value.shape or ()) for value in op.values):
        return None  # the target of a Reshape cannot have an extent of 0
    return (_OF_ONNXRUNTIME.get(op.kind) if has_kernels else None) or _REFORMULATIONS.get(op.kind)
