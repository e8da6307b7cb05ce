"""Propagation of formats: collects the candidates of the planner from the formats that kernels prefer.

Anchors (convolutions, matrix products) propose the formats of the target's kernels. A format that is added to a value is
propagated to the other ops that read or write the value. A layout-agnostic op propagates it to all its operands; a view op
propagates it with other axes. So formats are propagated in both directions up to the next anchor.

Values have at most `MAX_FORMATS` formats and ops with independent operands about `MAX_COMBINATIONS` signatures; those beyond
these limits are cut and counted.
"""

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from math import inf
from typing import Any, TypeAlias

from msgspec import Struct, field

from layoutopt.cost import CostModel, PropagatedFormats
from layoutopt.errors import PinError
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Padding, Signature, Slot, Storage, Value
from layoutopt.ops import (
    Inapplicable,
    LayoutRule,
    QdqGroups,
    canonical_signature,
    find_qdq_groups,
    has_untransposable_type,
    is_dequantizer,
    is_quantizer,
    kept_qdq_ops,
    rule_of,
    untransposable_reason,
    with_padding_states,
)
from layoutopt.ops.region_ops import expected_runs
from layoutopt.ops.view import View
from layoutopt.planner.problem import NO_DEADLINE, Deadline


class RegionTree:
    """The ops of a graph and of its regions at every depth, without the bodies of ops that have no region rule.

    Attributes:
        graph: the graph.
        ops: all ops; those of a graph are in topological order.
        values: all values.
        runs: the expected number of runs of each graph.
        graph_of: the graph that contains an op or a value.
        writers: the op that computes a value, and the index of the output; no entry for inputs of graphs and constants.
        readers: the ops that read a value, and the index of the input.
    """

    def __init__(self, graph: Graph) -> None:
        """Collect the ops of a graph."""
        self.graph = graph
        self.runs = runs = expected_runs(graph)
        self.ops = [op for each in runs for op in each.ops]
        self.values = [value for each in runs for value in each.values]
        self.graph_of: dict[Op | Value, Graph] = {op: each for each in runs for op in each.ops}
        self.graph_of.update((value, each) for each in runs for value in each.values)
        self.writers: dict[Value, tuple[Op, int]] = {}
        self.readers: dict[Value, list[tuple[Op, int]]] = {}
        for op in self.ops:
            self.writers.update((value, (op, index)) for index, value in enumerate(op.outputs) if value is not None)
            for index, value in enumerate(op.inputs):
                if value is not None:
                    self.readers.setdefault(value, []).append((op, index))

    def weight(self, node: Op | Value) -> float:
        """The factor of the price of an op, or of a cast of a value: the runs of the graph that contains it."""
        return self.runs[self.graph_of[node]]

    def is_output(self, value: Value) -> bool:
        """Whether a value is an output of its graph."""
        return self.graph_of[value].is_output(value)


Key: TypeAlias = tuple[Any, ...]


def storage_key(value: Value, storage: Storage | None) -> Key:
    """The key of a storage for the shape of a value: storages with equal keys have equal bytes, apart from padding."""
    return () if storage is None or value.shape is None else storage.format.key(value.shape)


def _key_at(op: Op, slot: Slot, format: Format) -> Key:
    """The key of an operand and its storage in a format."""
    value = op.operand(slot)
    return op, slot, () if value is None else storage_key(value, Storage(format))


def signature_key(op: Op, signature: Signature) -> Key:
    """The key of a signature: signatures with equal keys have equal bytes in all operands and results, apart from padding."""
    return tuple(
        storage_key(value, storage) if value is not None else ()
        for value, storage in zip((*op.inputs, *op.outputs), (*signature.inputs, *signature.outputs), strict=True)
    )


def ops_at_outputs(tree: RegionTree, pins: Collection[Value]) -> Iterator[Op]:
    """The Q/DQ ops whose floating-point side is an output: unread DequantizeLinears, and QuantizeLinears of outputs."""
    for value in (output for graph in tree.runs for output in graph.outputs):
        readers = tree.readers.get(value, ())
        writers = [tree.writers[value]] if value in tree.writers and not readers else []
        for op, _ in (*writers, *readers):
            is_qdq_op = is_quantizer(op) if readers else is_dequantizer(op)
            if is_qdq_op and not any(each in pins for each in (value, *op.outputs)):
                yield op


# --- The candidates of the planner: the formats of every value, and the signatures of every op ---


class Candidates(Struct):
    """The alternatives of the planner.

    Attributes:
        tree: the graph and its regions.
        groups: the QDQ groups that are computed on integers.
        signatures: the signatures of every op, one for each padding state.
        formats: the formats of every value by their key for its shape: formats with one key store the same bytes.
        notes: per op, the reasons why proposed signatures are illegal.
        cut: the number of formats and signatures beyond the limits.
        devices: the devices of the signatures, the host first; one without a name unless the target is a platform.
        is_complete: whether all formats were propagated before the deadline.
    """

    tree: RegionTree
    groups: QdqGroups
    signatures: dict[Op, list[Signature]] = field(default_factory=dict)
    formats: dict[Value, dict[Key, Format]] = field(default_factory=dict)
    notes: dict[Op, list[str]] = field(default_factory=dict)
    cut: int = 0
    devices: tuple[str, ...] = ("",)
    is_complete: bool = True


class CandidateMemo(Struct):
    """The candidates of one graph, for plans at several prices; collecting them takes up to half of the time of a plan.

    Attributes:
        found: the candidates; None before they are collected, or if a limit has cut them: then they depend on prices, which
            only order them otherwise.
    """

    found: Candidates | None = None


# --- qdq groups ---
#
# The QDQ groups that a target computes on integers, and the ops whose formats are fixed because groups stay as they are.


def planned_qdq_groups(graphs: Iterable[Graph], cost_model: CostModel, *, keeps_them: bool = False) -> QdqGroups:
    """The QDQ groups that are planned as kernels on integers.

    A target that has a kernel for an op in floating point, and none on integers, computes the group in floating point.

    Args:
        graphs: the graphs.
        cost_model: the target.
        keeps_them: whether all groups stay as they are, so that the result is empty.
    """

    def has_kernel(op: Op, integer: Op) -> bool:
        return bool(cost_model.preferred_formats(integer)) or not cost_model.preferred_formats(op)

    return QdqGroups() if keeps_them else find_qdq_groups(graphs, has_kernel)


MAX_FORMATS = 16  # per value; the problem grows with their square
MAX_COMBINATIONS = 64  # signatures of an op whose operands have independent formats

_IN_KEPT_GROUP = "it is part of a QDQ group, which stays as it is"
_AT_OUTPUT = "its floating-point side is an output, so that the integers are converted instead"


def propose(
    tree: RegionTree,
    cost_model: CostModel,
    pins: Mapping[Value, Format],
    keeps_qdq_groups: bool = False,
    deadline: Deadline = NO_DEADLINE,
) -> Candidates:
    """Collect the candidates of a graph and its bodies.

    Args:
        tree: the graph, unplanned.
        cost_model: the target.
        pins: formats that the caller requires, which are candidates too.
        keeps_qdq_groups: whether QDQ groups stay as they are.
        deadline: the end of the time for planning, after which only canonical and pinned formats are propagated.
    """
    groups = planned_qdq_groups(tree.runs, cost_model, keeps_them=keeps_qdq_groups)
    fixed = dict.fromkeys(ops_at_outputs(tree, pins), _AT_OUTPUT)
    if keeps_qdq_groups:
        fixed |= dict.fromkeys((op for each in tree.runs for op in kept_qdq_ops(each)), _IN_KEPT_GROUP)
    return _FormatPropagation(Candidates(tree, groups), cost_model, fixed, deadline).run(pins)


class _FormatPropagation:
    """A fixed-point iteration over the formats of values and the signatures of ops.

    Attributes:
        result: the candidates so far.
        cost_model: the target.
        fixed: the ops that keep canonical formats, with the reason.
        deadline: the end of the time for planning.
        signatures: the signatures of every op, by key.
        queue: pairs of a value and a format that are still to be propagated to the readers and the writer of the value.
        untransposable: the ops with an operand whose element type no runtime transposes.
        padding: the worst padding state of each value.
        classes: the operand classes of each op.
        completed: the pairs of an operand class and a format for which each op has a signature.
        cut: the keys of formats and signatures beyond the limits, with their value or op.
        kernels: the formats of kernels that are candidates only where a neighbour has one of them, by operand and storage.
    """

    def __init__(
        self,
        result: Candidates,
        cost_model: CostModel,
        fixed: Mapping[Op, str],
        deadline: Deadline,
    ) -> None:
        self.result, self.tree, self.groups = result, result.tree, result.groups
        self.cost_model = cost_model
        self.fixed = fixed
        self.deadline = deadline
        self.signatures: dict[Op, dict[Key, Signature]] = {}
        self.queue: deque[tuple[Value, Format]] = deque()
        self.untransposable = {op for op in self.tree.ops if has_untransposable_type(op)}
        self.padding: dict[Value, Padding] = {}
        self.classes: dict[Op, Mapping[Slot, Hashable]] = {}
        self.completed: dict[Op, set[Hashable]] = {}
        self.cut: set[Hashable] = set()
        self.kernels: dict[Key, PropagatedFormats] = {}

    def run(self, pins: Mapping[Value, Format]) -> Candidates:
        for value in self.tree.values:
            if value.rank is not None:
                self._add_format(value, Format.canonical(value.rank))
        for value, format in pins.items():
            self._add_format(value, format)
        required = len(self.queue)  # the canonical and pinned formats
        for op in self.tree.ops:
            self._add_initial(op)
        while self.queue and (required > 0 or not self.deadline.has_passed):
            self._propagate(*self.queue.popleft())
            required -= 1
        self.result.is_complete = not self.queue
        self.result.cut = len(self.cut)
        for op in self.tree.ops:
            self.result.signatures[op] = self._with_padding(op)
        return self.result

    def _add_initial(self, op: Op) -> None:
        """Add the signatures of an op that do not depend on its neighbours."""
        rule = rule_of(op)
        if not isinstance(rule, View) or op in self.fixed:
            self._add_signature(op, canonical_signature(op))
        if op in self.fixed:
            self.result.notes[op] = [self.fixed[op]]
        elif rule is not None:
            for formats in self.cost_model.preferred_formats(self.groups.kernel_op(op)):
                if isinstance(formats, PropagatedFormats):
                    self.kernels |= {_key_at(op, *each): formats for each in formats.items()}
                else:
                    self._complete(op, dict(formats))

    def _with_padding(self, op: Op) -> list[Signature]:
        """The signatures of an op for the padding states that its inputs can have after the ops before it."""
        signatures = list(self.signatures.get(op, {}).values()) or [canonical_signature(op)]
        rule = rule_of(op)
        if rule is None:
            return signatures
        # By value and not by format: two formats may store the same bytes, and then they have the same padding.
        worst = [self.padding.get(value, Padding.ZERO) if value is not None else Padding.ZERO for value in op.inputs]
        padded = [with_padding_states(rule, op, each, worst) for each in signatures]
        signatures = list(dict.fromkeys(signature for group in padded for signature in group))
        for signature in signatures:
            for value, storage in zip(op.outputs, signature.outputs, strict=True):
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

    def _propagate_to(self, op: Op, slot: Slot, format: Format) -> None:
        """Add the signatures of an op with a format at a slot, unless the op is an anchor or has no layout rule."""
        rule = rule_of(op)
        if rule is None or rule.is_anchor or op in self.fixed or self._is_known(op, rule, slot, format):
            return
        kernel = self.kernels.get(_key_at(op, slot, format))
        if kernel is not None:
            self._complete(op, dict(kernel))
            return
        self._complete(op, {slot: format})
        if rule.has_independent_operands:
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

    def _combine(self, op: Op, slot: Slot, format: Format) -> None:
        """Add the signatures of a new format at a slot with all known formats of the other operands."""
        combinations = dict.fromkeys(
            tuple((each, storage.format) for each in op.slots() if each != slot and (storage := signature[each]))
            for signature in self.signatures[op].values()
        )
        for rest in combinations:
            self._complete(op, {**dict(rest), slot: format}, MAX_COMBINATIONS)

    def _complete(self, op: Op, known: dict[Slot, Format], limit: float = inf) -> None:
        """Add the signature of an op with known formats at some slots if it has fewer than `limit`, or why there is none."""
        rule = rule_of(op)
        assert rule is not None
        signature = rule.signature(op, known)
        if op in self.untransposable and not isinstance(signature, Inapplicable) and not isinstance(rule, View):
            # A view op whose result is converted back at once is the op of the model, so it copies no more than the model.
            reason = untransposable_reason(op, signature)
            signature = Inapplicable(reason) if reason else signature
        if not isinstance(signature, Inapplicable):
            self._add_signature(op, signature, limit)
        elif not all(format.is_canonical for format in known.values()):  # otherwise no format was proposed
            notes = self.result.notes.setdefault(op, [])
            if signature.reason not in notes:
                notes.append(signature.reason)

    def _add_signature(self, op: Op, signature: Signature, limit: float = inf) -> None:
        signatures = self.signatures.setdefault(op, {})
        key = signature_key(op, signature)
        if key in signatures:
            return
        if len(signatures) >= limit:
            self.cut.add((op, key))
            return
        signatures[key] = signature
        for slot in op.slots():
            value, storage = op.operand(slot), signature[slot]
            if value is not None and storage is not None:
                self._add_format(value, storage.format)


# --- Pins: the check that a pinned format fits its value, and the removal of candidates that contradict it ---


def check_pins(pins: Mapping[Value, Format]) -> None:
    """Check that every pinned format fits its value.

    Raises:
        PinError: the rank of a value is unknown, or the format does not fit its shape.
    """
    for value, format in pins.items():
        if value.shape is None:
            raise PinError(
                f"cannot be pinned to {value.format_text(format)}: its rank is unknown",
                where=value.name,
                hint="pin another value",
            )
        if not format.fits(value.shape):
            raise PinError(
                f"cannot be pinned to {value.format_text(format)}: its shape is {value.type}",
                where=value.name,
                hint=f"use a format of rank {len(value.shape)} whose blocked axes have known extents",
            )


def enforce_pins(candidates: Candidates, pins: Mapping[Value, Format]) -> None:
    """Remove the signatures that compute a pinned value in another format.

    Raises:
        PinError: no signature computes a value in its pinned format.
    """
    tree = candidates.tree
    for value, format in pins.items():
        if value not in tree.writers or tree.is_output(value):
            continue
        key = storage_key(value, Storage(format))
        writer, index = tree.writers[value]
        signatures = candidates.signatures[writer]
        kept = [each for each in signatures if storage_key(value, each.outputs[index]) == key]
        if not kept:
            letters = value.axis_letters or ""
            offered = sorted({each.text(letters) for each in (one.outputs[index] for one in signatures) if each})
            raise PinError(
                f"pinned to {value.format_text(format)}, which no signature of {writer.kind} computes",
                where=value.name,
                hint=f"it can be {', '.join(offered)}; or pin a graph input or output",
            )
        candidates.signatures[writer] = kept
