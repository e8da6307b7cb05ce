"""Propagation of formats: collects the candidates of the planner from the formats that kernels prefer.

Anchors (convolutions, matrix products) propose the formats of the target's kernels. A format that is added to a value is
propagated to the other ops that read or write the value. A layout-agnostic op propagates it to all its operands; a view op
propagates it with other axes. So formats are propagated in both directions up to the next anchor.

Values have at most `MAX_FORMATS` formats and ops with independent operands about `MAX_COMBINATIONS` signatures; those beyond
these limits are cut and counted.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from math import inf

from layoutopt.cost import CostModel
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Padding, Signature, Slot, Value
from layoutopt.ops import (
    Inapplicable,
    LayoutRule,
    QdqGroups,
    canonical_signature,
    has_untransposable_type,
    rule_of,
    untransposable_reason,
)
from layoutopt.ops.interfaces.channel_permutation import PermutableChannels
from layoutopt.ops.view import View
from layoutopt.planner.candidates import Candidates
from layoutopt.planner.deadline import NO_DEADLINE, Deadline
from layoutopt.planner.qdq_groups import planned_qdq_groups, quantized_ops
from layoutopt.planner.region_tree import RegionTree, Unit
from layoutopt.planner.unit_signatures import (
    Key,
    canonical_of,
    completed,
    ops_at_outputs,
    signature_key,
    signatures_with_padding,
)

MAX_FORMATS = 16  # per value; the problem grows with their square
MAX_COMBINATIONS = 64  # signatures of an op whose operands have independent formats

_IN_KEPT_GROUP = "it is part of a QDQ group, which stays as it is"
_AT_OUTPUT = "its floating-point side is an output, so that the integers are converted instead"


def propose(
    tree: RegionTree,
    cost_model: CostModel,
    pins: dict[Value, Format],
    groups: QdqGroups | None = None,
    keeps_qdq_groups: bool = False,
    deadline: Deadline = NO_DEADLINE,
    propagates: bool = True,
) -> Candidates:
    """Collect the candidates of a graph and its bodies.

    Args:
        tree: the graph, unplanned.
        cost_model: the target.
        pins: formats that the caller requires, which are candidates too.
        groups: the QDQ groups that are computed on integers; found by default.
        keeps_qdq_groups: whether QDQ groups stay as they are.
        deadline: the end of the time for planning.
        propagates: whether formats of kernels are collected; otherwise only canonical and pinned formats are.

    Raises:
        OutOfTimeError: the deadline is over before all candidates are collected.
    """
    groups = groups or planned_qdq_groups(tree.runs, cost_model, keeps_them=keeps_qdq_groups)
    return _FormatPropagation(tree, cost_model, groups, keeps_qdq_groups, deadline, propagates).run(pins)


class _FormatPropagation:
    """A fixed-point iteration over the formats of values and the signatures of ops.

    Attributes:
        tree: the graph and its regions.
        cost_model: the target.
        groups: the QDQ groups that are computed on integers.
        deadline: the end of the time for planning.
        propagates: whether formats of kernels are collected and propagated.
        result: the candidates so far.
        signatures: the signatures of every op and boundary value, by key.
        queue: pairs of a value and a format that are still to be propagated to the readers and the writer of the value.
        fixed: the ops that keep canonical formats, with the reason.
        untransposable: the ops and boundary values with an operand whose element type no runtime transposes.
        padding: the worst padding state of each value.
        classes: the operand classes of each op.
        completed: the pairs of an operand class and a format for which each op has a signature.
        cut: the keys of formats and signatures beyond the limits, with their value or unit.
    """

    def __init__(
        self,
        tree: RegionTree,
        cost_model: CostModel,
        groups: QdqGroups,
        keeps_qdq_groups: bool,
        deadline: Deadline,
        propagates: bool,
    ) -> None:
        self.tree = tree
        self.cost_model = cost_model
        self.groups = groups
        self.deadline = deadline
        self.propagates = propagates
        self.result = Candidates()
        self.signatures: dict[Unit, dict[Key, Signature]] = {}
        self.queue: deque[tuple[Value, Format]] = deque()
        self.fixed = dict.fromkeys(quantized_ops(tree.runs), _IN_KEPT_GROUP) if keeps_qdq_groups else {}
        self.untransposable: set[Unit] = set()
        self.padding: dict[Value, Padding] = {}
        self.classes: dict[Op, Mapping[Slot, Hashable]] = {}
        self.completed: dict[Op, set[Hashable]] = {}
        self.cut: set[Hashable] = set()

    def run(self, pins: dict[Value, Format]) -> Candidates:
        units = self.tree.units
        self.fixed = dict.fromkeys(ops_at_outputs(self.tree, pins), _AT_OUTPUT) | self.fixed
        self.untransposable = {unit for unit in units if has_untransposable_type(unit)}
        for value in self.tree.values:
            if value.rank is not None:
                self._add_format(value, Format.canonical(value.rank))
        for value, format in pins.items() if self.propagates else ():
            self._add_format(value, format)
        for unit in units:
            self.deadline.check("candidates")
            if isinstance(unit, Op):
                self._add_initial(unit)
            else:
                self._complete(unit, {})
        if not self.propagates:
            self.queue.clear()
            self._add_pinned(pins)
        while self.queue:
            self.deadline.check("candidates")
            self._propagate(*self.queue.popleft())
        self.result.cut = len(self.cut)
        for unit in units:
            self.deadline.check("candidates")
            self.result.signatures[unit] = self._with_padding(unit)
        return self.result

    def _add_initial(self, op: Op) -> None:
        """Add the signatures of an op that do not depend on its neighbours."""
        rule = rule_of(op)
        if not isinstance(rule, View) or op in self.fixed:
            self._add_signature(op, canonical_signature(op))
        if op in self.fixed:
            self.result.notes[op] = [self.fixed[op]]
        elif self.propagates:
            self._complete_kernels(op)
        else:
            self._complete_canonical(op)

    def _add_pinned(self, pins: dict[Value, Format]) -> None:
        """Add pinned formats, and the signatures of the kernels that write pinned values."""
        for value, format in pins.items():
            self._add_format(value, format)
            writer = self.tree.writers[value][0] if value in self.tree.writers else None
            if isinstance(writer, Op) and writer not in self.fixed:
                self._complete_kernels(writer)

    def _complete_kernels(self, op: Op) -> None:
        """Add the signatures of the target's kernels."""
        if rule_of(op) is not None:
            for formats in self.cost_model.preferred_formats(self.groups.kernel_op(op)):
                self._complete(op, dict(formats))

    def _complete_canonical(self, op: Op) -> None:
        """Add the signature of a view op with a canonical input, which it has in the original graph."""
        first = op.inputs[0] if op.inputs else None
        if op not in self.signatures and first is not None and first.rank is not None:
            self._complete(op, {Slot("in", 0): Format.canonical(first.rank)})

    def _with_padding(self, unit: Unit) -> list[Signature]:
        """The signatures of a unit for the padding states that its inputs can have after the units before it."""
        signatures = list(self.signatures.get(unit, {}).values()) or [canonical_of(unit)]
        # By value and not by format: two formats may store the same bytes, and then they have the same padding.
        worst = [self.padding.get(value, Padding.ZERO) if value is not None else Padding.ZERO for value in unit.inputs]
        padded = [signatures_with_padding(unit, each, worst) for each in signatures]
        signatures = list(dict.fromkeys(signature for group in padded for signature in group))
        for signature in signatures:
            for value, storage in zip(unit.outputs, signature.outputs, strict=True):
                if value is not None and storage is not None and storage.padding:
                    self.padding[value] = max(storage.padding, self.padding.get(value, Padding.ZERO))
        return signatures

    def _add_format(self, value: Value, format: Format) -> None:
        """Add a format to the candidates of a value, unless one with the same bytes is there or `MAX_FORMATS` are."""
        if value.shape is None or value.is_constant:
            return
        known = self.result.formats.setdefault(value, {})
        key = format.key(value.shape)
        if key in known:
            return
        if len(known) >= MAX_FORMATS:
            self.cut.add((value, key))
            return
        known[key] = format
        self.queue.append((value, format))

    def _propagate(self, value: Value, format: Format) -> None:
        """Propagate a format of a value to the op that writes it and to the ops that read it."""
        if value in self.tree.writers:
            writer, index = self.tree.writers[value]
            self._propagate_to(writer, Slot("out", index), format)
        for reader, index in self.tree.readers.get(value, ()):
            self._propagate_to(reader, Slot("in", index), format)

    def _propagate_to(self, unit: Unit, slot: Slot, format: Format) -> None:
        """Add the signatures of a unit with a format at a slot, unless the unit is an anchor or has no layout rule."""
        rule = rule_of(unit) if isinstance(unit, Op) else None
        if isinstance(unit, Op) and (rule is None or unit in self.fixed):
            return
        if isinstance(unit, Op) and rule is not None and rule.is_anchor:
            self._combine_all(unit, slot, format)
            return
        if isinstance(unit, Op) and rule is not None and self._is_known(unit, rule, slot, format):
            return
        self._complete(unit, {slot: format})
        if isinstance(unit, Op):
            self._combine_all(unit, slot, format)

    def _combine_all(self, op: Op, slot: Slot, format: Format) -> None:
        """Add the signatures of a format at a slot with the known formats of the other operands, if the rule allows others."""
        rule = rule_of(op)
        if isinstance(rule, PermutableChannels) and rule.is_anchor:
            self._permute_channels(op, rule, slot, format)
        elif rule is not None and not rule.is_anchor and self.propagates and rule.has_independent_operands:
            self._combine(op, slot, format)

    def _is_known(self, op: Op, rule: LayoutRule, slot: Slot, format: Format) -> bool:
        """Whether an operand of the same class already has the format, so that the signature is known; records the format."""
        if op not in self.classes:
            self.classes[op] = rule.operand_classes(op)
        operand_class = self.classes[op].get(slot)
        if operand_class is None:
            return False
        completed = self.completed.setdefault(op, set())
        is_known = (operand_class, format) in completed
        completed.add((operand_class, format))
        return is_known

    def _permute_channels(self, op: Op, rule: PermutableChannels, slot: Slot, format: Format) -> None:
        """Add the kernel's signatures with the channel order of a format, if the kernel is permutation-invariant."""
        for signature in list(self.signatures.get(op, {}).values()):
            base = {each: storage.format for each in op.slots() if (storage := signature[each]) is not None}
            known = rule.permuted_formats(op, base, slot, format)
            if known is not None:
                self._complete(op, dict(known), MAX_COMBINATIONS)

    def _combine(self, unit: Op, slot: Slot, format: Format) -> None:
        """Add the signatures of a new format at a slot with all known formats of the other operands."""
        combinations = dict.fromkeys(
            tuple((each, storage.format) for each in unit.slots() if each != slot and (storage := signature[each]))
            for signature in self.signatures[unit].values()
        )
        for rest in combinations:
            self._complete(unit, {**dict(rest), slot: format}, MAX_COMBINATIONS)

    def _complete(self, unit: Unit, known: dict[Slot, Format], limit: float = inf) -> None:
        """Add the signature of a unit with known formats at some slots if it has fewer than `limit`, or why there is none."""
        signature = completed(unit, known)
        rule = rule_of(unit) if isinstance(unit, Op) else None
        if unit in self.untransposable and not isinstance(signature, Inapplicable) and not isinstance(rule, View):
            # A view op whose result is converted back at once is the op of the model, so it copies no more than the model.
            reason = untransposable_reason(unit, signature)
            signature = Inapplicable(reason) if reason else signature
        if isinstance(signature, Inapplicable):
            if all(format.is_canonical for format in known.values()):
                return  # no format was proposed
            notes = self.result.notes.setdefault(unit if isinstance(unit, Op) else unit.op, [])
            if signature.reason not in notes:
                notes.append(signature.reason)
            return
        self._add_signature(unit, signature, limit)

    def _add_signature(self, unit: Unit, signature: Signature, limit: float = inf) -> None:
        signatures = self.signatures.setdefault(unit, {})
        key = signature_key(unit, signature)
        if key in signatures:
            return
        if len(signatures) >= limit:
            self.cut.add((unit, key))
            return
        signatures[key] = signature
        for slot in unit.slots():
            value, storage = unit.operand(slot), signature[slot]
            if value is not None and storage is not None:
                self._add_format(value, storage.format)
