"""Ops with regions (If, Loop, Scan): the tensors at the boundary of their regions, and how often the regions run.

A tensor at a boundary is a *link*: the operand or result of the op, and the inputs and results of the regions that are the
same tensor. Types propagate along links. All of these values are in canonical format, with zeros in the padding: the op has
no layout rule, and its regions are planned like graphs of their own. Prices in a region count as often as it is expected to
run: each branch of an If every other time.

Ops with regions that have no links, because their operands are not those of the definition of the operator, run in canonical
format like any other op without a rule, and their regions are not changed.

    If      result   <-  the results of both branches
    Loop    state    <-  the initial state and the result of the body; read by the body and by readers of the final state
            output   <-  the result of the body, all iterations along a new first axis
    Scan    element  <-  the sequence without the scanned axis
    all     capture  <-  a value of the enclosing graph that a region reads
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from layoutopt.formats import Dim
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Op, Value
from layoutopt.ir.verify import invariant
from layoutopt.ops.signatures import is_canonical
from layoutopt.record import Record

ShapeLookup: TypeAlias = Callable[[Value], tuple[Dim, ...] | None]


def declared_shape(value: Value) -> tuple[Dim, ...] | None:
    """The shape of a value's type; type inference passes another function, which returns inferred shapes."""
    return value.shape


DEFAULT_TRIP_COUNT = 10.0  # expected iterations of a loop with a computed trip count; a guess
MAX_TRIP_COUNT = 1e4  # larger counts change no plan, and the solver requires costs in one range
_BRANCHES = ("then_branch", "else_branch")
_SCAN_WITHOUT_BATCH = 9  # the opset


class Link(Record):
    """A tensor at the boundary of regions.

    Attributes:
        operand: the operand of the op.
        inputs: the inputs of regions.
        results: the results of regions.
        output: the result of the op. A link with an operand and an output is the state of a loop.
        scan_axis: the axis of iterations that the operand or the output has, and the values of regions have not.
    """

    operand: Value | None = None
    inputs: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    output: Value | None = None
    scan_axis: int | None = None

    @property
    def is_state(self) -> bool:
        """Whether the result of a region is an input of its next iteration."""
        return bool(self.inputs and self.results)


def boundary(op: Op) -> list[Link] | None:
    """The links of an op with regions, captured values last; None for other ops, and for ops without a region rule."""
    find = _LINKS.get(op.kind) if op.bodies else None
    found = None if find is None else find(op)
    if found is None:
        return None
    inner = map(op.captured_inputs, op.bodies.values())
    captured = zip(op.inputs[op.uncaptured_input_count :], *inner, strict=True)
    return [*found, *(Link(operand, tuple(inputs)) for operand, *inputs in captured)]


def _of_branches(op: Op) -> list[Link] | None:
    """The links of an If, whose branches have captured inputs only and as many results as the If."""
    bodies = op.bodies.values()
    sizes = {(len(body.inputs), len(body.outputs)) for body in bodies}
    if set(op.bodies) != {*_BRANCHES} or op.uncaptured_input_count != 1 or sizes != {(op.captured, len(op.outputs))}:
        return None
    rows = zip(op.outputs, *(body.outputs for body in bodies), strict=True)
    return [Link(results=tuple(results), output=output) for output, *results in rows]


def _of_iterations(op: Op) -> list[Link] | None:
    """The links of a Loop or Scan.

        Loop   inputs: (M, condition, states)    body: (number, condition, states) -> (condition, states, outputs)
        Scan   inputs: (states, sequences)       body: (states, elements) -> (states, outputs)

    Scan of opset 8, whose operands have a batch axis that the body does not have, has no region rule.
    """
    is_loop = op.kind == "Loop"
    control, conditions = (2, 1) if is_loop else (0, 0)
    body = op.bodies.get("body")
    if body is None or len(op.bodies) > 1 or (not is_loop and op.version < _SCAN_WITHOUT_BATCH):
        return None
    operands, inputs = op.inputs[control : op.uncaptured_input_count], body.inputs[control:]
    results = body.outputs[conditions:]
    outputs = (*op.outputs, *(None,) * (len(results) - len(op.outputs)))
    sequences = 0 if is_loop else op.integer("num_scan_inputs")
    states = len(operands) - sequences
    input_axes = op.integers("scan_input_axes", (0,) * sequences)
    output_axes = op.integers("scan_output_axes", (0,) * (len(results) - states))
    counts = (len(body.inputs), len(input_axes), len(outputs), states + len(output_axes))
    is_complete = op.uncaptured_input_count >= control and None not in op.inputs[control:] and len(body.outputs) > 0
    if not is_complete or states < 0 or counts != (len(op.inputs), sequences, len(results), len(results)):
        return None
    found = [Link(inputs=(value,)) for value in body.inputs[:control]]
    for operand, value, result, output in zip(operands[:states], inputs, results, outputs, strict=False):
        found.append(Link(operand, (value,), (result,), output))
    for operand, value, axis in zip(operands[states:], inputs[states:], input_axes, strict=False):
        found.append(Link(operand, (value,), scan_axis=axis))
    for result, output, axis in zip(results[states:], outputs[states:], output_axes, strict=True):
        found.append(Link(results=(result,), output=output, scan_axis=axis))
    return found


_LINKS = {"If": _of_branches, "Loop": _of_iterations, "Scan": _of_iterations}


def regions_with_rule(graph: Graph) -> list[Graph]:
    """A graph and the regions of its ops with a region rule, recursively, each behind the graph of its op."""
    found = [graph]
    for each in found:  # extended in the loop
        found += [body for op in each.ops if boundary(op) is not None for body in op.bodies.values()]
    return found


def expected_runs(graph: Graph) -> dict[Graph, float]:
    """The expected number of runs of a graph and of each region in it, per run of the graph."""
    found = {graph: 1.0}
    for each in regions_with_rule(graph):
        for op in each.ops:
            if boundary(op) is not None:
                found |= dict.fromkeys(op.bodies.values(), found[each] * _runs_per_region(op))
    return found


def _runs_per_region(op: Op) -> float:
    """The expected number of runs of each region per run of the op."""
    if op.kind == "If":
        return 1 / len(_BRANCHES)
    trips, limit = trip_count(op), _trip_limit(op)
    if isinstance(trips, int):
        return min(float(trips), MAX_TRIP_COUNT)
    return DEFAULT_TRIP_COUNT if limit is None else min(float(limit), DEFAULT_TRIP_COUNT)


def trip_count(op: Op, shape_of: ShapeLookup = declared_shape) -> Dim | None:
    """The number of iterations of a Loop or Scan: of a Loop if the condition stays true and M is constant; None if unknown."""
    if op.kind == "Loop":
        return _trip_limit(op) if _is_counted_loop(op) else None
    operands = [(each.scan_axis, each.operand) for each in boundary(op) or () if each.operand is not None]
    shapes = [(scan_axis, shape_of(operand) or ()) for scan_axis, operand in operands]
    extents = [dim for at, shape in shapes for axis, dim in enumerate(shape) if at in (axis, axis - len(shape))]
    return next((each for each in extents if isinstance(each, int)), next(iter(extents), None))


def _trip_limit(op: Op) -> int | None:
    """The largest number of iterations M of a Loop; None if it is not constant."""
    limit = op.constant(0) if op.kind == "Loop" else None
    return max(int(limit.reshape(-1)[0]), 0) if limit is not None and limit.size == 1 else None


def _is_counted_loop(op: Op) -> bool:
    """Whether the condition stays true, so that the loop ends after M iterations."""
    body = op.bodies["body"]
    value = body.outputs[0]
    while (producer := body.producer(value)) is not None:
        if producer.kind != "Identity" or producer.inputs[0] is None:
            return False
        value = producer.inputs[0]
    begins = op.inputs[1] is None or _is_true(op.constant(1))
    return begins and (value is body.inputs[1] or (value.data is not None and _is_true(value.data.numpy())))


def _is_true(array: Array | None) -> bool:
    return array is not None and array.size == 1 and bool(array.reshape(-1)[0])


def unconditional_region(op: Op) -> str:
    """The name of the region that runs exactly once, and no other: the branch of an If with a constant condition; or empty."""
    condition = op.constant(0) if op.kind == "If" and boundary(op) is not None else None
    if condition is None or condition.size != 1:
        return ""
    return _BRANCHES[0] if _is_true(condition) else _BRANCHES[1]


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
    outputs, computed = op.outputs, {value for each in moved for value in each.present_outputs}
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
def boundaries_of_bodies_are_canonical(graph: Graph) -> Iterator[str]:
    """An op with bodies reads and computes values in canonical format, and so do its bodies."""
    for op in graph.ops:
        for name, body in op.bodies.items():
            storages = (value.storage for value in body.inputs)
            is_canonical_inside = all(each is None or each.format.is_canonical for each in storages)
            is_canonical_outside = op.signature is None or is_canonical(op.signature)
            if not is_canonical_inside or body.output_storages or not is_canonical_outside:
                yield f"{name} of {op!r}"
