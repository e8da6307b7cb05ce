"""What an idiom is: several ops that exporters write for what a runtime may have as one.

An idiom knows how its one op is spelled in several, and nothing of who has a kernel for it: that is the dialect's to say
(`Dialect.kernels`), and `passes.recompose` brings both together. An idiom is looked for at its *anchor*, the op of it that
is rarest, so that the search takes one look at most ops.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import ClassVar

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, DType, Op, Value
from layoutopt.ops.base import OLDEST_OPSET
from layoutopt.registry import EntryPoints


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Where an idiom was found, and the one op that says the same.

    Attributes:
        result: the value that the ops compute, and the one op is to compute.
        inner: the ops, that of the result included. What the others compute may be read by these ops only.
        inputs: those of the one op: values of the graph, and new constants, whose names need not be free.
        attributes: of the one op.
    """

    result: Value
    inner: Sequence[Op]
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def exposed(self, graph: Graph) -> Value | None:
        """A value inside that is known outside too, so that it has to stay; None if there is none."""
        ops = set(self.inner)
        values = (value for op in self.inner for value in op.outputs if value is not None and value is not self.result)
        return next((value for value in values if _is_known_outside(graph, value, ops)), None)


class Idiom(ABC):
    """One op, and how it is spelled in several.

    Attributes:
        name: what notes call it.
        makes: the kind of the one op: its type, with the domain in front unless it is ai.onnx.
        anchors: the op types at which it is looked for.
    """

    name: ClassVar[str]
    makes: ClassVar[str]
    anchors: ClassVar[tuple[str, ...]]

    @abstractmethod
    def match(self, graph: Graph, op: Op) -> Match | None:
        """What the idiom comes to around an anchor; None where it is not spelled there."""


# --- the registry ------------------------------------------------------------------------------------------------

_IDIOMS: dict[str, list[Idiom]] = {}


def idiom(kind: type[Idiom]) -> type[Idiom]:
    """Class decorator: make an idiom known. Of two for one anchor, the one that was registered first is tried first."""
    instance = kind()
    for anchor in instance.anchors:
        found = _IDIOMS.setdefault(anchor, [])
        if all(type(each) is not kind for each in found):
            found.append(instance)
    return kind


def _registered(found: object) -> object:
    """Register what an entry point refers to: an idiom, or a module whose import has registered its idioms."""
    if isinstance(found, type) and issubclass(found, Idiom):
        return idiom(found)
    if isinstance(found, ModuleType):
        return found
    raise TypeError("is neither a class that derives from Idiom nor a module that registers such classes")


EXTENSIONS = EntryPoints("layoutopt.patterns", _registered)
"""Fusion patterns of installed packages."""


@cache
def _all_idioms() -> Mapping[str, Sequence[Idiom]]:
    """The idioms by anchor, with those of installed packages."""
    EXTENSIONS.load_all()
    return _IDIOMS


def idioms_at(op: Op) -> Sequence[Idiom]:
    """The idioms that are looked for at an op."""
    return _all_idioms().get(op.kind, ())


def idioms() -> list[Idiom]:
    """Every idiom, in the order of their names."""
    known = {id(each): each for found in _all_idioms().values() for each in found}
    return sorted(known.values(), key=lambda each: each.name)


# --- what idioms look with -----------------------------------------------------------------------------------------


def only_reader(graph: Graph, value: Value) -> Op | None:
    """The op that alone reads a value, once, and nobody else knows it; None if there is no such op."""
    return next(graph.readers(value)) if graph.is_private(value) else None


def number(value: Value | None) -> float | None:
    """The number that a value is: a float32 constant of one element, of any rank."""
    if value is None or value.data is None or value.dtype is not DType.FLOAT32 or value.static_shape is None:
        return None
    if any(dim != 1 for dim in value.static_shape):
        return None
    return float(value.data.numpy().reshape(()))


@dataclass(frozen=True, slots=True)
class Multiple:
    """A value times a number, and the op that multiplies."""

    value: Value
    times: float
    op: Op


def multiple(graph: Graph, value: Value) -> Multiple | None:
    """What a value is a multiple of; None if that is not how it is computed."""
    op = graph.producer(value)
    if op is None or op.kind not in ("Mul", "Div") or op.version < OLDEST_OPSET or len(op.inputs) != 2:
        return None
    for x, other in (op.inputs, op.inputs[::-1]):
        times = number(other)
        if x is not None and times and x.rank == value.rank and (op.kind == "Mul" or x is op.inputs[0]):
            return Multiple(x, times if op.kind == "Mul" else 1.0 / times, op)
    return None


def other_input(op: Op, value: Value) -> Value | None:
    """What an op of two inputs reads besides a value."""
    if len(op.inputs) != 2 or value not in op.inputs:
        return None
    return op.inputs[1] if op.inputs[0] is value else op.inputs[0]


def result_of(op: Op) -> Value | None:
    """The output of an op of one output."""
    return op.outputs[0] if len(op.outputs) == 1 else None


def _is_known_outside(graph: Graph, value: Value, ops: set[Op]) -> bool:
    return graph.is_output(value) or any(reader not in ops for reader in graph.readers(value))
