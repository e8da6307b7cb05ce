"""What kind of numbers a model computes with: what decides how exactly two spellings of it can agree.

An output in float32 that was computed through float16 is as exact as float16. A model that rounds to integers on the way
gives the same result only where it rounds the same, which runtimes do not even among themselves.
"""

from dataclasses import dataclass, field
from os import PathLike

import onnx

from layoutopt.errors import ModelError
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Value
from layoutopt.onnx_io.converter.lift import lift
from layoutopt.onnx_io.reader.read import from_message, read
from layoutopt.ops import rule_of
from layoutopt.ops.interfaces.numerics import QuantizedOp

_BY_WIDTH = (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
_NARROW = frozenset({DType.FLOAT16.label, DType.BFLOAT16.label})


@dataclass(frozen=True, slots=True)
class Nature:
    """The numbers of a model.

    Attributes:
        rounds: whether something in it is quantised.
        through: the coarsest type of fractions that an output is computed through, by the output's name.
    """

    rounds: bool = False
    through: dict[str, str] = field(default_factory=dict)

    @property
    def is_narrow(self) -> bool:
        """Whether something is computed in fractions of 16 bits."""
        return any(label in _NARROW for label in self.through.values())


def nature(model: bytes | str | PathLike[str]) -> Nature:
    """Look at a model; nothing is known of one that is not valid."""
    try:
        source = from_message(onnx.load_from_string(model)) if isinstance(model, bytes) else read(model)
        graph = lift(source)
    except ModelError:
        return Nature()
    return Nature(_rounds(graph), _through(graph))


def _rounds(graph: Graph) -> bool:
    rules = (rule_of(op) for each in graph.nest() for op in each.ops)
    return any(isinstance(rule, QuantizedOp) for rule in rules)


def _through(graph: Graph) -> dict[str, str]:
    coarsest: dict[Value, int] = {}
    for op in graph.ops:
        inside = [value for body in op.bodies.values() for each in body.nest() for value in each.values]
        read = [coarsest.get(value, 0) for value in op.inputs if value is not None]
        computed = [_rank(value) for value in (*op.outputs, *inside) if value is not None]
        coarsest.update(
            dict.fromkeys((value for value in op.outputs if value is not None), max([*read, *computed], default=0))
        )
    return {value.name: _BY_WIDTH[coarsest.get(value, 0)].label for value in graph.outputs}


def _rank(value: Value) -> int:
    return _BY_WIDTH.index(value.dtype) if value.dtype in _BY_WIDTH else 0
