"""The units of a planning problem: the ops of a graph and of its regions, and the values at the boundaries of the regions.

The planner chooses a signature for an op, and one storage for a boundary value. A boundary value reads the operands of the op
and the results of its bodies, and produces the inputs of the bodies and the results of the op. A body is therefore part of the
problem of the graph around it, and its cost is multiplied by the number of times that it is expected to run.
"""

from dataclasses import dataclass
from typing import TypeAlias

from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Padding, Signature, Slot, Storage, Value
from layoutopt.ops import Inapplicable, has_padding
from layoutopt.ops.region_ops import (
    BoundaryValue,
    RegionPort,
    expected_runs,
    operand,
    port_formats,
    region_rule,
    signature_with,
)

_CAST_IN_BODY = 1.001  # factor that breaks a tie: a cast before an If is preferred to one in each branch


@dataclass(frozen=True, slots=True, eq=False)
class BoundaryUnit:
    """A boundary value of an op with the interface of an op: its sources are the inputs, its targets the outputs."""

    op: Op
    boundary_value: BoundaryValue

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """The values at the sources."""
        return tuple(operand(self.op, port) for port in self.boundary_value.sources)

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        """The values at the targets."""
        return tuple(operand(self.op, port) for port in self.boundary_value.targets)

    def operand(self, slot: Slot) -> Value | None:
        """The value at a slot."""
        return operand(self.op, self._port(slot))

    def slots(self) -> list[Slot]:
        """The slots that hold a value, inputs first."""
        ins = [Slot("in", index) for index, value in enumerate(self.inputs) if value is not None]
        return ins + [Slot("out", index) for index, value in enumerate(self.outputs) if value is not None]

    def complete(self, at: Slot | None = None, format: Format | None = None) -> Signature | Inapplicable:
        """The signature with a given format at a slot, or else the canonical one; the reason if there is none."""
        formats = port_formats(self.op, self.boundary_value, None if at is None else self._port(at), format)
        return formats if isinstance(formats, Inapplicable) else self._signature(formats, Padding.ZERO)

    def with_padding_states(self, signature: Signature, worst: Padding) -> list[Signature]:
        """The signature for every padding state that the value may have, up to the worst state that is read.

        A loop reads its state again in the next iteration, so that its padding is zero or any.
        """
        storages = dict(zip(self.boundary_value.ports, (*signature.inputs, *signature.outputs), strict=True))
        formats = {port: storage.format for port, storage in storages.items() if storage is not None}
        if not any(has_padding(operand(self.op, port), storage) for port, storage in storages.items()):
            return [signature]
        states = (Padding.ZERO, Padding.ANY) if self.boundary_value.is_loop_state else Padding
        limit = Padding.ANY if self.boundary_value.is_loop_state else worst
        return [self._signature(formats, state) for state in states if state <= limit]

    def _port(self, slot: Slot) -> RegionPort:
        return (self.boundary_value.sources if slot.side == "in" else self.boundary_value.targets)[slot.index]

    def _signature(self, formats: dict[RegionPort, Format], padding: Padding) -> Signature:
        def side(ports: tuple[RegionPort, ...]) -> tuple[Storage | None, ...]:
            return tuple(Storage(formats[port], padding) if port in formats else None for port in ports)

        return Signature(side(self.boundary_value.sources), side(self.boundary_value.targets))


Unit: TypeAlias = Op | BoundaryUnit
"""A unit of the planning problem: the planner chooses the signature of an op, and the storage of a boundary value."""


class RegionTree:
    """A graph and the bodies of its ops at every depth, without the bodies of ops that have no region rule.

    Attributes:
        graph: the graph.
        units: all units; a unit follows the units whose outputs it reads, except for the state of a loop.
        values: all values.
        graph_of_value: the graph that contains a value.
        graph_of_unit: the graph that contains a unit.
        runs: the expected number of runs of each graph, or 1 if it is not a weight.
        writers: the unit that produces a value, and the index of the output; no entry for inputs of the graph and constants.
        readers: the units that read a value, and the index of the input.
    """

    def __init__(self, graph: Graph, *, weights_by_runs: bool = True) -> None:
        """Collect the units of a graph; by default, the prices in a body are multiplied by its expected number of runs."""
        self.graph = graph
        runs = expected_runs(graph)
        self._by_runs = weights_by_runs
        self.runs = runs if weights_by_runs else dict.fromkeys(runs, 1.0)
        self.units: list[Unit] = []
        self.graph_of_value: dict[Value, Graph] = {value: each for each in self.runs for value in each.values}
        self.graph_of_unit: dict[Unit, Graph] = {}
        self.values = list(self.graph_of_value)
        self.writers: dict[Value, tuple[Unit, int]] = {}
        self.readers: dict[Value, list[tuple[Unit, int]]] = {}
        pending: list[tuple[Graph, Unit]] = [(graph, op) for op in reversed(graph.ops)]
        while pending:
            owner, unit = pending.pop()
            rule = region_rule(unit) if isinstance(unit, Op) else None
            if rule is None or isinstance(unit, BoundaryUnit):
                self._add(owner, unit)
                continue
            boundary = [BoundaryUnit(unit, each) for each in rule.boundary_values(unit)]
            inside = [(body, op) for body in unit.bodies.values() for op in body.ops]
            before = [(owner, each) for each in boundary if each.boundary_value.is_input]
            after = [(owner, each) for each in boundary if not each.boundary_value.is_input]
            pending += reversed([*before, *inside, *after])

    def _add(self, owner: Graph, unit: Unit) -> None:
        self.units.append(unit)
        self.graph_of_unit[unit] = owner
        for index, value in enumerate(unit.outputs):
            if value is not None:
                self.writers[value] = unit, index
        for index, value in enumerate(unit.inputs):
            if value is not None:
                self.readers.setdefault(value, []).append((unit, index))

    def op_weight(self, unit: Unit) -> float:
        """The factor of the price of a unit: the runs of the graph that contains it."""
        return self.runs[self.graph_of_unit[unit]]

    def cast_weight(self, value: Value) -> float:
        """The factor of the price of a cast of a value: the runs of its graph, slightly more in a body."""
        times = self.runs[self.graph_of_value[value]]
        return times * _CAST_IN_BODY if self._by_runs and self.graph_of_value[value] is not self.graph else times

    def is_output(self, value: Value) -> bool:
        """Whether a value is an output of the graph, and not only of a body."""
        return self.graph_of_value[value] is self.graph and self.graph.is_output(value)

    def signatures(self, chosen: dict[Unit, Signature]) -> dict[Op, Signature]:
        """The signatures of all ops; that of an op with bodies consists of the storages of its boundary values."""
        found = {unit: signature for unit, signature in chosen.items() if isinstance(unit, Op)}
        boundaries: dict[Op, dict[Slot, Storage]] = {}
        for unit, signature in chosen.items():
            if isinstance(unit, BoundaryUnit):
                storages = zip(unit.boundary_value.ports, (*signature.inputs, *signature.outputs), strict=True)
                outside = {port.slot: storage for port, storage in storages if not port.body and storage is not None}
                boundaries.setdefault(unit.op, {}).update(outside)
        return found | {op: signature_with(op, storages) for op, storages in boundaries.items()}
