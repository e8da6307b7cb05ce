"""Which formats should the planner consider? Those that kernels want, carried to wherever they can go for free.

Anchors (convolutions, matrix products) propose the formats of the target's kernels. A format that arrives at a value is
offered to the other ops on that value; an op that takes what its neighbours have passes it on to all its operands, through
renames under other axes. So formats spread in both directions until the next anchor.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from layoutopt.cost import CostModel
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Lanes, Op, Signature, Slot, Storage, Value
from layoutopt.ops import Inapplicable, canonical_signature, is_in_unit, rule_of, with_lanes

MAX_FORMATS = 8  # per value; more never helped on real networks, and the problem grows with the square
MAX_COMBINATIONS = 64  # signatures of an op whose operands have formats of their own

Key: TypeAlias = tuple[Any, ...]


@dataclass(slots=True)
class Candidates:
    """What the planner chooses from.

    Attributes:
        signatures: the signatures of every op, lane states spelled out; the first one is the start.
        formats: the formats of every value by what they mean for its shape: formats with one key are the same bytes.
        notes: why an op did not get a signature that was proposed to it.
    """

    signatures: dict[Op, list[Signature]] = field(default_factory=dict)
    formats: dict[Value, dict[Key, Format]] = field(default_factory=dict)
    notes: dict[Op, list[str]] = field(default_factory=dict)


def storage_key(value: Value, storage: Storage | None) -> Key:
    """What a storage means for the bytes of a value: equal keys, equal bytes (but for what lanes hold)."""
    return () if storage is None or value.shape is None else storage.format.key(value.shape)


def propose(graph: Graph, cost_model: CostModel, pins: dict[Value, Format]) -> Candidates:
    """Collect the candidates of a graph, with extra formats that a caller has pinned."""
    return _Spread(graph, cost_model).run(pins)


class _Spread:
    """The worklist: (value, format) pairs that are yet to be offered to the ops around the value."""

    def __init__(self, graph: Graph, cost_model: CostModel) -> None:
        self.graph = graph
        self.cost_model = cost_model
        self.result = Candidates()
        self.found: dict[Op, dict[Key, Signature]] = {}
        self.queue: deque[tuple[Value, Format]] = deque()
        self.fixed: set[Op] = set()
        self.given: dict[Value, Lanes] = {}

    def run(self, pins: dict[Value, Format]) -> Candidates:
        ops = self.graph.ops
        self.fixed = {op for op in ops if is_in_unit(self.graph, op)}
        for value in self.graph.values:
            if value.rank is not None:
                self._offer(value, Format.canonical(value.rank))
        for value, format in pins.items():
            self._offer(value, format)
        for op in ops:
            rule = rule_of(op)
            if rule is None or not rule.is_rename or op in self.fixed:
                self._take(op, canonical_signature(op))
            if op in self.fixed:
                self.result.notes[op] = ["it is part of a quantised unit, which stays whole"]
            elif rule is not None:
                for wish in self.cost_model.kernels(op):
                    self._complete(op, dict(wish))
        while self.queue:
            value, format = self.queue.popleft()
            self._around(value, format)
        for op in ops:
            self.result.signatures[op] = self._spell_out(op)
        return self.result

    def _spell_out(self, op: Op) -> list[Signature]:
        """The signatures of an op with lane states: those that its inputs can be in, going by the ops before it."""
        rule = rule_of(op)
        signatures = list(self.found.get(op, {}).values()) or [canonical_signature(op)]
        if rule is not None:
            # By value and not by format: two formats may be the same bytes, and then the lanes are the same too.
            worst = [self.given.get(value, Lanes.ZERO) if value is not None else Lanes.ZERO for value in op.inputs]
            laned = (with_lanes(rule, op, each, worst) for each in signatures)
            signatures = list(dict.fromkeys(signature for group in laned for signature in group))
        for signature in signatures:
            for value, storage in zip(op.outputs, signature.outputs, strict=True):
                if value is not None and storage is not None and storage.lanes:
                    self.given[value] = max(storage.lanes, self.given.get(value, Lanes.ZERO))
        return signatures

    def _offer(self, value: Value, format: Format) -> None:
        if value.shape is None or value.is_constant:
            return
        known = self.result.formats.setdefault(value, {})
        key = format.key(value.shape)
        if key not in known and len(known) < MAX_FORMATS:
            known[key] = format
            self.queue.append((value, format))

    def _around(self, value: Value, format: Format) -> None:
        producer = self.graph.producer(value)
        if producer is not None:
            self._pass_on(producer, Slot("out", self.graph.output_index(value)), format)
        for use in self.graph.uses(value):
            if not use.is_capture:
                self._pass_on(use.op, Slot("in", use.index), format)

    def _pass_on(self, op: Op, slot: Slot, format: Format) -> None:
        rule = rule_of(op)
        if rule is None or rule.is_anchor or op in self.fixed:
            return
        self._complete(op, {slot: format})
        if rule.is_independent:
            self._combine(op, slot, format)

    def _combine(self, op: Op, slot: Slot, format: Format) -> None:
        """A new format together with every format that the other operands have been given so far."""
        for signature in list(self.found[op].values()):
            if len(self.found[op]) >= MAX_COMBINATIONS:
                return
            known = {
                each: storage.format
                for each in op.slots()
                if (storage := signature[each]) is not None and not storage.format.is_canonical
            }
            self._complete(op, {**known, slot: format})

    def _complete(self, op: Op, known: dict[Slot, Format]) -> None:
        rule = rule_of(op)
        assert rule is not None
        signature = rule.complete(op, known)
        if isinstance(signature, Inapplicable):
            notes = self.result.notes.setdefault(op, [])
            if signature.reason not in notes:
                notes.append(signature.reason)
            return
        self._take(op, signature)

    def _take(self, op: Op, signature: Signature) -> None:
        signatures = self.found.setdefault(op, {})
        key = signature_key(op, signature)
        if key in signatures:
            return
        signatures[key] = signature
        for slot in op.slots():
            value, storage = op.operand(slot), signature[slot]
            if value is not None and storage is not None:
                self._offer(value, storage.format)


def signature_key(op: Op, signature: Signature) -> Key:
    """What a signature means for the bytes of the op's operands."""
    return tuple(
        storage_key(value, storage) if value is not None else ()
        for value, storage in zip((*op.inputs, *op.outputs), (*signature.inputs, *signature.outputs), strict=True)
    )
