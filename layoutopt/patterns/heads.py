"""Tensors with an axis of heads, followed through view ops to where the heads are side by side.

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
"""The format of (B, H, S, D) or (H, S, D) with heads side by side, by rank."""

COLUMNS: Mapping[int, Format] = {4: Format.plain((0, 3, 1, 2)), 3: Format.plain((2, 0, 1))}
"""The format of its transpose, (B, H, D, L) or (H, D, L), with heads side by side, by rank."""

_STEPS = 12  # the largest number of view ops and scales in a chain


@dataclass(slots=True)
class Trail:
    """The end of a chain of view ops and scales: a value, the product of the scales, and the ops."""

    value: Value
    scale: float = 1.0
    inner: list[Op] = field(default_factory=list)


def before_views(graph: Graph, value: Value, format: Format, target: Shape) -> Trail | None:
    """The chain backwards from a value in a format to a tensor of shape `target` with the same bytes; None if there is none."""
    trail = Trail(value)
    while not (trail.value.shape == target and format.is_canonical):
        found = multiple(graph, trail.value)
        op = found.op if found is not None else graph.producer(trail.value)
        if op is None or len(trail.inner) == _STEPS:
            return None
        trail.inner.append(op)
        if found is not None:
            trail.value, trail.scale = found.value, trail.scale * found.times
            continue
        storage = _propagated(op, Y, format, X)
        before = op.inputs[0]
        if storage is None or before is None:
            return None
        trail.value, format = before, storage
    return trail


def behind_views(graph: Graph, value: Value, format: Format, target: Shape) -> Trail | None:
    """The chain forwards from a value in a format to a tensor of shape `target` with the same bytes; None if there is none."""
    trail = Trail(value)
    while not (trail.value.shape == target and format.is_canonical):
        op = graph.only_reader(trail.value)
        after = result_of(op) if op is not None else None
        storage = _propagated(op, X, format, Y) if op is not None else None
        if op is None or after is None or storage is None or len(trail.inner) == _STEPS:
            return None
        trail.inner.append(op)
        trail.value, format = after, storage
    return trail


def product_before(graph: Graph, value: Value) -> tuple[Op, Trail] | None:
    """The matrix product that a value is a multiple of, and the chain to it; None if there is none."""
    trail = Trail(value)
    while len(trail.inner) < _STEPS and (found := multiple(graph, trail.value)) is not None:
        trail = Trail(found.value, trail.scale * found.times, [*trail.inner, found.op])
    op = graph.producer(trail.value)
    if op is None or op.kind != "MatMul":
        return None
    trail.inner.append(op)
    return op, trail


def _propagated(op: Op, known: Slot, format: Format, target: Slot) -> Format | None:
    """The format on the other side of a view op; None if the op is none, or the format does not propagate."""
    rule = rule_of(op)
    signature = rule.signature(op, {known: format}) if isinstance(rule, View) else None
    storage = signature[target] if isinstance(signature, Signature) else None
    return None if storage is None else storage.format
