"""What is planned together: the ops of a graph and of the bodies in it, and the tensors that cross between them.

A crossing chooses a storage as an op chooses a signature: it reads what the op is given and what its bodies leave, and gives
what the bodies read and what the op hands out. So a body is part of the problem of the graph around it, and what it costs
counts as often as it runs.
"""

from dataclasses import dataclass
from typing import TypeAlias

from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Lanes, Op, Signature, Slot, Storage, Value
from layoutopt.ops import Inapplicable, has_padding
from layoutopt.ops.region_ops import (
    BoundaryValue,
    RegionPort,
    expected_runs,
    formats_at,
    operand,
    region_rule,
    signature_at,
)

_INSIDE = 1.001  # of two casts that are as dear, one before an If beats one in each branch


@dataclass(frozen=True, slots=True, eq=False)
class Handover:
    """A crossing of an op, in the place of an op: what is read there are its inputs, what is given its outputs."""

    op: Op
    crossing: BoundaryValue

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """What is read."""
        return tuple(operand(self.op, place) for place in self.crossing.sources)

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        """What is given."""
        return tuple(operand(self.op, place) for place in self.crossing.targets)

    def operand(self, slot: Slot) -> Value | None:
        """The value at a slot."""
        return operand(self.op, self._place(slot))

    def slots(self) -> list[Slot]:
        """The slots that hold a value, inputs first."""
        ins = [Slot("in", index) for index, value in enumerate(self.inputs) if value is not None]
        return ins + [Slot("out", index) for index, value in enumerate(self.outputs) if value is not None]

    def complete(self, at: Slot | None = None, format: Format | None = None) -> Signature | Inapplicable:
        """The signature that has a format at a slot; the canonical one by default."""
        formats = formats_at(self.op, self.crossing, None if at is None else self._place(at), format)
        return formats if isinstance(formats, Inapplicable) else self._signature(formats, Lanes.ZERO)

    def with_padding_states(self, signature: Signature, worst: Lanes) -> list[Signature]:
        """The signature for every lane state that may cross, up to the worst that is read.

        What is carried on is read again, so that it is clean or may be anything.
        """
        places = dict(zip(self.crossing.ports, (*signature.inputs, *signature.outputs), strict=True))
        formats = {place: storage.format for place, storage in places.items() if storage is not None}
        if not any(has_padding(operand(self.op, place), storage) for place, storage in places.items()):
            return [signature]
        states = (Lanes.ZERO, Lanes.ANY) if self.crossing.is_loop_state else Lanes
        limit = Lanes.ANY if self.crossing.is_loop_state else worst
        return [self._signature(formats, state) for state in states if state <= limit]

    def _place(self, slot: Slot) -> RegionPort:
        return (self.crossing.sources if slot.side == "in" else self.crossing.targets)[slot.index]

    def _signature(self, formats: dict[RegionPort, Format], lanes: Lanes) -> Signature:
        def side(places: tuple[RegionPort, ...]) -> tuple[Storage | None, ...]:
            return tuple(Storage(formats[place], lanes) if place in formats else None for place in places)

        return Signature(side(self.crossing.sources), side(self.crossing.targets))


Unit: TypeAlias = Op | Handover
"""What chooses: an op its signature, a crossing its storage."""


class Nest:
    """A graph and the bodies in it that are understood.

    Attributes:
        graph: the graph.
        units: all that chooses, each behind what it reads but for what comes round in a loop.
        values: all values.
        homes: the graph that a value is in.
        places: the graph that a unit is in.
        runs: how often each graph is expected to run, or counts.
        writers: what gives a value, and as which of its outputs; no entry for inputs of the graph and constants.
        readers: what reads a value, and as which of its inputs.
    """

    def __init__(self, graph: Graph, *, by_runs: bool = True) -> None:
        """Walk through a graph; by default, what is in a body counts as often as that is expected to run."""
        self.graph = graph
        runs = expected_runs(graph)
        self._by_runs = by_runs
        self.runs = runs if by_runs else dict.fromkeys(runs, 1.0)
        self.units: list[Unit] = []
        self.homes: dict[Value, Graph] = {value: each for each in self.runs for value in each.values}
        self.places: dict[Unit, Graph] = {}
        self.values = list(self.homes)
        self.writers: dict[Value, tuple[Unit, int]] = {}
        self.readers: dict[Value, list[tuple[Unit, int]]] = {}
        pending: list[tuple[Graph, Unit]] = [(graph, op) for op in reversed(graph.ops)]
        while pending:
            home, unit = pending.pop()
            rule = region_rule(unit) if isinstance(unit, Op) else None
            if rule is None or isinstance(unit, Handover):
                self._add(home, unit)
                continue
            handovers = [Handover(unit, crossing) for crossing in rule.boundary_values(unit)]
            inside = [(body, op) for body in unit.bodies.values() for op in body.ops]
            before = [(home, each) for each in handovers if each.crossing.is_input]
            after = [(home, each) for each in handovers if not each.crossing.is_input]
            pending += reversed([*before, *inside, *after])

    def _add(self, home: Graph, unit: Unit) -> None:
        self.units.append(unit)
        self.places[unit] = home
        for index, value in enumerate(unit.outputs):
            if value is not None:
                self.writers[value] = unit, index
        for index, value in enumerate(unit.inputs):
            if value is not None:
                self.readers.setdefault(value, []).append((unit, index))

    def times(self, unit: Unit) -> float:
        """How often an op counts."""
        return self.runs[self.places[unit]]

    def casts(self, value: Value) -> float:
        """What a cast of a value costs, in casts outside of all bodies."""
        times = self.runs[self.homes[value]]
        return times * _INSIDE if self._by_runs and self.homes[value] is not self.graph else times

    def is_output(self, value: Value) -> bool:
        """Whether a value is an output of the graph, and not only of a body."""
        return self.homes[value] is self.graph and self.graph.is_output(value)

    def signatures(self, chosen: dict[Unit, Signature]) -> dict[Op, Signature]:
        """The signatures of all ops: those with bodies have theirs from what crosses there."""
        found = {unit: signature for unit, signature in chosen.items() if isinstance(unit, Op)}
        crossed: dict[Op, dict[Slot, Storage]] = {}
        for unit, signature in chosen.items():
            if isinstance(unit, Handover):
                storages = zip(unit.crossing.ports, (*signature.inputs, *signature.outputs), strict=True)
                outside = {place.slot: storage for place, storage in storages if not place.body and storage is not None}
                crossed.setdefault(unit.op, {}).update(outside)
        return found | {op: signature_at(op, storages) for op, storages in crossed.items()}
