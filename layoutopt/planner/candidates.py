"""Which formats should the planner consider? Those that kernels want, carried to wherever they can go for free.

Anchors (convolutions, matrix products) propose the formats of the target's kernels. A format that arrives at a value is
offered to the other ops on that value; an op that takes what its neighbours have passes it on to all its operands, through
renames under other axes. So formats spread in both directions until the next anchor.
"""

from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from layoutopt.cost import CostModel
from layoutopt.formats import Format
from layoutopt.ir.types import Lanes, Op, Signature, Slot, Storage, Value
from layoutopt.ops import (
    Inapplicable,
    LayoutRule,
    QdqGroups,
    canonical_signature,
    has_untransposable_type,
    is_dequantizer,
    is_quantizer,
    rule_of,
    untransposable,
    with_padding_states,
)
from layoutopt.ops.interfaces.channel_permutation import PermutableChannels
from layoutopt.ops.view import View
from layoutopt.planner.deadline import NO_DEADLINE, Deadline
from layoutopt.planner.integers import integers_of, quantised
from layoutopt.planner.nest import Handover, Nest, Unit

MAX_FORMATS = 8  # per value; more never helped on real networks, and the problem grows with the square
MAX_COMBINATIONS = 64  # signatures of an op whose operands have formats of their own

_WHOLE = "it is part of a quantised unit, which stays whole"
_HANDED_OUT = "its fractions are an output, so that integers are converted rather than these"

Key: TypeAlias = tuple[Any, ...]


@dataclass(slots=True)
class Candidates:
    """What the planner chooses from.

    Attributes:
        signatures: the signatures of every op and of what crosses into bodies, lane states spelled out.
        formats: the formats of every value by what they mean for its shape: formats with one key are the same bytes.
        notes: why an op did not get a signature that was proposed to it.
    """

    signatures: dict[Unit, list[Signature]] = field(default_factory=dict)
    formats: dict[Value, dict[Key, Format]] = field(default_factory=dict)
    notes: dict[Op, list[str]] = field(default_factory=dict)


def storage_key(value: Value, storage: Storage | None) -> Key:
    """What a storage means for the bytes of a value: equal keys, equal bytes (but for what lanes hold)."""
    return () if storage is None or value.shape is None else storage.format.key(value.shape)


def propose(
    nest: Nest,
    cost_model: CostModel,
    pins: dict[Value, Format],
    integers: QdqGroups | None = None,
    whole: bool = False,
    deadline: Deadline = NO_DEADLINE,
    spreads: bool = True,
) -> Candidates:
    """Collect the candidates of a graph and its bodies.

    Args:
        nest: the graph, unplanned.
        cost_model: the target.
        pins: formats that a caller wants, which are offered too.
        integers: the quantised units that are computed on integers, if they are known already.
        whole: whether quantised units stay as they are.
        deadline: the end of the time for planning.
        spreads: whether formats of kernels are collected; else there are the model's own ones and the pinned ones only.

    Raises:
        OutOfTimeError: the deadline is over before all candidates are collected.
    """
    integers = integers or integers_of(nest.runs, cost_model, whole=whole)
    return _Spread(nest, cost_model, integers, whole, deadline, spreads).run(pins)


class _Spread:
    """The worklist: (value, format) pairs that are yet to be offered to what reads and gives the value."""

    def __init__(
        self,
        nest: Nest,
        cost_model: CostModel,
        integers: QdqGroups,
        whole: bool,
        deadline: Deadline,
        spreads: bool,
    ) -> None:
        self.nest = nest
        self.cost_model = cost_model
        self.integers = integers
        self.deadline = deadline
        self.spreads = spreads
        self.result = Candidates()
        self.found: dict[Unit, dict[Key, Signature]] = {}
        self.queue: deque[tuple[Value, Format]] = deque()
        self.fixed = dict.fromkeys(quantised(nest.runs), _WHOLE) if whole else {}
        self.restricted: set[Unit] = set()
        self.given: dict[Value, Lanes] = {}
        self.classes: dict[Op, Mapping[Slot, Hashable]] = {}
        self.completed: dict[Op, set[Hashable]] = {}

    def run(self, pins: dict[Value, Format]) -> Candidates:
        units = self.nest.units
        self.fixed = dict.fromkeys(_at_outputs(self.nest, pins), _HANDED_OUT) | self.fixed
        self.restricted = {unit for unit in units if has_untransposable_type(unit)}
        for value in self.nest.values:
            if value.rank is not None:
                self._offer(value, Format.canonical(value.rank))
        for value, format in pins.items() if self.spreads else ():
            self._offer(value, format)
        for unit in units:
            self.deadline.check("candidates")
            if isinstance(unit, Op):
                self._begin(unit)
            else:
                self._complete(unit, {})
        if not self.spreads:
            self.queue.clear()
            self._begin_at(pins)
        while self.queue:
            self.deadline.check("candidates")
            value, format = self.queue.popleft()
            self._around(value, format)
        for unit in units:
            self.deadline.check("candidates")
            self.result.signatures[unit] = self._spell_out(unit)
        return self.result

    def _begin(self, op: Op) -> None:
        """What an op can do whatever its neighbours are like."""
        rule = rule_of(op)
        if not isinstance(rule, View) or op in self.fixed:
            self._take(op, canonical_signature(op))
        if op in self.fixed:
            self.result.notes[op] = [self.fixed[op]]
        elif self.spreads:
            self._complete_kernels(op)
        else:
            self._complete_canonical(op)

    def _begin_at(self, pins: dict[Value, Format]) -> None:
        """Where formats of kernels are not collected: pinned formats, and the kernels that may write them."""
        for value, format in pins.items():
            self._offer(value, format)
            writer = self.nest.writers[value][0] if value in self.nest.writers else None
            if isinstance(writer, Op) and writer not in self.fixed:
                self._complete_kernels(writer)

    def _complete_kernels(self, op: Op) -> None:
        """The signatures of the target's kernels."""
        if rule_of(op) is not None:
            for wish in self.cost_model.preferred_formats(self.integers.priced(op)):
                self._complete(op, dict(wish))

    def _complete_canonical(self, op: Op) -> None:
        """The signature of a view op with canonical inputs, which the graph as it is needs; other ops have theirs already."""
        first = op.inputs[0] if op.inputs else None
        if op not in self.found and first is not None and first.rank is not None:
            self._complete(op, {Slot("in", 0): Format.canonical(first.rank)})

    def _spell_out(self, unit: Unit) -> list[Signature]:
        """The signatures of a unit with lane states: those that its inputs can be in, going by what stands before it."""
        signatures = list(self.found.get(unit, {}).values()) or [_canonical(unit)]
        # By value and not by format: two formats may be the same bytes, and then the lanes are the same too.
        worst = [self.given.get(value, Lanes.ZERO) if value is not None else Lanes.ZERO for value in unit.inputs]
        laned = (_with_lanes(unit, each, worst) for each in signatures)
        signatures = list(dict.fromkeys(signature for group in laned for signature in group))
        for signature in signatures:
            for value, storage in zip(unit.outputs, signature.outputs, strict=True):
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
        if value in self.nest.writers:
            writer, index = self.nest.writers[value]
            self._pass_on(writer, Slot("out", index), format)
        for reader, index in self.nest.readers.get(value, ()):
            self._pass_on(reader, Slot("in", index), format)

    def _pass_on(self, unit: Unit, slot: Slot, format: Format) -> None:
        rule = rule_of(unit) if isinstance(unit, Op) else None
        if isinstance(unit, Op) and (rule is None or unit in self.fixed):
            return
        if isinstance(unit, Op) and rule is not None and rule.is_anchor:
            if isinstance(rule, PermutableChannels):
                self._reorder(unit, rule, slot, format)
            return
        if isinstance(unit, Op) and rule is not None and self._is_repeated(unit, rule, slot, format):
            return
        self._complete(unit, {slot: format})
        if self.spreads and rule is not None and rule.has_independent_operands:
            self._combine(unit, slot, format)

    def _is_repeated(self, op: Op, rule: LayoutRule, slot: Slot, format: Format) -> bool:
        """Whether an operand of the same class has had the format, so that the signature is the same; recorded for the next."""
        if op not in self.classes:
            self.classes[op] = rule.operand_classes(op)
        operand_class = self.classes[op].get(slot)
        if operand_class is None:
            return False
        completed = self.completed.setdefault(op, set())
        is_repeated = (operand_class, format) in completed
        completed.add((operand_class, format))
        return is_repeated

    def _reorder(self, op: Op, rule: PermutableChannels, slot: Slot, format: Format) -> None:
        """What a kernel takes with an axis in the order of digits that a format has it in, where the kernel does not tell."""
        for signature in list(self.found.get(op, {}).values()):
            if len(self.found[op]) >= MAX_COMBINATIONS:
                return
            base = {each: storage.format for each in op.slots() if (storage := signature[each]) is not None}
            known = rule.permuted_formats(op, base, slot, format)
            if known is not None:
                self._complete(op, dict(known))

    def _combine(self, unit: Unit, slot: Slot, format: Format) -> None:
        """A new format together with every format that the other operands have been given so far."""
        rests = dict.fromkeys(
            tuple((each, storage.format) for each in unit.slots() if each != slot and (storage := signature[each]))
            for signature in self.found[unit].values()
        )
        for rest in rests:
            if len(self.found[unit]) >= MAX_COMBINATIONS:
                return
            self._complete(unit, {**dict(rest), slot: format})

    def _complete(self, unit: Unit, known: dict[Slot, Format]) -> None:
        signature = _completed(unit, known)
        rule = rule_of(unit) if isinstance(unit, Op) else None
        if unit in self.restricted and not isinstance(signature, Inapplicable) and not isinstance(rule, View):
            # A rename whose copy is cast back is the op that the model had, so it moves nothing that was not moved before.
            reason = untransposable(unit, signature)
            signature = Inapplicable(reason) if reason else signature
        if isinstance(signature, Inapplicable):
            if all(format.is_canonical for format in known.values()):
                return  # nobody has asked for anything
            notes = self.result.notes.setdefault(unit if isinstance(unit, Op) else unit.op, [])
            if signature.reason not in notes:
                notes.append(signature.reason)
            return
        self._take(unit, signature)

    def _take(self, unit: Unit, signature: Signature) -> None:
        signatures = self.found.setdefault(unit, {})
        key = signature_key(unit, signature)
        if key in signatures:
            return
        signatures[key] = signature
        for slot in unit.slots():
            value, storage = unit.operand(slot), signature[slot]
            if value is not None and storage is not None:
                self._offer(value, storage.format)


def _at_outputs(nest: Nest, pins: Collection[Value]) -> Iterator[Op]:
    """The steps between integers and fractions that are outputs: those that do nothing else, and what quantises outputs."""
    for value in nest.graph.outputs:
        readers = nest.readers.get(value, ())
        writers = [nest.writers[value]] if value in nest.writers and not readers else []
        for step, _ in (*writers, *readers):
            is_step = isinstance(step, Op) and (is_quantizer(step) if readers else is_dequantizer(step))
            if isinstance(step, Op) and is_step and not any(each in pins for each in (value, *step.outputs)):
                yield step


def _completed(unit: Unit, known: dict[Slot, Format]) -> Signature | Inapplicable:
    if isinstance(unit, Handover):
        return unit.complete(*next(iter(known.items()), (None, None)))
    rule = rule_of(unit)
    assert rule is not None
    return rule.signature(unit, known)


def _canonical(unit: Unit) -> Signature:
    if isinstance(unit, Op):
        return canonical_signature(unit)
    signature = unit.complete()
    assert not isinstance(signature, Inapplicable)
    return signature


def _with_lanes(unit: Unit, signature: Signature, worst: list[Lanes]) -> list[Signature]:
    if isinstance(unit, Handover):
        return unit.with_padding_states(signature, max(worst, default=Lanes.ZERO))
    rule = rule_of(unit)
    return [signature] if rule is None else with_padding_states(rule, unit, signature, worst)


def signature_key(unit: Unit, signature: Signature) -> Key:
    """What a signature means for the bytes of what a unit reads and gives."""
    return tuple(
        storage_key(value, storage) if value is not None else ()
        for value, storage in zip((*unit.inputs, *unit.outputs), (*signature.inputs, *signature.outputs), strict=True)
    )
