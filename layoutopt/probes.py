"""Values to compare besides the outputs: what stands before a final Softmax, which would hide an error."""

from collections.abc import Collection
from dataclasses import dataclass

from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType
from layoutopt.ops import Rename, rule_of

_FEW_BITS = frozenset({DType.INT4, DType.UINT4, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})

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
    """The integers of few bits that are computed between two roundings, and their types."""
    found = {}
    for op in graph.ops:
        rule = rule_of(op)
        for value in op.outputs if rule is not None and rule.is_quantised else ():
            if value is not None and value.dtype in _FEW_BITS and not graph.is_output(value):
                found[value.name] = value.dtype
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
