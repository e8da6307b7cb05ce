"""Ops with bodies, and the tensors that cross into these and out.

A body is planned with the graph around it, as one problem. What ties the two is that a tensor is stored in one way wherever
it crosses: a *crossing* is a tensor with all the places where it is handed on. Each operand of the op and of its bodies
stands in exactly one. Types cross the same way: a body reads what the op is given, without the axes that it does not see.

Ops with bodies of which there is no rule, or that do not have the operands that their definition asks for, are canonical
like any unknown op, and their bodies are left as they are.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from typing_extensions import override

from layoutopt.formats import Dim, Format, Part
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, DType, Lanes, Op, Signature, Slot, Storage, Value
from layoutopt.ir.verify import invariant
from layoutopt.ops.base import LayoutRule, rule_of
from layoutopt.ops.signatures import Inapplicable, OperandFormats, canonical_storage

ShapeOf: TypeAlias = Callable[[Value], tuple[Dim, ...] | None]


def own_shape(value: Value) -> tuple[Dim, ...] | None:
    """The shape that a value says itself; while types are being found out, more may be known."""
    return value.shape


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor crosses.

    Attributes:
        slot: an operand.
        body: whose it is: that of a body, or of the op itself if this is empty.
        hidden: axes that a body does not see, in ascending order.
    """

    slot: Slot
    body: str = ""
    hidden: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Crossing:
    """A tensor that is stored in one way at several places.

    Attributes:
        sources: where it is read: operands of the op, results of bodies.
        targets: where it is given: inputs of bodies, results of the op.
        is_fixed: it is canonical everywhere.
    """

    sources: tuple[Place, ...]
    targets: tuple[Place, ...]
    is_fixed: bool = False

    @property
    def places(self) -> tuple[Place, ...]:
        """All of them."""
        return (*self.sources, *self.targets)

    @property
    def is_carried(self) -> bool:
        """Whether what a body leaves is what it reads the next time."""
        return any(each.body for each in self.sources) and any(each.body for each in self.targets)

    @property
    def goes_in(self) -> bool:
        """Whether a body has to wait for it."""
        return not any(each.body for each in self.sources) or self.is_carried


def operand(op: Op, place: Place) -> Value | None:
    """The value at a place; None if the op has none there."""
    if not place.body:
        values = op.inputs if place.slot.side == "in" else op.outputs
    else:
        body = op.bodies[place.body]
        values = (*body.inputs,) if place.slot.side == "in" else (*body.outputs,)
    return values[place.slot.index] if place.slot.index < len(values) else None


class ControlFlow(LayoutRule):
    """A rule for ops with bodies. What it lists of an op is legal only if `is_sound` holds of it."""

    family = "control_flow"
    has_independent_operands = True
    is_always_agnostic = True

    @abstractmethod
    def is_sound(self, op: Op) -> bool:
        """Whether op and bodies have the operands that the operator's definition asks for."""

    @abstractmethod
    def crossings(self, op: Op) -> list[Crossing]:
        """Every operand of the op and of its bodies, in one crossing each."""

    @abstractmethod
    def runs(self, op: Op) -> dict[str, float]:
        """How often each body is expected to run when the op runs once."""

    def certain_body(self, op: Op) -> str:
        """The body that the op runs once and does nothing else; empty if that is not certain."""
        del op
        return ""

    def length(self, op: Op, shape_of: ShapeOf = own_shape) -> Dim | None:
        """The extent of the axis along which the results of iterations are put together, if there is a name for it."""
        del op, shape_of
        return None

    def physical_attributes(self, op: Op, signature: Signature) -> Mapping[str, Attribute]:
        """The attributes of the op on arrays as they lie under a signature."""
        del signature
        return op.attributes

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """Each crossing in the format that is known of it, else canonical."""
        if not self.is_sound(op):
            return Inapplicable("its bodies do not have the operands that they should have")
        found: dict[Slot, Format] = {}
        for crossing in self.crossings(op):
            at = next((each for each in crossing.places if not each.body and each.slot in known), None)
            formats = formats_at(op, crossing, at, None if at is None else known[at.slot])
            if isinstance(formats, Inapplicable):
                return formats
            found |= {place.slot: format for place, format in formats.items() if not place.body}
        if any(format != found.get(slot) for slot, format in known.items()):
            return Inapplicable("a tensor has one format wherever it crosses the boundary of a body")
        return signature_at(op, {slot: Storage(format) for slot, format in found.items()})

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Bodies take any garbage and leave none, but what is carried on may be finite only in the first round."""
        states: dict[Slot, Lanes] = {}
        for crossing in self.crossings(op):
            read = [inputs[place.slot.index] for place in crossing.sources if not place.body]
            worst = max(read, default=Lanes.ZERO)
            if crossing.is_carried and worst is Lanes.FINITE:
                return None
            states |= {place.slot: worst for place in crossing.targets if not place.body}
        return tuple(states.get(Slot("out", index), Lanes.ZERO) for index in range(len(op.outputs)))

    @override
    def flops(self, op: Op) -> float:
        return 0.0


def formats_at(
    op: Op, crossing: Crossing, at: Place | None, format: Format | None
) -> dict[Place, Format] | Inapplicable:
    """The formats of a crossing at all places where the op has a tensor of known rank.

    Args:
        op: the op.
        crossing: one of its crossings.
        at: a place of it; None if the tensor is canonical everywhere.
        format: the format there.
    """
    values = {place: value for place in crossing.places if (value := operand(op, place)) is not None}
    ranks = {place: value.rank for place, value in values.items()}
    plain = {place: Format.canonical(rank) for place, rank in ranks.items() if rank is not None}
    if at is None or format is None or (at in plain and format == plain[at]):
        return plain
    if crossing.is_fixed or at not in plain or all(place.body for place in plain):
        return Inapplicable("it is canonical wherever it crosses the boundary of a body")
    if len(plain) < len(values):
        return Inapplicable("its rank is not known wherever it crosses the boundary of a body")
    if format.parts[: len(at.hidden)] != tuple(map(Part, at.hidden)):
        return Inapplicable(f"{format} does not have the axes outermost along which the op works: {at.hidden}")
    inside = format.restrict([axis for axis in range(format.rank) if axis not in at.hidden])
    found = {}
    for place, value in values.items():
        found[place] = format if place == at else _around(inside, place)
        shape, wanted = value.shape, found[place]
        if shape is None or not wanted.fits(shape) or 0 in shape:
            return Inapplicable(f"{wanted} does not fit {value.name}")
        if value.dtype is DType.STRING and not wanted.is_plain:
            return Inapplicable(f"{value.name} holds strings, and there is no zero among them")
    if len({_blocked_extents(each, found[each], values[each]) for each in found}) > 1:
        return Inapplicable("a blocked extent is not the same wherever it crosses the boundary of a body")
    return found


def _around(inside: Format, place: Place) -> Format:
    """A body's format with the axes that it does not see outermost."""
    seen = [axis for axis in range(inside.rank + len(place.hidden)) if axis not in place.hidden]
    parts = (Part(seen[part.axis], part.block, part.step) for part in inside.parts)
    return Format((*map(Part, place.hidden), *parts))


def _blocked_extents(place: Place, format: Format, value: Value) -> tuple[int | str, ...]:
    assert value.shape is not None
    return tuple(value.shape[axis] for axis in format.blocked_axes)


def signature_at(op: Op, found: Mapping[Slot, Storage]) -> Signature:
    """A signature from the storages of some slots, the rest canonical."""
    inputs = (found.get(Slot("in", index), canonical_storage(value)) for index, value in enumerate(op.inputs))
    outputs = (found.get(Slot("out", index), canonical_storage(value)) for index, value in enumerate(op.outputs))
    return Signature(tuple(inputs), tuple(outputs))


def control_flow(op: Op) -> ControlFlow | None:
    """The rule for an op with bodies that is understood, so that its bodies are as well."""
    rule = rule_of(op) if op.bodies else None
    return rule if isinstance(rule, ControlFlow) and rule.is_sound(op) else None


def insides(graph: Graph) -> list[Graph]:
    """A graph and the bodies in it that are understood, however deep, each behind the graph that its op is in."""
    found = [graph]
    for each in found:  # it grows on the way
        found += [body for op in each.ops if control_flow(op) is not None for body in op.bodies.values()]
    return found


def expected_runs(graph: Graph) -> dict[Graph, float]:
    """How often each of them is expected to run when the graph runs once."""
    found = {graph: 1.0}
    for each in insides(graph):
        for op in each.ops:
            rule = control_flow(op)
            for name, count in rule.runs(op).items() if rule is not None else ():
                found[op.bodies[name]] = found[each] * count
    return found


def boundary(op: Op, signature: Signature) -> dict[Place, Storage]:
    """How the operands of the bodies of an op lie under its signature, and may come out of them."""
    rule = control_flow(op)
    assert rule is not None
    found: dict[Place, Storage] = {}
    for crossing in rule.crossings(op):
        given = next((each for each in crossing.places if not each.body and operand(op, each) is not None), None)
        storages = [signature[each.slot] for each in crossing.places if not each.body and operand(op, each) is not None]
        storage = storages[0] if storages else None
        formats = formats_at(op, crossing, given, None if storage is None else storage.format)
        assert not isinstance(formats, Inapplicable), f"{op!r}: {formats.reason}"
        lanes = max((each.lanes for each in storages if each is not None), default=Lanes.ZERO)
        found |= {place: Storage(format, lanes) for place, format in formats.items() if place.body}
    return found


def unwrap(graph: Graph, op: Op, name: str) -> None:
    """Put the ops of a body, which runs once and has no inputs but captures, in the place of its op.

    before: x -> If(then: Relu(x)) -> y      x -> If(then: x) -> y
    after:  x -> Relu -> y                   x -> Identity -> y
    """
    body = op.bodies[name]
    values = dict(zip(body.inputs, op.inputs[op.own_inputs :], strict=True))
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
            _take_over(graph, output, result)
        else:
            order = (*op.order, len(moved), index)
            graph.add_op(
                Op("Identity", (result,), (output,), version=graph.opsets.get("", 0), name=output.name, order=order)
            )


def _take_over(graph: Graph, old: Value, new: Value) -> None:
    """Let a value that an op computes have the readers and the name of one that nothing computes any more."""
    graph.replace_uses(old, new)
    graph.replace_output(old, new)
    graph.remove_value(old)
    graph.rename(new, old.name)
    new.tensor, new.origin = old.tensor, old.origin


@invariant
def bodies_lie_as_the_signature_of_their_op_says(graph: Graph) -> Iterator[str]:
    """After casts are inserted: what a body reads lies as the op hands it on, what it gives as the op hands it out."""
    for op in graph.ops if graph.stage == "cast" else ():
        if op.signature is None or control_flow(op) is None:
            continue
        for place, wanted in boundary(op, op.signature).items():
            value = operand(op, place)
            if value is None or value.storage is None:
                continue
            has = value.storage
            fits = has.lanes == wanted.lanes if place.slot.side == "in" else has.lanes <= wanted.lanes
            if has.format != wanted.format or not fits:
                yield f"{place.slot} of {place.body} of {op!r}: {has} where {wanted} is needed"
