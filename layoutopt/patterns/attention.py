"""Fusion pattern of attention, softmax(scale * q k^T + mask) v, head by head."""

from collections.abc import Mapping
from math import prod

from msgspec import Struct, field

from layoutopt.formats import Format, Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, DType, Op, Signature, Slot, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.signatures import X, Y
from layoutopt.ops.view import View
from layoutopt.patterns.base import FusionPattern, Match, multiple, number, other_input, register_pattern

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


class ViewChain(Struct):
    """The end of a chain of view ops and scales: a value, the product of the scales, and the ops."""

    value: Value
    scale: float = 1.0
    inner: list[Op] = field(default_factory=list)


def chain_before(graph: Graph, value: Value | None, format: Format, target: Shape) -> ViewChain | None:
    """The chain backwards from a value in a format to a tensor of shape `target` with the same bytes; None if there is none."""
    if value is None:
        return None
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
        if storage is None:
            return None
        chain.value, format = op.x, storage
    return chain


def chain_behind(graph: Graph, value: Value, format: Format, target: Shape) -> ViewChain | None:
    """The chain forwards from a value in a format to a tensor of shape `target` with the same bytes; None if there is none."""
    chain = ViewChain(value)
    while not (chain.value.shape == target and format.is_canonical):
        op = graph.only_reader(chain.value)
        storage = _propagated(op, X, format, Y) if op is not None else None
        if op is None or storage is None or len(chain.inner) == _MAX_OPS:
            return None
        chain.inner.append(op)
        chain.value, format = op.y, storage
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
        shape = op.x.shape or ()
        rank = len(shape)
        if rank not in ROWS or op.x.dtype is not DType.FLOAT32:
            return None
        if op.integer("axis", -1 if op.version >= 13 else 1) % rank != rank - 1:
            return None
        scores, weighted_values = _scores(graph, op.x), _weighted_values(graph, op)
        if scores is None or weighted_values is None:
            return None
        product, chain, addend = scores
        ops, replaces_nan = weighted_values
        is_supported, mask = _mask(addend, shape)
        # Without a mask, a row of the attention weights is NaN only if an activation is not finite.
        if not is_supported or (replaces_nan and mask is not None):
            return None
        operands = (product.x, product.inputs[1], ops[-1].inputs[1])
        q, k, v = (value.shape or () if value is not None else () for value in operands)
        if not q or not v:
            return None
        leading, rows, columns, inner, outer = shape[:-2], shape[-2], shape[-1], q[-1], v[-1]
        if q != (*leading, rows, inner) or k != (*leading, inner, columns) or v != (*leading, columns, outer):
            return None
        batch, heads = (1, *leading)[-2:]
        if not (isinstance(heads, int) and isinstance(inner, int) and isinstance(outer, int)) or inner < MIN_HEAD_SIZE:
            return None
        joined = (batch, rows, heads * inner), (batch, columns, heads * inner), (batch, columns, heads * outer)
        formats = ROWS[rank], COLUMNS[rank], ROWS[rank]
        chains = [chain_before(graph, *each) for each in zip(operands, formats, joined, strict=True)]
        end = chain_behind(graph, ops[-1].y, ROWS[rank], (batch, rows, heads * outer))
        found = [each for each in chains if each is not None]
        if len(found) < len(chains) or end is None or found[2].scale != 1.0:
            return None
        scale = chain.scale * prod(each.scale for each in found[:2])
        inputs: list[Value | None] = [each.value for each in found]
        if mask is not None:
            inputs += [None, None, mask]  # bias and key_padding_mask
        matched = dict.fromkeys([op, *ops, *(each for one in (chain, *found, end) for each in one.inner)])
        attributes: dict[str, Attribute] = {"num_heads": heads, "scale": scale}
        # A scale of 0 means the default scale.
        return Match(end.value, list(matched), tuple(inputs), attributes) if scale else None


def _scores(graph: Graph, x: Value) -> tuple[Op, ViewChain, Value | None] | None:
    """The product of q and k, the chain from it to the softmax, and the tensor that is added behind the chain, if any."""
    if (found := product_before(graph, x)) is not None:
        return *found, None
    add = graph.producer(x)
    for value in add.inputs if add is not None and add.kind == "Add" else ():
        found = product_before(graph, value) if value is not None and value.shape == x.shape else None
        if value is not None and add is not None and found is not None:
            product, chain = found
            chain.inner.append(add)
            return product, chain, other_input(add, value)
    return None


def _weighted_values(graph: Graph, softmax: Op) -> tuple[list[Op], bool] | None:
    """The ops from the attention weights to their product with v, and whether they replace NaN by zero, as those of torch."""
    replacement = _nan_replacement(graph, softmax.y)
    weights = replacement[-1].y if replacement else softmax.y
    reader = graph.only_reader(weights)
    if reader is None or reader.kind != "MatMul" or reader.x is not weights:
        return None
    return [*replacement, reader], bool(replacement)


def _nan_replacement(graph: Graph, weights: Value) -> tuple[Op, ...]:
    """The ops that replace NaN by zero, if they are the only readers of the attention weights."""
    readers = {use.op.kind: use.op for use in graph.uses(weights)}
    test, choice = readers.get("IsNaN"), readers.get("Where")
    if test is None or choice is None or graph.use_count(weights) != 2:
        return ()
    condition, zero, otherwise = choice.inputs
    return (test, choice) if condition is test.y and number(zero) == 0.0 and otherwise is weights else ()


def _mask(value: Value | None, shape: Shape) -> tuple[bool, Value | None]:
    """The mask of the fused op, (B or 1, H or 1, S, L), for scores of a shape.

    Returns:
        Whether the tensor that is added to the scores has that shape, or is zero; and the tensor, None where it is zero.
    """
    if value is None or (value.data is not None and not value.data.numpy().any()):
        return True, None
    return value.rank == len(shape) == 4 and value.dims[2:] == shape[2:], value
