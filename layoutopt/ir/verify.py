"""Named invariants of graphs, checked between passes; `dialects.invariants` adds those of lowered graphs."""

from collections.abc import Callable, Iterator

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.record import Record


class Violation(Record):
    """An invariant that does not hold, and where."""

    invariant: str
    where: str

    def __str__(self) -> str:
        return f"invariant {self.invariant!r} is broken at {self.where}"


Invariant = Callable[[Graph], Iterator[str]]
INVARIANTS: dict[str, Invariant] = {}


def invariant(check: Invariant) -> Invariant:
    """Decorator: the function's name, in words, is the invariant; it yields the places where it is broken."""
    INVARIANTS[check.__name__.replace("_", " ")] = check
    return check


def violations(graph: Graph) -> Iterator[Violation]:
    """Every place in a graph and its bodies where an invariant is broken.

    A graph with a cycle is not checked further, because its ops have no order.
    """
    pending = [graph]
    while pending:
        each = pending.pop()
        for name, check in INVARIANTS.items():
            found = [Violation(name, where) for where in check(each)]
            yield from found
            if found and check is the_graph_has_no_cycle:
                return
        pending += [body for op in each.ops for body in op.bodies.values()]


@invariant
def the_graph_has_no_cycle(graph: Graph) -> Iterator[str]:
    """Every op can run after the producers of its operands."""
    if cycle := graph.find_cycle():
        yield " -> ".join(cycle[:8])


@invariant
def edges_are_the_operands_of_ops(graph: Graph) -> Iterator[str]:
    """The uses of values and the operand lists of ops agree."""
    counted = 0
    for tail, head, key in graph.nx.edges(keys=True):
        counted += 1
        if isinstance(head, Op):
            if key >= len(head.inputs) or head.inputs[key] is not tail:
                yield f"input {key} of {head!r}"
        elif isinstance(tail, Op) and (key >= len(tail.outputs) or tail.outputs[key] is not head):
            yield f"output {key} of {tail!r}"
    listed = sum(len(op.values) for op in graph.ops)
    if listed != counted:
        yield f"{counted} edges for {listed} operands"


@invariant
def every_value_has_one_source(graph: Graph) -> Iterator[str]:
    """Every value is the output of one op, a graph input or a constant."""
    inputs = set(graph.inputs)
    for value in graph.values:
        sources = (graph.producer(value) is not None) + value.is_constant + (value in inputs)
        if sources != 1:
            yield f"{value.name}, which has {sources} sources"


@invariant
def graph_inputs_and_outputs_are_in_the_graph(graph: Graph) -> Iterator[str]:
    """The inputs and outputs of the graph are values of the graph."""
    for value in (*graph.inputs, *graph.outputs):
        if graph.find(value.name) is not value:
            yield value.name


@invariant
def bodies_are_closed(graph: Graph) -> Iterator[str]:
    """The captured values of a body are the last inputs of the body and of its op.

    An op without a region rule keeps the bodies of the planned graph when it is lowered; these are not checked.
    """
    for op in graph.ops:
        if not op.bodies and op.captured:
            yield f"{op!r}, which has no body"
        for name, body in op.bodies.items():
            is_written_elsewhere = body.root is not graph.root and body.stage == graph.stage
            if len(body.inputs) < op.captured or None in op.inputs[op.uncaptured_input_count :] or is_written_elsewhere:
                yield f"{name} of {op!r}"


@invariant
def storages_fit_their_tensors(graph: Graph) -> Iterator[str]:
    """A format has the rank of its tensor, and blocked axes have known extents; no rank, no format."""
    for value in graph.values:
        shape = value.shape
        if (value.storage is None) != (shape is None):
            yield value.name
        elif value.storage is not None and shape is not None and not value.storage.format.fits(shape):
            yield f"{value.name}: {value.type} in {value.storage}"


@invariant
def tensors_without_padding_have_state_zero(graph: Graph) -> Iterator[str]:
    """A tensor without padding elements has the padding state zero."""
    for value in graph.values:
        storage, shape = value.storage, value.shape
        if storage is not None and storage.padding and shape is not None and not storage.format.has_padding(shape):
            yield value.name


@invariant
def outputs_have_the_required_storages(graph: Graph) -> Iterator[str]:
    """Every output has its required format, and no worse padding. Checked in the stage `cast` only."""
    for index, value in enumerate(graph.outputs if graph.stage == "cast" else ()):
        required, has = graph.output_storage(index), value.storage
        if (
            required is not None
            and has is not None
            and (has.format != required.format or has.padding > required.padding)
        ):
            yield f"{value.name}: {has} where {required} is required"


@invariant
def operands_have_the_storages_of_the_signature(graph: Graph) -> Iterator[str]:
    """Every operand has the format of the signature, and padding no worse than accepted. Checked in the stage `cast` only."""
    if graph.stage != "cast":
        return
    for op in graph.ops:
        if op.signature is None:
            yield f"{op!r}, which has no signature"
            continue
        for slot in op.slots():
            value, required = op.operand(slot), op.signature[slot]
            if value is None or value.storage is None or required is None or value.shape is None:
                continue
            if value.storage.format != required.format or value.storage.padding > required.padding:
                yield f"{slot} of {op!r}: {value.storage} where {required} is needed"
