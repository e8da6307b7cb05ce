"""If, Loop and Scan: their boundary values, and how often their regions run.

    If     result   <-  the results of both branches
    Loop   state    <-  the initial state and the result of the body; read by the body and by readers of the final state
           output   <-  the result of the body, all iterations along a new first axis
    Scan   element  <-  the sequence without the scanned axis
    all    capture  <-  a value of the enclosing graph that a region reads

Branches of an If are expected to run every other time. The trip count of a loop is a guess if it is computed.
"""

from collections.abc import Mapping

from typing_extensions import override

from layoutopt.formats import Dim
from layoutopt.ir.types import Array, Attribute, Op, Padding, Signature, Slot
from layoutopt.ops.base import register
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.region_ops import BoundaryValue, ControlFlow, RegionPort, ShapeLookup, declared_shape, operand
from layoutopt.ops.signatures import estimated_extent

DEFAULT_TRIP_COUNT = 10.0  # expected iterations of a loop with a computed trip count; a guess
MAX_TRIP_COUNT = 1e4  # larger counts change no plan, and the solver requires costs in one range
_LAST_BATCHED_OPSET = 8  # Scan has a batch axis up to this opset


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
    padding = PaddingTransfer(Padding.ZERO, Padding.ZERO, Padding.ZERO, "the states of its branches")

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
    padding = PaddingTransfer(Padding.ZERO, None, Padding.ANY, "the states of its body")

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
            found.append(BoundaryValue((RegionPort(Slot("out", 1 + index), "body"),), (outer,)))
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
        del shape_of
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

    Before opset 9 all of them have a batch axis that the body does not have, and an input of lengths comes first.
    """

    formats = "any that its body and its neighbours agree on, the scanned axis outermost"
    padding = PaddingTransfer(Padding.ZERO, None, Padding.ANY, "the states of its body")

    ops = ("Scan",)

    def is_well_formed(self, op: Op) -> bool:
        """Whether the body has as many states among its results as among its inputs, and no operand is absent."""
        body = op.bodies.get("body")
        if body is None or len(op.bodies) > 1:
            return False
        first, states, sequences = self._extents(op)
        inputs = states >= 0 and len(body.inputs) == states + sequences + op.captured and None not in op.inputs[first:]
        axes = [self._axes(op, name, count) for name, count in self._lists(op)]
        return inputs and sequences > 0 and len(op.outputs) == len(body.outputs) >= states and None not in axes

    def _extents(self, op: Op) -> tuple[int, int, int]:
        """The index of the first state among the inputs, the number of states, and the number of sequences."""
        first, sequences = int(op.version <= _LAST_BATCHED_OPSET), op.integer("num_scan_inputs")
        return first, op.uncaptured_input_count - first - sequences, sequences

    def _lists(self, op: Op) -> list[tuple[str, int]]:
        _, states, sequences = self._extents(op)
        return [("scan_input_axes", sequences), ("scan_output_axes", len(op.outputs) - states)]

    def _axes(self, op: Op, name: str, count: int) -> list[int] | None:
        """The scanned axes; None if one is unknown."""
        if op.version <= _LAST_BATCHED_OPSET:
            return [1] * count
        axes = op.integers(name, (0,) * count)
        if len(axes) != count:
            return None
        if all(axis >= 0 for axis in axes):
            return list(axes)
        first, states, _ = self._extents(op)
        values = (
            op.inputs[first + states : op.uncaptured_input_count] if name == "scan_input_axes" else op.outputs[states:]
        )
        ranks = [None if value is None else value.rank for value in values]
        if name == "scan_output_axes":  # the rank of the op's result may not be known yet
            inner = [value.rank for value in op.bodies["body"].outputs[states:]]
            ranks = [outer if rank is None else rank + 1 for outer, rank in zip(ranks, inner, strict=False)]
        if any(rank is None for rank, axis in zip(ranks, axes, strict=True) if axis < 0):
            return None
        return [axis + (rank or 0) if axis < 0 else axis for rank, axis in zip(ranks, axes, strict=True)]

    def boundary_values(self, op: Op) -> list[BoundaryValue]:
        """The boundary values: a state has one storage, a sequence any format in which the scanned axis is outermost."""
        batched = op.version <= _LAST_BATCHED_OPSET
        first, states, sequences = self._extents(op)
        batch = (0,) if batched else ()
        found = [BoundaryValue((RegionPort(Slot("in", 0)),), (), is_fixed=True)] if batched else []
        for index in range(states):
            sources = (RegionPort(Slot("in", first + index), scan_axes=batch), RegionPort(Slot("out", index), "body"))
            targets = (RegionPort(Slot("in", index), "body"), RegionPort(Slot("out", index), scan_axes=batch))
            found.append(BoundaryValue(sources, targets))
        for index, axis in enumerate(self._axes(op, "scan_input_axes", sequences) or ()):
            outer = RegionPort(Slot("in", first + states + index), scan_axes=(*batch, axis))
            found.append(BoundaryValue((outer,), (RegionPort(Slot("in", states + index), "body"),)))
        for index, axis in enumerate(self._axes(op, "scan_output_axes", len(op.outputs) - states) or (), states):
            outer = RegionPort(Slot("out", index), scan_axes=(*batch, axis))
            found.append(BoundaryValue((RegionPort(Slot("out", index), "body"),), (outer,)))
        return [*found, *_captures(op)]

    def runs_per_body(self, op: Op) -> dict[str, float]:
        """The extent of the scanned axis, times the batch."""
        length, batches = self.trip_count(op), 1
        first = operand(op, RegionPort(Slot("in", self._extents(op)[0])))
        if op.version <= _LAST_BATCHED_OPSET and first is not None and first.shape:
            batches = estimated_extent(first.shape[0])
        return {"body": min(float(length) * batches, MAX_TRIP_COUNT) if isinstance(length, int) else DEFAULT_TRIP_COUNT}

    @override
    def trip_count(self, op: Op, shape_of: ShapeLookup = declared_shape) -> Dim | None:
        first, states, sequences = self._extents(op)
        axes = self._axes(op, "scan_input_axes", sequences) or []
        scanned = zip(op.inputs[first + states : op.uncaptured_input_count], axes, strict=False)
        shapes = [(None if value is None else shape_of(value), axis) for value, axis in scanned]
        found = [None if shape is None else shape[axis] for shape, axis in shapes]
        return next((each for each in found if isinstance(each, int)), found[0] if found else None)

    def physical_attributes(self, op: Op, signature: Signature) -> Mapping[str, Attribute]:
        """The attributes with scan axis 0 for operands in other than canonical formats, whose scanned axes are outermost."""
        attributes = dict(op.attributes)
        if op.version <= _LAST_BATCHED_OPSET:
            return attributes
        _, states, _ = self._extents(op)
        first = {"scan_input_axes": self._extents(op)[0] + states, "scan_output_axes": states}
        for name, count in self._lists(op):
            storages = signature.inputs if name == "scan_input_axes" else signature.outputs
            axes = self._axes(op, name, count) or []
            scanned = storages[first[name] : first[name] + count]
            moved = [
                axis if storage is None or storage.format.is_canonical else 0
                for axis, storage in zip(axes, scanned, strict=True)
            ]
            if moved != axes:
                attributes[name] = tuple(moved)
        return attributes
