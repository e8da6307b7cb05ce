"""Chains of view ops between a tensor with an axis of heads and a tensor in which the heads are adjacent.

    (B, H, S, D) in the order (B, S, H, D)   is   (B, S, H*D)

The order of view ops differs between exporters. So the matcher propagates a format through Transposes and Reshapes, by their
layout rules, until it is the canonical format of the target shape. It multiplies the scales on the way. A batch axis of
extent 1 may be missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from layoutopt.formats import Format, Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Slot, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.signatures import X, Y
from layoutopt.ops.view import View
from layoutopt.patterns.base import multiple, result_of

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
