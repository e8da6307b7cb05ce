"""Fusion pattern of attention, softmax(scale * q k^T + mask) v, head by head."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from layoutopt.formats import Format, Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, DType, Op, Signature, Slot, TensorType, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.signatures import X, Y
from layoutopt.ops.view import View
from layoutopt.patterns.base import FusionPattern, Match, multiple, number, other_input, register_pattern, result_of

# Chains of view ops between a tensor with an axis of heads and a tensor in which the heads are adjacent.
#
#     (B, H, S, D) in the order (B, S, H, D)   is   (B, S, H*D)
#
# The order of view ops differs between exporters. So the matcher propagates a format through Transposes and Reshapes, by
# their layout rules, until it is the canonical format of the target shape. It multiplies the scales on the way. A batch
# axis of extent 1 may be missing.

ROWS: Mapping[int, Format] = {4: Format.plain((0, 2, 1, 3)), 3: Format.plain((1, 0, 2))}
"""The format of (B, H, S, D) or (H, S, D) with adjacent heads, by rank."""

COLUMNS: Mapping[int, Format] = {4: Format.plain((0, 3, 1, 2)), 3: Format.plain((2, 0, 1))}
"""The format of the transpose, (B, H, D, L) or (H, D, L), with adjacent heads, by rank."""

_MAX_OPS = 12  # the largest number of view ops and scales in a chain


@dataclass(slots=True)
class ViewChain:
    """The end of a chain of view ops and scales: a value, the product of the scales, and the ops."""

    value: Value
    scale: float = 1.0
    inner: list[Op] = field(default_factory=list)


def chain_before(graph: Graph, value: Value, format: Format, target: Shape) -> ViewChain | None:
    """The chain backwards from a value in a format to a tensor of shape `target` with the same bytes; None if there is none."""
    chain = ViewChain(value)
    while not (chain.value.shape == target and format.is_canonical):
        found = multiple(graph, chain.value)
        op = found.op if found is not None else graph.producer(chain.value)
        if op is None or len(chain.inner) == _MAX_OPS:
            return None
        chain.inner.append(op)
        if found is not None:
            chain.value, chain.scale = found.value, chain.scale * found.factor
            continue
        storage = _propagated(op, Y, format, X)
        before = op.inputs[0]
        if storage is None or before is None:
            return None
        chain.value, format = before, storage
    return chain


def chain_behind(graph: Graph, value: Value, format: Format, target: Shape) -> ViewChain | None:
    """The chain forwards from a value in a format to a tensor of shape `target` with the same bytes; None if there is none."""
    chain = ViewChain(value)
    while not (chain.value.shape == target and format.is_canonical):
        op = graph.only_reader(chain.value)
        after = result_of(op) if op is not None else None
        storage = _propagated(op, X, format, Y) if op is not None else None
        if op is None or after is None or storage is None or len(chain.inner) == _MAX_OPS:
            return None
        chain.inner.append(op)
        chain.value, format = after, storage
    return chain


def product_before(graph: Graph, value: Value) -> tuple[Op, ViewChain] | None:
    """The matrix product that a value is a multiple of, and the chain to it; None if there is none."""
    chain = ViewChain(value)
    while len(chain.inner) < _MAX_OPS and (found := multiple(graph, chain.value)) is not None:
        chain = ViewChain(found.value, chain.scale * found.factor, [*chain.inner, found.op])
    op = graph.producer(chain.value)
    if op is None or op.kind != "MatMul":
        return None
    chain.inner.append(op)
    return op, chain


def _propagated(op: Op, known: Slot, format: Format, target: Slot) -> Format | None:
    """The format on the other side of a view op; None if the op is none, or the format does not propagate."""
    rule = rule_of(op)
    signature = rule.signature(op, {known: format}) if isinstance(rule, View) else None
    storage = signature[target] if isinstance(signature, Signature) else None
    return None if storage is None else storage.format


MIN_HEAD_SIZE = 32
"""Size of a head below which the ops are not fused, because the fused op is slower. The ratio of the times of the separate ops
and the fused op with onnxruntime 1.31.1, one thread, AVX-512, is 0.82 to 1.02 for heads of 8 to 24, 0.93 to 1.12 for 32 to 64,
and 1.22 for 6 heads of 64 on 1500 tokens."""


@register_pattern
class Attention(FusionPattern):
    """Attention with one scale and at most one tensor added to the scores.

    before: q (B,S,H*D) -> Reshape, Transpose (B,H,S,D) -> q'
            k (B,L,H*D) -> Reshape, Transpose (B,H,D,L) -> k'
            v (B,L,H*E) -> Reshape, Transpose (B,H,L,E) -> v'
            MatMul(q', k') -> Mul(scale) -> Add(mask) -> Softmax -> MatMul(., v') -> Transpose, Reshape -> y (B,S,H*E)
    after:  y = MultiHeadAttention(q, k, v, mask) {num_heads = H, scale}

    The definition: Vaswani et al., Attention Is All You Need, arXiv:1706.03762.
    """

    name = "attention"
    fused_op = "com.microsoft::MultiHeadAttention"
    root_ops = ("Softmax",)

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The scores before the softmax and the product with the values behind it, as one op."""
        if not _is_along_rows(op):
            return None
        scores, weighted_values = _scores(graph, op), _weighted_values(graph, op)
        if scores is None or weighted_values is None:
            return None
        mask = _mask(scores)
        if mask is None or (weighted_values.replaces_nan and not mask.has_finite_rows):
            return None
        return _attention_match(graph, scores, weighted_values, mask, op)


@dataclass(frozen=True, slots=True)
class _Scores:
    """The scores of attention.

    Attributes:
        product: the product of q and k.
        chain: the view ops and scales from the product to the softmax.
        masked: the input of the softmax.
        addend: the tensor that is added behind the chain; None if there is none.
    """

    product: Op
    chain: ViewChain
    masked: Value
    addend: Value | None


@dataclass(frozen=True, slots=True)
class _WeightedValues:
    """The sums of the values by the attention weights, which are the results of the softmax.

    Attributes:
        product: the product of the attention weights and v.
        ops_before: the ops between the softmax and the product.
        replaces_nan: whether these replace NaN by zero.
    """

    product: Op
    ops_before: tuple[Op, ...]
    replaces_nan: bool


@dataclass(frozen=True, slots=True)
class _Mask:
    """The tensor added to the scores; None where it is zero."""

    tensor: Value | None
    has_finite_rows: bool  # whether no row is minus infinity everywhere, which would make the attention weights NaN


def _is_along_rows(op: Op) -> bool:
    """Whether an op is a softmax of float32 scores along their last axis."""
    x = op.inputs[0]
    if x is None or x.rank is None or x.rank not in ROWS or x.dtype is not DType.FLOAT32:
        return False
    return op.integer("axis", -1 if op.version >= 13 else 1) % x.rank == x.rank - 1


def _scores(graph: Graph, softmax: Op) -> _Scores | None:
    """The scores: a multiple of a product, perhaps with a tensor added."""
    x = softmax.inputs[0]
    assert x is not None
    if (found := product_before(graph, x)) is not None:
        return _Scores(*found, x, None)
    add = graph.producer(x)
    if add is None or add.kind != "Add":
        return None
    for value in add.inputs:
        found = product_before(graph, value) if value is not None and value.shape == x.shape else None
        if value is not None and found is not None:
            product, chain = found
            chain.inner.append(add)
            return _Scores(product, chain, x, other_input(add, value))
    return None


def _weighted_values(graph: Graph, softmax: Op) -> _WeightedValues | None:
    """The product that reads the attention weights, at once or behind the ops with which torch replaces NaN by zero."""
    ops_before: list[Op] = []
    weights = result_of(softmax)
    reader = graph.only_reader(weights)
    while reader is not None and reader.kind == "Cast" and (after := result_of(reader)) is not None:
        if after.dtype is not DType.FLOAT32:  # older exporters write Casts from float32 to float32 around a softmax
            return None
        ops_before.append(reader)
        weights, reader = after, graph.only_reader(after)
    replacement = _nan_replacement(graph, weights) if weights is not None and reader is None else ()
    if replacement:
        ops_before += replacement
        weights = result_of(replacement[-1])
        reader = graph.only_reader(weights)
    if reader is None or reader.kind != "MatMul" or reader.inputs[0] is not weights:
        return None
    return _WeightedValues(reader, tuple(ops_before), bool(replacement))


def _nan_replacement(graph: Graph, weights: Value) -> tuple[Op, ...]:
    """The ops that replace NaN by zero, if they are the only readers of the attention weights."""
    readers = {use.op.kind: use.op for use in graph.uses(weights)}
    test, choice = readers.get("IsNaN"), readers.get("Where")
    if test is None or choice is None or graph.use_count(weights) != 2:
        return ()
    condition, zero, otherwise = choice.inputs
    return (test, choice) if condition is result_of(test) and number(zero) == 0.0 and otherwise is weights else ()


def _mask(scores: _Scores) -> _Mask | None:
    """The mask in the shape that the fused op requires, (B or 1, H or 1, S, L); None if it cannot be broadcast to that.

    Without a mask, a row of the attention weights is NaN only if an activation is not finite, so the replacement has no effect.
    """
    value, shape = scores.addend, scores.masked.shape
    assert shape is not None
    if value is None:
        return _Mask(None, has_finite_rows=True)
    if value.data is None:
        is_full = value.rank == len(shape) == 4 and value.shape is not None and value.shape[2:] == shape[2:]
        return _Mask(value, has_finite_rows=False) if is_full else None
    array = value.data.numpy()
    if not array.any():
        return _Mask(None, has_finite_rows=True)
    rows, columns = shape[-2:]
    if array.ndim > len(shape) or not isinstance(rows, int) or not isinstance(columns, int):
        return None
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    full: Array = np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:2], rows, columns)))
    tensor = Value(f"{value.name}__mask", TensorType(DType.FLOAT32, full.shape), data=ArrayData(full))
    return _Mask(tensor, bool((full < np.inf).all() and np.isfinite(full).any(axis=-1).all()))


def _attention_match(
    graph: Graph, scores: _Scores, weighted_values: _WeightedValues, mask: _Mask, softmax: Op
) -> Match | None:
    """The match, if operands and result are tensors in which the heads are adjacent."""
    shape, y = scores.masked.shape, result_of(weighted_values.product)
    operands = (scores.product.inputs[0], scores.product.inputs[1], weighted_values.product.inputs[1])
    assert shape is not None
    q, k, v = (value.shape if value is not None and value.shape is not None else () for value in operands)
    if y is None or not q or not v:
        return None
    leading, rows, columns, inner, outer = shape[:-2], shape[-2], shape[-1], q[-1], v[-1]
    if q != (*leading, rows, inner) or k != (*leading, inner, columns) or v != (*leading, columns, outer):
        return None
    batch, heads = (1, *leading)[-2:]
    if not (isinstance(heads, int) and isinstance(inner, int) and isinstance(outer, int)) or inner < MIN_HEAD_SIZE:
        return None
    joined_shapes = (batch, rows, heads * inner), (batch, columns, heads * inner), (batch, columns, heads * outer)
    formats = ROWS[len(shape)], COLUMNS[len(shape)], ROWS[len(shape)]
    chains = [
        chain
        for value, format, joined in zip(operands, formats, joined_shapes, strict=True)
        if value is not None and (chain := chain_before(graph, value, format, joined)) is not None
    ]
    end = chain_behind(graph, y, ROWS[len(shape)], (batch, rows, heads * outer))
    scale = scores.chain.scale * prod(chain.scale for chain in chains[:2])
    if len(chains) < len(operands) or end is None or chains[2].scale != 1.0 or not scale:  # 0 means the default scale
        return None
    inputs: list[Value | None] = [chain.value for chain in chains]
    if mask.tensor is not None:
        inputs += [None, None, mask.tensor]  # bias and key_padding_mask
    all_chains = [scores.chain, *chains, end]
    ops = [
        *(op for chain in all_chains for op in chain.inner),
        softmax,
        *weighted_values.ops_before,
        weighted_values.product,
    ]
    attributes: dict[str, Attribute] = {"num_heads": heads, "scale": scale}
    return Match(end.value, list(dict.fromkeys(ops)), tuple(inputs), attributes)
