"""Fusion patterns: several ops that exporters write for one op that a runtime may have.

A pattern declares the fused op and the ops that exporters write for it. `Dialect.kernels` lists the fused ops that a dialect
has, and the pass `fuse-patterns` applies the patterns. A pattern is matched at its *root op*, its rarest op, so that most ops
are looked up once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np
from msgspec import field

from layoutopt.formats import Dim
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, DType, Op, Value
from layoutopt.ops.base import OLDEST_OPSET
from layoutopt.record import Record
from layoutopt.registry import EntryPoints, registered_by


class Match(Record, eq=False):
    """An occurrence of a fusion pattern.

    Attributes:
        result: the value that the ops compute, and that the fused op is to compute.
        inner: the ops, including the one that computes the result; only these ops may read the values between them.
        inputs: the inputs of the fused op: values of the graph, and new constants, whose names need not be unique.
        attributes: the attributes of the fused op.
    """

    result: Value
    inner: Sequence[Op]
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def external_use(self, graph: Graph) -> Value | None:
        """A value between the ops that other ops read or that is an output; None if there is none."""
        ops = set(self.inner)
        values = (value for op in self.inner for value in op.present_outputs if value is not self.result)
        return next((value for value in values if _is_used_outside(graph, value, ops)), None)


class FusionPattern(ABC):
    """One fused op, and the ops that exporters write for it.

    Attributes:
        name: the name in notes.
        fused_op: the kind of the fused op: its type, with the domain in front unless it is ai.onnx.
        root_ops: the op types at which the pattern is matched.
        needs_kernel: whether the fused op belongs to a runtime although its domain is ai.onnx.
    """

    name: str
    fused_op: str
    root_ops: tuple[str, ...]
    needs_kernel: ClassVar[bool] = False

    @abstractmethod
    def match(self, graph: Graph, op: Op) -> Match | None:
        """The occurrence of the pattern around a root op; None if there is none."""


# --- the registry ------------------------------------------------------------------------------------------------

_PATTERNS: dict[str, list[FusionPattern]] = {}


def register_pattern(kind: type[FusionPattern]) -> type[FusionPattern]:
    """Class decorator: register a fusion pattern. Patterns of one root op are matched in the order of registration."""
    if all(type(each) is not kind for found in _PATTERNS.values() for each in found):
        add_pattern(kind())
    return kind


def add_pattern(pattern: FusionPattern) -> None:
    """Register a fusion pattern."""
    for root_op in pattern.root_ops:
        _PATTERNS.setdefault(root_op, []).append(pattern)


EXTENSIONS = EntryPoints("layoutopt.patterns", registered_by(register_pattern, FusionPattern))
"""Fusion patterns of installed packages."""


def patterns_at(op: Op) -> Sequence[FusionPattern]:
    """The fusion patterns to match at an op."""
    return EXTENSIONS.loaded_into(_PATTERNS).get(op.kind, ())


# --- expressions ---------------------------------------------------------------------------------------------------


class Tree(Record):
    """An expression to find: an op of a kind whose first inputs are computed by expressions.

    A name is the expression of any value, the same one wherever the name occurs. A list contains alternatives.
    """

    kind: str
    inputs: tuple["Expression", ...]


Expression: TypeAlias = Tree | str | list[Tree]


def tree(kind: str, *inputs: Expression) -> Tree:
    """The expression of an op."""
    return Tree(kind, inputs)


class Found(Record):
    """An occurrence of an expression: the values by name, and the ops, the last one first."""

    values: Mapping[str, Value] = field(default_factory=dict)
    ops: tuple[Op, ...] = ()

    def op(self, kind: str) -> Op:
        """The first op of a kind."""
        return next(each for each in self.ops if each.kind == kind)


def find(graph: Graph, value: Value | None, expression: Expression, found: Found | None = None) -> Found | None:
    """The occurrence of an expression that computes a value, in addition to those in `found`; None if there is none.

    Operands of Add and Mul may have any order.
    """
    found = found or Found()
    if isinstance(expression, str):
        is_same = value is not None and found.values.get(expression, value) is value
        return Found({**found.values, expression: value}, found.ops) if is_same and value is not None else None
    if isinstance(expression, list):
        return next((each for one in expression if (each := find(graph, value, one, found)) is not None), None)
    op = graph.producer(value)
    if op is None or op.kind != expression.kind:
        return None
    for inputs in (op.inputs, op.inputs[::-1]) if op.kind in ("Add", "Mul") else (op.inputs,):
        whole: Found | None = Found(found.values, (*found.ops, op))
        for operand, part in zip(inputs, expression.inputs, strict=False):
            whole = find(graph, operand, part, whole) if whole is not None else None
        if whole is not None:
            return whole
    return None


# --- queries of the graph for patterns ---------------------------------------------------------------------------


def number(value: Value | None) -> float | None:
    """The value of a float32 constant of one element, of any rank; None for other values."""
    if value is None or value.data is None or value.dtype is not DType.FLOAT32 or value.static_shape is None:
        return None
    if any(dim != 1 for dim in value.static_shape):
        return None
    return float(value.data.numpy().reshape(()))


class Multiple(Record):
    """A value times a number, and the op that multiplies."""

    value: Value
    factor: float
    op: Op


def multiple(graph: Graph, value: Value) -> Multiple | None:
    """The factors of a value that is the product of a value and a number; None for other values."""
    op = graph.producer(value)
    if op is None or op.kind not in ("Mul", "Div") or op.version < OLDEST_OPSET or len(op.inputs) != 2:
        return None
    for x, other in (op.inputs, op.inputs[::-1]):
        factor = number(other)
        if x is not None and factor and x.rank == value.rank and (op.kind == "Mul" or x is op.inputs[0]):
            return Multiple(x, factor if op.kind == "Mul" else 1.0 / factor, op)
    return None


def other_input(op: Op, value: Value) -> Value | None:
    """The other input of an op with two inputs."""
    if len(op.inputs) != 2 or value not in op.inputs:
        return None
    return op.inputs[1] if op.inputs[0] is value else op.inputs[0]


def result_of(op: Op) -> Value | None:
    """The output of an op with one output."""
    return op.outputs[0] if len(op.outputs) == 1 else None


def reshaped(graph: Graph, op: Op, value: Value, shape: Sequence[Dim]) -> Value:
    """A tensor with another shape, of which at most one extent is no number."""
    if value.dims == tuple(shape):
        return value
    stem, numbers = f"{value.name}__reshaped", [dim if isinstance(dim, int) else -1 for dim in shape]
    target = graph.new_constant(np.asarray(numbers, np.int64), f"{stem}/shape")
    return graph.new_result("Reshape", (value, target), value.type_with(tuple(shape)), stem, op)


def _is_used_outside(graph: Graph, value: Value, ops: set[Op]) -> bool:
    return graph.is_output(value) or any(reader not in ops for reader in graph.readers(value))
