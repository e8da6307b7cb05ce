"""The functions of a model as graphs, with which the types of calls are inferred."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from layoutopt.ir.functions import ReferenceAttribute
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, Op, Opaque
from layoutopt.onnx_io.converter.structure import lifted_function
from layoutopt.onnx_io.converter.vocabulary import attribute_from_ir


@dataclass(frozen=True, slots=True)
class Callee:
    """A function that ops call.

    Attributes:
        graph: its body, whose inputs are its parameters.
        defaults: the default values of its attributes.
    """

    graph: Graph
    defaults: Mapping[str, Attribute]


class Callees:
    """The functions of the model that a graph was lifted from."""

    def __init__(self, graph: Graph) -> None:
        origin = graph.root.origin
        self._model = origin if isinstance(origin, ir.Model) else None
        self._found: dict[ir.OperatorIdentifier, Callee] = {}

    def of(self, op: Op) -> Callee | None:
        """The function that an op calls, if it calls one."""
        if self._model is None or not self._model.functions:
            return None
        overload = op.overload or (op.origin.overload if isinstance(op.origin, ir.Node) else "")
        key = (op.domain, op.op_type, overload)
        function = self._model.functions.get(key)
        if function is None:
            return None
        if key not in self._found:
            given = (attr for attr in function.attributes.values() if attr.value is not None)
            defaults = {attr.name: attribute_from_ir(attr) for attr in given}
            self._found[key] = Callee(lifted_function(self._model, function), defaults)
        return self._found[key]


def bound_attributes(attributes: Mapping[str, Attribute], given: Mapping[str, Attribute]) -> Mapping[str, Attribute]:
    """The attributes of an op in a function, references replaced by attributes of the call, or dropped if the call has none."""
    references = {
        name: value.payload.name
        for name, value in attributes.items()
        if isinstance(value, Opaque) and isinstance(value.payload, ReferenceAttribute)
    }
    if not references:
        return attributes
    found = {name: given.get(references[name]) if name in references else value for name, value in attributes.items()}
    return {name: value for name, value in found.items() if value is not None}


__all__ = ["Callee", "Callees", "bound_attributes"]
