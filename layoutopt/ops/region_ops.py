"""Ops with regions (If, Loop, Scan), and the values at the boundary of their regions.

A region is planned together with the graph around it. The two are connected by *boundary values*: a boundary value is a
tensor that has one storage at all of its *ports*, the operands of the op and of its regions that are this tensor. Each
operand is a port of exactly one boundary value. Types propagate the same way: a region port has the type of the op's operand
without the scan axes.

Ops with regions that have no rule, or whose operands are not those of their definition, run in canonical format like any
other op without a rule, and their regions are not changed.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from typing_extensions import override

from layoutopt.formats import Dim, Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Op, Padding, Signature, Slot, Storage, Value
from layoutopt.ir.verify import invariant
from layoutopt.ops.base import LayoutRule, register, rule_of
from layoutopt.ops.signatures import (
    ANY,
    FINITE,
    ZERO,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    States,
    canonical_storage,
)

ShapeLookup: TypeAlias = Callable[[Value], tuple[Dim, ...] | None]


def declared_shape(value: Value) -> tuple[Dim, ...] | None:
    """The shape of a value's type; type inference passes another function, which returns inferred shapes."""
    return value.shape


@dataclass(frozen=True, slots=True)
class RegionPort:
    """An operand of an op with regions, or of one of its regions.

    Attributes:
        slot: the operand.
        body: the name of the region; empty for an operand of the op itself.
        scan_axes: the axis of the iterations of the op's operand, which the region's operand lacks, if there is one.
    """

    slot: Slot
    body: str = ""
    scan_axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundaryValue:
    """A tensor with one storage at several ports.

    Attributes:
        sources: the ports that are read: operands of the op, results of regions.
        targets: the ports that are written: inputs of regions, results of the op.
        is_fixed: whether it is canonical at all ports.
    """

    sources: tuple[RegionPort, ...]
    targets: tuple[RegionPort, ...]
    is_fixed: bool = False

    @property
    def ports(self) -> tuple[RegionPort, ...]:
        """All ports."""
        return (*self.sources, *self.targets)

    @property
    def is_loop_state(self) -> bool:
        """Whether the result of a region is an input of its next iteration."""
        return any(each.body for each in self.sources) and any(each.body for each in self.targets)

    @property
    def is_input(self) -> bool:
        """Whether a region requires the value before it runs."""
        return not any(each.body for each in self.sources) or self.is_loop_state


def operand(op: Op, port: RegionPort) -> Value | None:
    """The value at a port; None if it is absent."""
    if not port.body:
        values = op.inputs if port.slot.side == "in" else op.outputs
    else:
        body = op.bodies[port.body]
        values = (*body.inputs,) if port.slot.side == "in" else (*body.outputs,)
    return values[port.slot.index] if port.slot.index < len(values) else None


class ControlFlow(LayoutRule):
    """A rule for ops with regions. Its methods are defined only for well-formed ops."""

    family = "control_flow"
    has_independent_operands = True
    is_always_agnostic = True
    operations = (0.0, Slot("out", 0))

    @abstractmethod
    def is_well_formed(self, op: Op) -> bool:
        """Whether op and regions have the operands that the definition of the operator requires."""

    @abstractmethod
    def boundary_values(self, op: Op) -> list[BoundaryValue]:
        """The boundary values; every operand of the op and of its regions is a port of exactly one."""

    @abstractmethod
    def runs_per_body(self, op: Op) -> dict[str, float]:
        """The expected number of runs of each region per run of the op."""

    def unconditional_body(self, op: Op) -> str:
        """The name of the region that the op runs exactly once and no other; empty if that depends on run-time values."""
        return ""

    def trip_count(self, op: Op, shape_of: ShapeLookup = declared_shape) -> Dim | None:
        """The extent of the axis along which results of iterations are concatenated; None if unknown."""
        return None

    @override
    def canonical_reason(self, op: Op) -> str:
        return "" if self.is_well_formed(op) else "its regions do not have the operands that its definition requires"

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The signature with every boundary value in its known format, canonical by default."""
        found: dict[Slot, Format] = {}
        for boundary_value in self.boundary_values(op):
            at = next((each for each in boundary_value.ports if not each.body and each.slot in known), None)
            formats = port_formats(op, boundary_value, at, None if at is None else known[at.slot])
            if isinstance(formats, Inapplicable):
                return formats
            found |= {port.slot: format for port, format in formats.items() if not port.body}
        if any(format != found.get(slot) for slot, format in known.items()):
            return Inapplicable("a boundary value has one format at all of its ports")
        return signature_with(op, {slot: Storage(format) for slot, format in found.items()})

    def transfer_padding(self, op: Op, signature: Signature, inputs: States) -> States | None:
        """The largest state of each boundary value's sources; None for finite loop states, which iterations may enlarge."""
        states: dict[Slot, Padding] = {}
        for boundary_value in self.boundary_values(op):
            read = [inputs[port.slot.index] for port in boundary_value.sources if not port.body]
            largest = max(read, default=ZERO)
            if boundary_value.is_loop_state and largest is FINITE:
                return None
            states |= {port.slot: largest for port in boundary_value.targets if not port.body}
        return tuple(states.get(Slot("out", index), ZERO) for index in range(len(op.outputs)))


def port_formats(
    op: Op, boundary_value: BoundaryValue, at: RegionPort | None, format: Format | None
) -> dict[RegionPort, Format] | Inapplicable:
    """The formats of a boundary value at all of its ports.

    Args:
        op: the op.
        boundary_value: one of its boundary values.
        at: a port; None if the tensor is canonical at all ports.
        format: the format at that port.

    Returns:
        The format at every port with a tensor of known rank, or the reason why there is none.
    """
    values = {port: value for port in boundary_value.ports if (value := operand(op, port)) is not None}
    ranks = {port: value.rank for port, value in values.items()}
    plain = {port: Format.canonical(rank) for port, rank in ranks.items() if rank is not None}
    if at is None or format is None or (at in plain and format == plain[at]):
        return plain
    if boundary_value.is_fixed or at not in plain or all(port.body for port in plain):
        return Inapplicable("the boundary value has to be canonical")
    if len(plain) < len(values):
        return Inapplicable("the rank of the boundary value is unknown at a port")
    found = dict.fromkeys(values, format)
    for value in values.values():
        if not format.fits(value.dims) or 0 in value.dims:
            return Inapplicable(f"{value.format_text(format)} does not fit {value.name}")
        if value.dtype is DType.STRING and not format.is_plain:
            return Inapplicable(f"{value.name} holds strings, which cannot be padded with zeros")
    if len({tuple(value.dims[axis] for axis in format.blocked_axes) for value in values.values()}) > 1:
        return Inapplicable("a blocked extent differs between the ports of a boundary value")
    return found


def signature_with(op: Op, found: Mapping[Slot, Storage]) -> Signature:
    """The signature with storages at some slots, the other operands canonical."""
    inputs = (found.get(Slot("in", index), canonical_storage(value)) for index, value in enumerate(op.inputs))
    outputs = (found.get(Slot("out", index), canonical_storage(value)) for index, value in enumerate(op.outputs))
    return Signature(tuple(inputs), tuple(outputs))


def region_rule(op: Op) -> ControlFlow | None:
    """The rule for a well-formed op with regions; None for other ops."""
    rule = rule_of(op) if op.bodies else None
    return rule if isinstance(rule, ControlFlow) and rule.is_well_formed(op) else None


def regions_with_rule(graph: Graph) -> list[Graph]:
    """A graph and the regions of its ops with a region rule, recursively, each behind the graph of its op."""
    found = [graph]
    for each in found:  # extended in the loop
        found += [body for op in each.ops if region_rule(op) is not None for body in op.bodies.values()]
    return found


def expected_runs(graph: Graph) -> dict[Graph, float]:
    """The expected number of runs of a graph and of each region in it, per run of the graph."""
    found = {graph: 1.0}
    for each in regions_with_rule(graph):
        for op in each.ops:
            rule = region_rule(op)
            for name, count in rule.runs_per_body(op).items() if rule is not None else ():
                found[op.bodies[name]] = found[each] * count
    return found


def port_storages(op: Op, signature: Signature) -> dict[RegionPort, Storage]:
    """The storages at the ports of an op's regions under its signature."""
    rule = region_rule(op)
    assert rule is not None
    found: dict[RegionPort, Storage] = {}
    for boundary_value in rule.boundary_values(op):
        given = next((each for each in boundary_value.ports if not each.body and operand(op, each) is not None), None)
        storages = [
            signature[each.slot] for each in boundary_value.ports if not each.body and operand(op, each) is not None
        ]
        storage = storages[0] if storages else None
        formats = port_formats(op, boundary_value, given, None if storage is None else storage.format)
        assert not isinstance(formats, Inapplicable), f"{op!r}: {formats.reason}"
        padding = max((each.padding for each in storages if each is not None), default=ZERO)
        found |= {port: Storage(format, padding) for port, format in formats.items() if port.body}
    return found


def inline_region(graph: Graph, op: Op, name: str) -> None:
    """Replace an op by the ops of a region that runs exactly once and has only captured inputs.

    before: x -> If(then: Relu(x)) -> y      x -> If(then: x) -> y
    after:  x -> Relu -> y                   x -> Identity -> y
    """
    body = op.bodies[name]
    values = dict(zip(body.inputs, op.inputs[op.uncaptured_input_count :], strict=True))
    for value in body.values:
        if value not in values:
            value.name = value.tensor = graph.fresh_name(f"{value.name}__unwrapped")
            values[value] = graph.add_value(value)
    moved = body.ops
    for each in moved:
        each.inputs = tuple(value and values[value] for value in each.inputs)
        each.order = (*op.order, *each.order)
        graph.add_op(each)
    results = [values[value] for value in body.outputs]
    outputs, computed = op.outputs, {value for each in moved for value in each.outputs if value is not None}
    graph.set_outputs(op, ())
    graph.remove_op(op)
    for index, (result, output) in enumerate(zip(results, outputs, strict=True)):
        if result is None or output is None:
            continue
        if result in computed:
            computed.remove(result)
            graph.replace_value(output, result)
        else:
            order = (*op.order, len(moved), index)
            graph.add_op(
                Op("Identity", (result,), (output,), version=graph.opsets.get("", 0), name=output.name, order=order)
            )


@invariant
def bodies_have_the_storages_of_the_signature_of_their_op(graph: Graph) -> Iterator[str]:
    """After casts are inserted: every port of a region has the storage that the signature of its op requires."""
    for op in graph.ops if graph.stage == "cast" else ():
        if op.signature is None or region_rule(op) is None:
            continue
        for port, required in port_storages(op, op.signature).items():
            value = operand(op, port)
            if value is None or value.storage is None:
                continue
            has = value.storage
            fits = has.padding == required.padding if port.slot.side == "in" else has.padding <= required.padding
            if has.format != required.format or not fits:
                yield f"{port.slot} of {port.body} of {op!r}: {has} where {required} is needed"


# --- If, Loop and Scan: their boundary values, and how often their regions run ---
#
#     If     result   <-  the results of both branches
#     Loop   state    <-  the initial state and the result of the body; read by the body and by readers of the final state
#            output   <-  the result of the body, all iterations along a new first axis
#     Scan   element  <-  the sequence without the scanned axis
#     all    capture  <-  a value of the enclosing graph that a region reads
#
# Branches of an If are expected to run every other time. The trip count of a loop is a guess if it is computed.


DEFAULT_TRIP_COUNT = 10.0  # expected iterations of a loop with a computed trip count; a guess
MAX_TRIP_COUNT = 1e4  # larger counts change no plan, and the solver requires costs in one range
_SCAN_WITHOUT_BATCH = 9  # the opset


def _input_value(slot: Slot, *bodies: tuple[str, int]) -> BoundaryValue:
    """An operand of the op that is an input of regions, given as pairs of region and input index."""
    return BoundaryValue((RegionPort(slot),), tuple(RegionPort(Slot("in", index), body) for body, index in bodies))


def _captures(op: Op) -> list[BoundaryValue]:
    """The captured values, which are the last inputs of the op and of its regions."""
    found = []
    for offset in range(op.captured):
        inner = ((name, len(body.inputs) - op.captured + offset) for name, body in op.bodies.items())
        found.append(_input_value(Slot("in", op.uncaptured_input_count + offset), *inner))
    return found


def _is_true(array: Array | None) -> bool:
    return array is not None and array.size == 1 and bool(array.reshape(-1)[0])


@register
class If(ControlFlow):
    """One of two branches, whose inputs are all captured."""

    formats = "any that its branches and its neighbours agree on"
    padding = PaddingTransfer(ZERO, ZERO, ZERO, "the states of its branches")

    ops = ("If",)

    def is_well_formed(self, op: Op) -> bool:
        """Whether there are two branches with as many results as the op."""
        bodies = op.bodies.values()
        alike = all((len(body.inputs), len(body.outputs)) == (op.captured, len(op.outputs)) for body in bodies)
        return set(op.bodies) == {"then_branch", "else_branch"} and op.uncaptured_input_count == 1 and alike

    @override
    def boundary_values(self, op: Op) -> list[BoundaryValue]:
        results = [
            BoundaryValue(
                tuple(RegionPort(Slot("out", index), body) for body in op.bodies), (RegionPort(Slot("out", index)),)
            )
            for index in range(len(op.outputs))
        ]
        return [BoundaryValue((RegionPort(Slot("in", 0)),), (), is_fixed=True), *_captures(op), *results]

    @override
    def runs_per_body(self, op: Op) -> dict[str, float]:
        return dict.fromkeys(op.bodies, 0.5)

    def unconditional_body(self, op: Op) -> str:
        """The branch that a constant condition selects; empty if the condition is computed."""
        condition = op.constant(0)
        if condition is None or condition.size != 1:
            return ""
        return "then_branch" if _is_true(condition) else "else_branch"


@register
class Loop(ControlFlow):
    """A body that runs a number of times, while a condition is true.

    inputs: (M, condition, states)      body: (number, condition, states) -> (condition, states, outputs)
    """

    formats = "any that its body and its neighbours agree on; one format for all iterations"
    padding = PaddingTransfer(ZERO, None, ANY, "the states of its body")

    ops = ("Loop",)

    def is_well_formed(self, op: Op) -> bool:
        """Whether the body has as many states among its results as among its inputs."""
        body = op.bodies.get("body")
        if body is None or len(op.bodies) > 1 or op.uncaptured_input_count < 2:
            return False
        states = op.uncaptured_input_count - 2
        enough = len(body.outputs) >= 1 + states and len(op.outputs) <= len(body.outputs) - 1
        return enough and len(body.inputs) == 2 + states + op.captured and None not in op.inputs[2:]

    def boundary_values(self, op: Op) -> list[BoundaryValue]:
        """The boundary values: counter and condition are canonical, a state has one storage in all iterations."""
        body, states = op.bodies["body"], op.uncaptured_input_count - 2
        found = [BoundaryValue((RegionPort(Slot("in", index)),), (), is_fixed=True) for index in range(2)]
        found += [BoundaryValue((), (RegionPort(Slot("in", index), "body"),), is_fixed=True) for index in range(2)]
        found.append(BoundaryValue((RegionPort(Slot("out", 0), "body"),), (), is_fixed=True))
        for index in range(states):
            sources = (RegionPort(Slot("in", 2 + index)), RegionPort(Slot("out", 1 + index), "body"))
            found.append(
                BoundaryValue(sources, (RegionPort(Slot("in", 2 + index), "body"), RegionPort(Slot("out", index))))
            )
        for index in range(states, len(body.outputs) - 1):
            outer = RegionPort(Slot("out", index), scan_axes=(0,))
            found.append(BoundaryValue((RegionPort(Slot("out", 1 + index), "body"),), (outer,), is_fixed=True))
        return [*found, *_captures(op)]

    def runs_per_body(self, op: Op) -> dict[str, float]:
        """The trip count M if the condition stays true and M is constant, else a guess of at most M."""
        limit = op.constant(0)
        if limit is None or limit.size != 1:
            return {"body": DEFAULT_TRIP_COUNT}
        trips = min(max(float(limit.reshape(-1)[0]), 0.0), MAX_TRIP_COUNT)
        return {"body": trips if self._is_counted_loop(op) else min(trips, DEFAULT_TRIP_COUNT)}

    def trip_count(self, op: Op, shape_of: ShapeLookup = declared_shape) -> Dim | None:
        """The trip count M, if the condition stays true and M is constant; else None."""
        limit = op.constant(0)
        if limit is None or limit.size != 1 or not self._is_counted_loop(op):
            return None
        return max(int(limit.reshape(-1)[0]), 0)

    def _is_counted_loop(self, op: Op) -> bool:
        """Whether the condition stays true, so that the loop ends after M iterations."""
        body = op.bodies["body"]
        value = body.outputs[0]
        while (producer := body.producer(value)) is not None:
            if producer.kind != "Identity" or producer.inputs[0] is None:
                return False
            value = producer.inputs[0]
        begins = op.inputs[1] is None or _is_true(op.constant(1))
        return begins and (value is body.inputs[1] or (value.data is not None and _is_true(value.data.numpy())))


@register
class Scan(ControlFlow):
    """A body that runs for every element of sequences.

    inputs: (states, sequences)      body: (states, elements) -> (states, outputs)
    """

    formats = "any that its body and its neighbours agree on; canonical for scanned arrays"
    padding = PaddingTransfer(ZERO, None, ANY, "the states of its body")

    ops = ("Scan",)

    def is_well_formed(self, op: Op) -> bool:
        """Whether the body has as many states among its results as among its inputs, and no operand is absent.

        Scan of opset 8, whose operands have a batch axis that the body does not have, has no rule.
        """
        body = op.bodies.get("body")
        if body is None or len(op.bodies) > 1 or op.version < _SCAN_WITHOUT_BATCH:
            return False
        states, sequences = self._counts(op)
        inputs = states >= 0 and len(body.inputs) == states + sequences + op.captured and None not in op.inputs
        counts = {"scan_input_axes": sequences, "scan_output_axes": len(op.outputs) - states}
        axes = [self._axes(op, name, count) for name, count in counts.items()]
        return inputs and sequences > 0 and len(op.outputs) == len(body.outputs) >= states and None not in axes

    def _counts(self, op: Op) -> tuple[int, int]:
        """The number of states, and the number of sequences."""
        sequences = op.integer("num_scan_inputs")
        return op.uncaptured_input_count - sequences, sequences

    def _axes(self, op: Op, name: str, count: int) -> list[int] | None:
        """The scanned axes; None if one is unknown."""
        axes = op.integers(name, (0,) * count)
        if len(axes) != count:
            return None
        states, _ = self._counts(op)
        values = op.inputs[states : op.uncaptured_input_count] if name == "scan_input_axes" else op.outputs[states:]
        ranks = [None if value is None else value.rank for value in values]
        if name == "scan_output_axes":  # the rank of the op's result may not be known yet
            inner = [value.rank for value in op.bodies["body"].outputs[states:]]
            ranks = [outer if rank is None else rank + 1 for outer, rank in zip(ranks, inner, strict=False)]
        if any(rank is None for rank, axis in zip(ranks, axes, strict=True) if axis < 0):
            return None
        return [axis + (rank or 0) if axis < 0 else axis for rank, axis in zip(ranks, axes, strict=True)]

    def boundary_values(self, op: Op) -> list[BoundaryValue]:
        """The boundary values: a state has one storage, sequences are canonical."""
        states, sequences = self._counts(op)
        found = []
        for index in range(states):
            sources = (RegionPort(Slot("in", index)), RegionPort(Slot("out", index), "body"))
            targets = (RegionPort(Slot("in", index), "body"), RegionPort(Slot("out", index)))
            found.append(BoundaryValue(sources, targets))
        for index, axis in enumerate(self._axes(op, "scan_input_axes", sequences) or (), states):
            outer = RegionPort(Slot("in", index), scan_axes=(axis,))
            found.append(BoundaryValue((outer,), (RegionPort(Slot("in", index), "body"),), is_fixed=True))
        for index, axis in enumerate(self._axes(op, "scan_output_axes", len(op.outputs) - states) or (), states):
            outer = RegionPort(Slot("out", index), scan_axes=(axis,))
            found.append(BoundaryValue((RegionPort(Slot("out", index), "body"),), (outer,), is_fixed=True))
        return [*found, *_captures(op)]

    def runs_per_body(self, op: Op) -> dict[str, float]:
        """The extent of the scanned axis."""
        length = self.trip_count(op)
        return {"body": min(float(length), MAX_TRIP_COUNT) if isinstance(length, int) else DEFAULT_TRIP_COUNT}

    @override
    def trip_count(self, op: Op, shape_of: ShapeLookup = declared_shape) -> Dim | None:
        states, sequences = self._counts(op)
        axes = self._axes(op, "scan_input_axes", sequences) or []
        scanned = zip(op.inputs[states : op.uncaptured_input_count], axes, strict=False)
        shapes = [(None if value is None else shape_of(value), axis) for value, axis in scanned]
        found = [None if shape is None else shape[axis] for shape, axis in shapes]
        return next((each for each in found if isinstance(each, int)), found[0] if found else None)
