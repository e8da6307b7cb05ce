"""If, Loop and Scan: what crosses into their bodies and out, and how often these run.

    If     y        <-  the outputs of both branches
    Loop   state    <-  the initial state and what the body leaves; given to the body and to the reader of the final state
           output   <-  what the body leaves, all iterations along a new first axis
    Scan   element  <-  the sequence, without the axis that is scanned
    all    capture  <-  a value of the graph around, for the body that reads it

How often a body runs is a guess of the branches of an If (one in two) and of loops whose end is computed.
"""

from collections.abc import Mapping

from layoutopt.formats import Dim
from layoutopt.ir.types import Array, Attribute, Lanes, Op, Signature, Slot
from layoutopt.ops.base import register
from layoutopt.ops.bodies import ControlFlow, Crossing, Place, ShapeOf, operand, own_shape
from layoutopt.ops.passage import Passage
from layoutopt.ops.signatures import extent

TRIPS = 10.0  # of a loop whose end is computed; a guess
MOST_TRIPS = 1e4  # more do not change which plan is the best one, and prices have to stay comparable
_BATCHED = 8  # the opset in which Scan worked on batches


def _entry(slot: Slot, *bodies: tuple[str, int]) -> Crossing:
    """An operand of the op, given to bodies as their inputs of these numbers."""
    return Crossing((Place(slot),), tuple(Place(Slot("in", index), body) for body, index in bodies))


def _captures(op: Op) -> list[Crossing]:
    """The last inputs of the op and of its bodies."""
    found = []
    for offset in range(op.captured):
        inner = ((name, len(body.inputs) - op.captured + offset) for name, body in op.bodies.items())
        found.append(_entry(Slot("in", op.own_inputs + offset), *inner))
    return found


def _is_true(array: Array | None) -> bool:
    return array is not None and array.size == 1 and bool(array.reshape(-1)[0])


@register
class If(ControlFlow):
    """One of two branches, which read nothing but captures."""

    formats = "whatever its branches and those around it agree on"
    becomes = Passage(Lanes.ZERO, Lanes.ZERO, Lanes.ZERO, "those of its branches")

    ops = ("If",)

    def is_sound(self, op: Op) -> bool:
        """Two branches with as many results as the op has."""
        bodies = op.bodies.values()
        alike = all((len(body.inputs), len(body.outputs)) == (op.captured, len(op.outputs)) for body in bodies)
        return set(op.bodies) == {"then_branch", "else_branch"} and op.own_inputs == 1 and alike

    def crossings(self, op: Op) -> list[Crossing]:
        """The condition, captures, results."""
        results = [
            Crossing(tuple(Place(Slot("out", index), body) for body in op.bodies), (Place(Slot("out", index)),))
            for index in range(len(op.outputs))
        ]
        return [Crossing((Place(Slot("in", 0)),), (), is_fixed=True), *_captures(op), *results]

    def runs(self, op: Op) -> dict[str, float]:
        """One in two."""
        return dict.fromkeys(op.bodies, 0.5)

    def certain_body(self, op: Op) -> str:
        """The branch of a constant condition."""
        condition = op.constant(0)
        if condition is None or condition.size != 1:
            return ""
        return "then_branch" if _is_true(condition) else "else_branch"


@register
class Loop(ControlFlow):
    """A body that is run so many times, while a condition holds.

    inputs: (M, condition, states)      body: (number, condition, states) -> (condition, states, outputs)
    """

    formats = "whatever its body and those around it agree on; the same in every round"
    becomes = Passage(Lanes.ZERO, None, Lanes.ANY, "those of its body")

    ops = ("Loop",)

    def is_sound(self, op: Op) -> bool:
        """As many states go in as come out."""
        body = op.bodies.get("body")
        if body is None or len(op.bodies) > 1 or op.own_inputs < 2:
            return False
        states = op.own_inputs - 2
        enough = len(body.outputs) >= 1 + states and len(op.outputs) <= len(body.outputs) - 1
        return enough and len(body.inputs) == 2 + states + op.captured and None not in op.inputs[2:]

    def crossings(self, op: Op) -> list[Crossing]:
        """What counts and decides is canonical; states are carried."""
        body, states = op.bodies["body"], op.own_inputs - 2
        found = [Crossing((Place(Slot("in", index)),), (), is_fixed=True) for index in range(2)]
        found += [Crossing((), (Place(Slot("in", index), "body"),), is_fixed=True) for index in range(2)]
        found.append(Crossing((Place(Slot("out", 0), "body"),), (), is_fixed=True))
        for index in range(states):
            sources = (Place(Slot("in", 2 + index)), Place(Slot("out", 1 + index), "body"))
            found.append(Crossing(sources, (Place(Slot("in", 2 + index), "body"), Place(Slot("out", index)))))
        for index in range(states, len(body.outputs) - 1):
            outer = Place(Slot("out", index), hidden=(0,))
            found.append(Crossing((Place(Slot("out", 1 + index), "body"),), (outer,)))
        return [*found, *_captures(op)]

    def runs(self, op: Op) -> dict[str, float]:
        """M if nothing else ends the loop and it is a number, else a guess that is not above it."""
        limit = op.constant(0)
        if limit is None or limit.size != 1:
            return {"body": TRIPS}
        trips = min(max(float(limit.reshape(-1)[0]), 0.0), MOST_TRIPS)
        return {"body": trips if self._runs_to_the_end(op) else min(trips, TRIPS)}

    def length(self, op: Op, shape_of: ShapeOf = own_shape) -> Dim | None:
        """M, if nothing else ends the loop and it is a number."""
        del shape_of
        limit = op.constant(0)
        if limit is None or limit.size != 1 or not self._runs_to_the_end(op):
            return None
        return max(int(limit.reshape(-1)[0]), 0)

    def _runs_to_the_end(self, op: Op) -> bool:
        """Whether the condition is true, or the one that came in, which was."""
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
    """A body that is run for every element of sequences.

    inputs: (states, sequences)      body: (states, elements) -> (states, outputs)

    Before opset 9 all of them have a batch axis that the body does not see, and there is an input of lengths before them.
    """

    formats = "whatever its body and those around it agree on, the scanned axis outermost"
    becomes = Passage(Lanes.ZERO, None, Lanes.ANY, "those of its body")

    ops = ("Scan",)

    def is_sound(self, op: Op) -> bool:
        """As many states go in as come out, and every operand is there."""
        body = op.bodies.get("body")
        if body is None or len(op.bodies) > 1:
            return False
        first, states, sequences = self._extents(op)
        inputs = states >= 0 and len(body.inputs) == states + sequences + op.captured and None not in op.inputs[first:]
        axes = [self._axes(op, name, count) for name, count in self._lists(op)]
        return inputs and sequences > 0 and len(op.outputs) == len(body.outputs) >= states and None not in axes

    def _extents(self, op: Op) -> tuple[int, int, int]:
        """The place of the first state among the inputs, how many states there are, and how many sequences."""
        first, sequences = int(op.version <= _BATCHED), op.integer("num_scan_inputs")
        return first, op.own_inputs - first - sequences, sequences

    def _lists(self, op: Op) -> list[tuple[str, int]]:
        _, states, sequences = self._extents(op)
        return [("scan_input_axes", sequences), ("scan_output_axes", len(op.outputs) - states)]

    def _axes(self, op: Op, name: str, count: int) -> list[int] | None:
        """The axes that are scanned; None if one is not known."""
        if op.version <= _BATCHED:
            return [1] * count
        axes = op.integers(name, (0,) * count)
        if len(axes) != count:
            return None
        if all(axis >= 0 for axis in axes):
            return list(axes)
        first, states, _ = self._extents(op)
        values = op.inputs[first + states : op.own_inputs] if name == "scan_input_axes" else op.outputs[states:]
        ranks = [None if value is None else value.rank for value in values]
        if name == "scan_output_axes":  # the rank of the op's result may not be known yet
            inner = [value.rank for value in op.bodies["body"].outputs[states:]]
            ranks = [outer if rank is None else rank + 1 for outer, rank in zip(ranks, inner, strict=False)]
        if any(rank is None for rank, axis in zip(ranks, axes, strict=True) if axis < 0):
            return None
        return [axis + (rank or 0) if axis < 0 else axis for rank, axis in zip(ranks, axes, strict=True)]

    def crossings(self, op: Op) -> list[Crossing]:
        """States are carried; a sequence may have any format in which the axis that is scanned comes first."""
        batched = op.version <= _BATCHED
        first, states, sequences = self._extents(op)
        batch = (0,) if batched else ()
        found = [Crossing((Place(Slot("in", 0)),), (), is_fixed=True)] if batched else []
        for index in range(states):
            sources = (Place(Slot("in", first + index), hidden=batch), Place(Slot("out", index), "body"))
            targets = (Place(Slot("in", index), "body"), Place(Slot("out", index), hidden=batch))
            found.append(Crossing(sources, targets))
        for index, axis in enumerate(self._axes(op, "scan_input_axes", sequences) or ()):
            outer = Place(Slot("in", first + states + index), hidden=(*batch, axis))
            found.append(Crossing((outer,), (Place(Slot("in", states + index), "body"),)))
        for index, axis in enumerate(self._axes(op, "scan_output_axes", len(op.outputs) - states) or (), states):
            outer = Place(Slot("out", index), hidden=(*batch, axis))
            found.append(Crossing((Place(Slot("out", index), "body"),), (outer,)))
        return [*found, *_captures(op)]

    def runs(self, op: Op) -> dict[str, float]:
        """As many elements as the first sequence has, for every batch."""
        length, batches = self.length(op), 1
        first = operand(op, Place(Slot("in", self._extents(op)[0])))
        if op.version <= _BATCHED and first is not None and first.shape:
            batches = extent(first.shape[0])
        return {"body": min(float(length) * batches, MOST_TRIPS) if isinstance(length, int) else TRIPS}

    def length(self, op: Op, shape_of: ShapeOf = own_shape) -> Dim | None:
        """That of the sequences."""
        first, states, sequences = self._extents(op)
        axes = self._axes(op, "scan_input_axes", sequences) or []
        scanned = zip(op.inputs[first + states : op.own_inputs], axes, strict=False)
        shapes = [(None if value is None else shape_of(value), axis) for value, axis in scanned]
        found = [None if shape is None else shape[axis] for shape, axis in shapes]
        return next((each for each in found if isinstance(each, int)), found[0] if found else None)

    def physical_attributes(self, op: Op, signature: Signature) -> Mapping[str, Attribute]:
        """Axes of sequences that are not canonical are the outermost; those of batches had no other place."""
        attributes = dict(op.attributes)
        if op.version <= _BATCHED:
            return attributes
        _, states, _ = self._extents(op)
        first = {"scan_input_axes": self._extents(op)[0] + states, "scan_output_axes": states}
        for name, count in self._lists(op):
            storages = signature.inputs if name == "scan_input_axes" else signature.outputs
            axes = self._axes(op, name, count) or []
            lying = storages[first[name] : first[name] + count]
            moved = [
                axis if storage is None or storage.format.is_canonical else 0
                for axis, storage in zip(axes, lying, strict=True)
            ]
            if moved != axes:
                attributes[name] = tuple(moved)
        return attributes
