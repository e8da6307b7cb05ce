"""From a graph to a plan: candidates, prices, the problem, its solution, and what it means for the graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from layoutopt.cost import CostModel
from layoutopt.errors import PinError
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Lanes, Op, Signature, Slot, Storage, Value
from layoutopt.ops import canonical_storage, rule_of
from layoutopt.planner.candidates import Candidates, Key, propose, storage_key
from layoutopt.planner.problem import TOLERANCE, Option, Problem, Tensor
from layoutopt.planner.solver import solve


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen signature of every op, what it costs, and the proof.

    Attributes:
        signatures: per op of the graph that was planned.
        seconds: estimated time of all ops and casts under the plan.
        baseline: the same for the graph as it is, every op in canonical format.
        lower_bound: no assignment of the candidates takes less, in seconds.
        gap: how far `seconds` may be above the best, as a fraction; 0 if proven.
        optimal: whether the solver finished.
        notes: per op, why a format that was proposed to it was not applicable.
    """

    signatures: Mapping[Op, Signature]
    seconds: float
    baseline: float
    lower_bound: float
    gap: float
    optimal: bool
    notes: Mapping[Op, list[str]] = field(default_factory=dict)

    @property
    def improves(self) -> bool:
        """Whether the plan is better than leaving the graph as it is."""
        return self.seconds < self.baseline * (1 - TOLERANCE)


def make_plan(
    graph: Graph,
    cost_model: CostModel,
    *,
    pins: Mapping[Value, Format] | None = None,
    free_constants: bool = True,
    time_limit: float | None = None,
) -> Plan:
    """Choose a signature for every op.

    Args:
        graph: the graph, unplanned.
        cost_model: the target.
        pins: formats that values must have: graph inputs, graph outputs, or values in between.
        free_constants: whether constants are converted ahead of time, at no cost.
        time_limit: seconds for the solver; past it the best plan so far, with its gap.

    Raises:
        PinError: if no plan meets a pin.
    """
    pins = dict(pins or {})
    check_pins(graph, pins)
    candidates = propose(graph, cost_model, pins)
    enforce_pins(graph, candidates, pins)
    formulation = _Formulation(graph, cost_model, candidates, pins, free_constants)
    problem = formulation.problem
    start = formulation.start
    baseline = problem.price(start)
    solution = solve(problem, start, time_limit)
    better = pins or solution.price < baseline * (1 - TOLERANCE)
    choice = formulation.tightened(solution.choice) if better else start
    signatures = {op: candidates.signatures[op][index] for op, index in zip(formulation.ops, choice, strict=True)}
    return Plan(
        signatures,
        problem.price(choice),
        baseline,
        solution.lower_bound,
        solution.gap,
        solution.optimal,
        candidates.notes,
    )


def check_pins(graph: Graph, pins: Mapping[Value, Format]) -> None:
    """Whether every pinned format fits its tensor, and is the only one that is wanted under its name."""
    for value, format in pins.items():
        if value.shape is None:
            raise PinError(
                f"cannot be pinned to {format}: its rank is unknown", where=value.name, hint="pin another value"
            )
        if not format.fits(value.shape):
            raise PinError(
                f"cannot be pinned to {format}: its shape is {value.type}",
                where=value.name,
                hint=f"use a format of rank {len(value.shape)} whose blocked axes have known extents",
            )
        reader = next((use.op for use in graph.uses(value) if use.is_capture), None)
        if reader is not None and not format.is_canonical and (value in graph.inputs or graph.is_output(value)):
            raise PinError(
                f"cannot be pinned to {format}: a subgraph of {reader.name or reader.kind} reads it by this name",
                where=value.name,
                hint="let the subgraph read a copy (an Identity) of it",
            )


def enforce_pins(graph: Graph, candidates: Candidates, pins: Mapping[Value, Format]) -> None:
    """Drop the signatures that compute a pinned value in another format."""
    for value, format in pins.items():
        producer = graph.producer(value)
        if producer is None or graph.is_output(value):
            continue
        wanted = storage_key(value, Storage(format))
        slot = Slot("out", graph.output_index(value))
        kept = [each for each in candidates.signatures[producer] if storage_key(value, each[slot]) == wanted]
        if not kept:
            offered = sorted({str(each[slot]) for each in candidates.signatures[producer]})
            raise PinError(
                f"pinned to {format}, which no signature of {producer.kind} computes",
                where=value.name,
                hint=f"it can be {', '.join(offered)}; or pin a graph input or output",
            )
        candidates.signatures[producer] = kept


class _Formulation:
    """The planning problem of a graph, and which op and which tensor stands for what."""

    def __init__(
        self,
        graph: Graph,
        cost_model: CostModel,
        candidates: Candidates,
        pins: Mapping[Value, Format],
        free_constants: bool,
    ) -> None:
        self.graph = graph
        self.cost_model = cost_model
        self.signatures = candidates.signatures
        self.pins = pins
        self.free_constants = free_constants
        self.ops = list(candidates.signatures)
        self.tensors: list[Tensor] = []
        self.index: dict[Value, int] = {}
        self.states: dict[Value, dict[tuple[Key, Lanes], int]] = {}
        self.storages: dict[Value, list[Storage]] = {}
        for value in graph.values:
            self._collect(value)
        self.problem = Problem([self._options(op) for op in self.ops], self.tensors)
        self.start = [self._start(op) for op in self.ops]

    def _state(self, value: Value, storage: Storage) -> int:
        states = self.states.setdefault(value, {})
        number = states.setdefault((storage_key(value, storage), storage.lanes), len(states))
        if number == len(self.storages.setdefault(value, [])):
            self.storages[value].append(storage)
        return number

    def _collect(self, value: Value) -> None:
        """Take in a value with the states it may be given and needed in."""
        if value.rank is None or (value.is_constant and self.free_constants and not self.graph.is_output(value)):
            return
        canonical = canonical_storage(value)
        assert canonical is not None
        pinned = Storage(self.pins[value]) if value in self.pins else canonical
        producer = self.graph.producer(value)
        uses = self.graph.uses(value)
        given: set[int] = set()
        if producer is None:
            given.add(self._state(value, pinned))
        else:
            slot = Slot("out", self.graph.output_index(value))
            given.update(self._state(value, each[slot] or canonical) for each in self.signatures[producer])
        needed = [self._state(value, pinned)] if self.graph.is_output(value) else []
        if any(use.is_capture for use in uses):
            needed.append(self._state(value, canonical))
        wanted = set(needed)
        for use in uses:
            if not use.is_capture:
                slot = Slot("in", use.index)
                wanted.update(self._state(value, each[slot] or canonical) for each in self.signatures[use.op])
        self.index[value] = len(self.tensors)
        source = next(iter(given)) if producer is None else None
        casts, prices = self._casts(value, given, wanted)
        self.tensors.append(Tensor(casts, prices, source, needed))

    def _casts(
        self, value: Value, given: set[int], needed: set[int]
    ) -> tuple[dict[tuple[int, int], int | None], list[float]]:
        """Which cast each pair of states is due. A cast always leaves zero lanes, so lane states share casts."""
        casts: dict[tuple[int, int], int | None] = {}
        numbers: dict[tuple[int, Key], int] = {}
        prices: list[float] = []
        for has in sorted(given):
            src = self.storages[value][has]
            for wants in sorted(needed):
                dst = self.storages[value][wants]
                key = storage_key(value, dst)
                if key == storage_key(value, src) and src.lanes <= dst.lanes:
                    casts[has, wants] = None
                    continue
                if (has, key) not in numbers:
                    numbers[has, key] = len(prices)
                    prices.append(self.cost_model.conversion_seconds(value, src, Storage(dst.format)))
                casts[has, wants] = numbers[has, key]
        return casts, prices

    def _options(self, op: Op) -> list[Option]:
        return [self._option(op, signature) for signature in self.signatures[op]]

    def _option(self, op: Op, signature: Signature) -> Option:
        def pairs(
            values: tuple[Value | None, ...], storages: tuple[Storage | None, ...]
        ) -> tuple[tuple[int, int], ...]:
            return tuple(
                (self.index[value], self._state(value, storage))
                for value, storage in zip(values, storages, strict=True)
                if value is not None and value in self.index and storage is not None
            )

        price = self.cost_model.kernel_seconds(op, signature)
        return Option(price, pairs(op.outputs, signature.outputs), pairs(op.inputs, signature.inputs))

    def tightened(self, choice: Sequence[int]) -> list[int]:
        """The same formats with lanes no worse than they have to be: among signatures that tie the solver takes any."""
        numbers = dict(zip(self.ops, choice, strict=True))
        for op, options in zip(self.ops, self.problem.ops, strict=True):
            signatures = self.signatures[op]
            chosen = signatures[numbers[op]]
            if not any(_lanes(chosen)):
                continue
            reads = [
                self._lanes_read(value, storage, numbers)
                for value, storage in zip(op.inputs, chosen.inputs, strict=True)
            ]
            alike = [
                number
                for number, each in enumerate(signatures)
                if _formats(each) == _formats(chosen)
                and options[number].price <= options[numbers[op]].price
                and all(has <= stands for has, stands in zip(reads, _lanes(each), strict=False))
            ]
            numbers[op] = min(alike, key=lambda number: _lanes(signatures[number])[::-1])
        return [numbers[op] for op in self.ops]

    def _lanes_read(self, value: Value | None, wanted: Storage | None, numbers: Mapping[Op, int]) -> Lanes:
        """What the lanes of an operand hold under a choice; a cast leaves zeros."""
        producer = None if value is None else self.graph.producer(value)
        if value is None or wanted is None or producer is None:
            return Lanes.ZERO
        given = self.signatures[producer][numbers[producer]].outputs[self.graph.output_index(value)]
        if given is None or given.lanes > wanted.lanes or storage_key(value, given) != storage_key(value, wanted):
            return Lanes.ZERO
        return given.lanes

    def _start(self, op: Op) -> int:
        """The signature of the op as it stands: canonical inputs, and canonical outputs unless it is a rename."""
        rule = rule_of(op)
        for number, signature in enumerate(self.signatures[op]):
            ins = [(value, storage) for value, storage in zip(op.inputs, signature.inputs, strict=True)]
            outs = [(value, storage) for value, storage in zip(op.outputs, signature.outputs, strict=True)]
            checked = ins if rule is not None and rule.is_rename else ins + outs
            if all(
                value is None or storage_key(value, storage) == storage_key(value, canonical_storage(value))
                for value, storage in checked
            ):
                return number
        return 0


def _formats(signature: Signature) -> list[Format | None]:
    return [storage.format if storage else None for storage in (*signature.inputs, *signature.outputs)]


def _lanes(signature: Signature) -> list[Lanes]:
    return [storage.lanes if storage else Lanes.ZERO for storage in (*signature.inputs, *signature.outputs)]
