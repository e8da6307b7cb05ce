"""Values to compare besides the outputs: what stands before a final Softmax, which would hide an error."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Value
from layoutopt.ops import Rename, decided_by, rule_of

_FEW_BITS = frozenset({DType.INT4, DType.UINT4, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})

_INTEGERS = _FEW_BITS | {DType.INT32, DType.UINT32, DType.INT64, DType.UINT64}

_FRACTIONS = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)  # that onnxruntime adds up


@dataclass(frozen=True, slots=True)
class Probe:
    """One logical tensor in two models: its name in each, and the format that the second has it in."""

    original: str
    rewritten: str
    format: Format


def squashed(graph: Graph) -> list[str]:
    """The tensors before those ops at the outputs that make differences small; renames between are looked through.

    Inputs need no look, and outputs get one.
    """
    found = []
    for output in graph.outputs:
        value = output
        while (producer := graph.producer(value)) is not None and producer.inputs[:1] != (None,):
            rule = rule_of(producer)
            before = producer.inputs[0] if producer.inputs else None
            if before is None or rule is None:
                break
            if rule.squashes(producer):
                if before not in graph.inputs and not graph.is_output(before):
                    found.append(before.name)
                break
            if not isinstance(rule, Rename):
                break
            value = before
    return found


def inner(graph: Graph) -> list[str]:
    """All tensors that ops compute but the outputs."""
    computed = (value for op in graph.ops for value in op.outputs if value is not None and value.shape is not None)
    return [value.name for value in computed if not graph.is_output(value)]


def rounded(graph: Graph) -> dict[str, DType]:
    """The integers that are computed between two roundings, and their types: those of few bits, and fractions cut off."""
    found = {}
    for op in graph.ops:
        rule = rule_of(op)
        for value in op.outputs if rule is not None and rule.is_quantised else ():
            if value is not None and value.dtype in _FEW_BITS and not graph.is_output(value):
                found[value.name] = value.dtype
    found.update({value.name: value.dtype for value in _cut_off(graph) if value.dtype and not graph.is_output(value)})
    return found


def cut_off(graph: Graph) -> list[str]:
    """The integers that are fractions cut off, outputs among them."""
    return [value.name for value in _cut_off(graph)]


def _cut_off(graph: Graph) -> Iterator[Value]:
    for op in graph.ops:
        source, value = (op.inputs[0], op.outputs[0]) if op.kind == "Cast" else (None, None)
        if source is not None and source.dtype in _FRACTIONS and value is not None and value.dtype in _INTEGERS:
            yield value


def deciders(graph: Graph) -> dict[str, DType]:
    """The computed fractions by which ops decide, and what these are other names of; with their types."""
    found: dict[str, DType] = {}
    pending = [value for op in graph.ops for value in decided_by(op)]
    while pending:
        value = pending.pop()
        producer = graph.producer(value)
        if producer is None or value.dtype not in _FRACTIONS or value.name in found:
            continue
        if not graph.is_output(value):
            found[value.name] = value.dtype
        if isinstance(rule_of(producer), Rename) and producer.inputs[0] is not None:
            pending.append(producer.inputs[0])
    return found


def unrounded(graph: Graph, integers: Collection[str]) -> dict[str, DType]:
    """Of some integers those that an op makes of fractions, and nothing else with them; and the type of the fractions."""
    found = {}
    for op in graph.ops:
        source = op.inputs[0] if op.inputs else None
        if source is None or source.dtype not in _FRACTIONS or len(op.outputs) != 1:
            continue
        found.update({value.name: source.dtype for value in op.outputs if value is not None and value.name in integers})
    return found


def spread(probes: list[Probe], count: int) -> list[Probe]:
    """Some probes, evenly spread from the first to the last."""
    step = max(1, len(probes) // count)
    return probes[::step]


def found_again(graph: Graph, lowered: Graph, tensors: list[str]) -> list[Probe]:
    """Where the tensors are in a planned graph and what it was lowered to, in their order; those that are gone are left out."""
    probes = []
    wanted = set(tensors)
    for value in graph.values:
        if value.tensor not in wanted or value.storage is None or graph.producer(value) is None:
            continue
        low = lowered.find(value.name)
        if low is not None and lowered.producer(low) is not None:
            probes.append(Probe(value.tensor, value.name, value.storage.format))
            wanted.discard(value.tensor)
    place = {name: index for index, name in enumerate(tensors)}
    return sorted(probes, key=lambda probe: place[probe.original])
