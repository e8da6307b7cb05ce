"""Numeric profile of a model: the properties that limit how closely two equivalent models agree.

A float32 output that is computed from float16 values is as exact as float16. A quantised model gives equal results only where
every rounding gives the same integer, which differs even between optimisation levels of one runtime.
"""

from dataclasses import dataclass, field
from os import PathLike

import onnx

from layoutopt.errors import ModelError
from layoutopt.inference.lift import lift
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Value
from layoutopt.onnx_io.reader import from_message, read
from layoutopt.ops import rule_of
from layoutopt.ops.interfaces import QuantizedOp

_BY_PRECISION = (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
_NARROW = frozenset({DType.FLOAT16.label, DType.BFLOAT16.label})


@dataclass(frozen=True, slots=True)
class NumericProfile:
    """Quantisation and precision of a model.

    Attributes:
        is_quantised: whether the model has a quantised op.
        coarsest_types: for each output the coarsest floating-point type among the values it is computed from.
    """

    is_quantised: bool = False
    coarsest_types: dict[str, str] = field(default_factory=dict)

    @property
    def is_narrow(self) -> bool:
        """Whether an output is computed from 16-bit floating-point values."""
        return any(label in _NARROW for label in self.coarsest_types.values())


def numeric_profile(model: bytes | str | PathLike[str]) -> NumericProfile:
    """The numeric profile of a model; the default profile for an invalid model."""
    try:
        source = from_message(onnx.load_from_string(model)) if isinstance(model, bytes) else read(model)
        graph = lift(source)
    except ModelError:
        return NumericProfile()
    return NumericProfile(_is_quantised(graph), _coarsest_types(graph))


def _is_quantised(graph: Graph) -> bool:
    rules = (rule_of(op) for each in graph.regions() for op in each.ops)
    return any(isinstance(rule, QuantizedOp) for rule in rules)


def _coarsest_types(graph: Graph) -> dict[str, str]:
    coarsest: dict[Value, int] = {}
    for op in graph.ops:
        inside = [value for body in op.bodies.values() for each in body.regions() for value in each.values]
        read = [coarsest.get(value, 0) for value in op.inputs if value is not None]
        computed = [_coarseness(value) for value in (*op.outputs, *inside) if value is not None]
        coarsest.update(
            dict.fromkeys((value for value in op.outputs if value is not None), max([*read, *computed], default=0))
        )
    return {value.name: _BY_PRECISION[coarsest.get(value, 0)].label for value in graph.outputs}


def _coarseness(value: Value) -> int:
    return _BY_PRECISION.index(value.dtype) if value.dtype in _BY_PRECISION else 0
