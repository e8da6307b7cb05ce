"""Tensors with heads apart, followed to where the heads are side by side.

    (B, H, S, D) lying as (B, S, H, D) does   is   (B, S, H*D)

How exporters shuffle heads into place is not compared with a list of chains: Transposes and Reshapes are followed as their
layout rules have it, until the format is the canonical one of the shape that is wanted. Numbers that the tensor is
multiplied by on the way are gathered. Where there is one batch, its axis may be missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from layoutopt.formats import Format, Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Slot, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.signatures import X, Y
from layoutopt.ops.view import View
from layoutopt.patterns.base import multiple, only_reader, result_of

ROWS: Mapping[int, Format] = {4: Format.plain((0, 2, 1, 3)), 3: Format.plain((1, 0, 2))}
"""(B, H, S, D) or (H, S, D) as it lies with heads side by side, by its rank."""

COLUMNS: Mapping[int, Format] = {4: Format.plain((0, 3, 1, 2)), 3: Format.plain((2, 0, 1))}
"""(B, H, D, L) or (H, D, L), which is its transpose, as (B, L, H, D) lies."""

_STEPS = 12  # renames and scalings between the heads and a projection


@dataclass(slots=True)
class Trail:
    """A value, times a number, that another was followed to, and the ops on the way."""

    value: Value
    scale: float = 1.0
    inner: list[Op] = field(default_factory=list)


def before_renames(graph: Graph, value: Value, format: Format, wanted: Shape) -> Trail | None:
    """Back from a value in a format to the tensor of the wanted shape that it has the bytes of; None if there is none."""
    trail = Trail(value)
    while not (trail.value.shape == wanted and format.is_canonical):
        found = multiple(graph, trail.value)
        op = found.op if found is not None else graph.producer(trail.value)
        if op is None or len(trail.inner) == _STEPS:
            return None
        trail.inner.append(op)
        if found is not None:
            trail.value, trail.scale = found.value, trail.scale * found.times
            continue
        storage = _renamed(op, Y, format, X)
        before = op.inputs[0]
        if storage is None or before is None:
            return None
        trail.value, format = before, storage
    return trail


def behind_renames(graph: Graph, value: Value, format: Format, wanted: Shape) -> Trail | None:
    """On from a value in a format to the tensor of the wanted shape that has its bytes; None if there is none."""
    trail = Trail(value)
    while not (trail.value.shape == wanted and format.is_canonical):
        op = only_reader(graph, trail.value)
        after = result_of(op) if op is not None else None
        storage = _renamed(op, X, format, Y) if op is not None else None
        if op is None or after is None or storage is None or len(trail.inner) == _STEPS:
            return None
        trail.inner.append(op)
        trail.value, format = after, storage
    return trail


def product_before(graph: Graph, value: Value) -> tuple[Op, Trail] | None:
    """The matrix product that a value is a multiple of, and the way there; None if it is none of one."""
    trail = Trail(value)
    while len(trail.inner) < _STEPS and (found := multiple(graph, trail.value)) is not None:
        trail = Trail(found.value, trail.scale * found.times, [*trail.inner, found.op])
    op = graph.producer(trail.value)
    if op is None or op.kind != "MatMul":
        return None
    trail.inner.append(op)
    return op, trail


def _renamed(op: Op, known: Slot, format: Format, asked: Slot) -> Format | None:
    """The format at the other side of a rename; None if the op is none, or cannot carry the format."""
    rule = rule_of(op)
    signature = rule.signature(op, {known: format}) if isinstance(rule, View) else None
    storage = signature[asked] if isinstance(signature, Signature) else None
    return None if storage is None else storage.format
