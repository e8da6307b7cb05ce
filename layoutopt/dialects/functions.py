"""The dialect `functions`: writes ops in a format, and CastData, as model-local functions of the domain `layoutopt`.

    y = layoutopt.Conv_NHWC <strides = [2, 2], ...> (x, w)

The body of a function is made of plain ops, so every runtime can execute and check the model, while a compiler for the
target reads the calls: op, formats, attributes. A function serves all calls that differ in attribute values and types only,
so the values in its body have no types.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct, field

from layoutopt.dialects.lowering import Dialect, stop_qdq_propagation
from layoutopt.dialects.passes import COMPACT, EqualizeMatmulRanks
from layoutopt.ir.graph import CAST, DOMAIN, Graph, cast_storages, is_cast, to_text
from layoutopt.ir.types import (
    Attribute,
    Attributes,
    DType,
    Function,
    Op,
    Opaque,
    OpaqueType,
    Operands,
    ReferenceAttribute,
    Value,
)
from layoutopt.ops import rule_of
from layoutopt.ops.builder import OpBuilder
from layoutopt.passes import HoistFromQdqGroups

_KINDS = {int: "INT", float: "FLOAT", str: "STRING"}
_VALUE_INTS_SINCE = 12  # the opset from which Constant takes a list of integers


@dataclass(frozen=True, slots=True)
class Label:
    """The name and attributes of an emitted function call.

    Args:
        name: the name of the function.
        attributes: the attributes that declare its formats.
        domain: the domain of the function.
        has_overloads: whether functions with the same name and other bodies are overloads; otherwise their names get a number.
        replaces_attributes: whether these are all attributes; the body then contains the values of those of the op.
    """

    name: str
    attributes: Mapping[str, Attribute]
    domain: str = DOMAIN
    has_overloads: bool = False
    replaces_attributes: bool = False


class Functions(Dialect):
    """Calls a model-local function for each op in a format: Conv in NHWC  -->  layoutopt.Conv_NHWC."""

    name = "functions"
    passes = (EqualizeMatmulRanks(), HoistFromQdqGroups(), *COMPACT)

    def label(self, op: Op) -> Label:
        """The label of a call: CastData with two formats; for other ops the first formats in the name, and the signature."""
        assert op.signature is not None
        if is_cast(op):
            source, result = cast_storages(op)
            return Label(CAST, {"src_format": str(source.format), "dst_format": str(result.format)})
        return Label(f"{op.op_type}_{_formats(op)}", {"formats": str(op.signature)})

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Operands) -> None:
        """Write a call, or the recorded ops if the op is layout-agnostic."""
        rule = rule_of(op)
        assert op.signature is not None
        if not builder.ops or (rule is not None and rule.is_layout_agnostic(op, op.signature)):
            super().write(graph, op, builder, outputs)
            return
        stop_qdq_propagation(graph, builder)
        label = self.label(op)
        draft = _draft(graph, op, builder, label)
        function = _find_or_add(graph, label, draft)
        present = [value for value in outputs if value is not None]
        call = Op(
            function.name,
            tuple(draft.arguments),
            tuple(present),
            domain=label.domain,
            overload=function.overload,
            version=1,
            name=op.name,
            attributes=dict(draft.attributes),
            order=op.order,
            device=op.device,
        )
        graph.opsets.setdefault(label.domain, 1)
        graph.add_op(call)


class _Draft(Struct):
    """The body of a function, and the arguments and attributes of the call that it is written for."""

    body: Graph
    arguments: list[Value] = field(default_factory=list)
    attributes: Attributes = field(default_factory=dict)


def _draft(graph: Graph, op: Op, builder: OpBuilder, label: Label) -> _Draft:
    """The body with the recorded ops: inputs become parameters, lists of integers and attributes become references."""
    draft = _Draft(Graph(opsets={"": graph.opsets.get("", 0)}))
    body = draft.body
    values: dict[Value, Value] = {}
    for number, constant in enumerate(builder.constants):
        if _is_call_attribute(graph, constant):
            values[constant] = body.add_value(Value(f"c{number}", OpaqueType()))
            reference = _reference(draft, constant, number, is_literal=label.replaces_attributes)
            attributes = {"value_ints": reference}
            body.add_op(Op("Constant", (), (values[constant],), version=graph.opsets[""], attributes=attributes))
    for recorded in builder.ops:
        for value in recorded.inputs:
            if value is not None and value not in values:
                values[value] = body.add_value(Value(f"x{len(draft.arguments)}", OpaqueType()))
                body.inputs.append(values[value])
                # Constant nodes do not support all element types.
                is_new = value not in graph
                draft.arguments.append(graph.new_value(value.name, value.type, data=value.data) if is_new else value)
        for value in recorded.outputs:
            if value is not None:
                values[value] = body.add_value(Value(f"t{len(values)}", OpaqueType()))
        is_literal = label.replaces_attributes
        attributes = recorded.attributes if is_literal else _referenced(op, recorded, draft.attributes)
        body.add_op(recorded.copy_on(values, attributes=dict(attributes)))
    body.outputs = [values[builder.outputs[index]] for index in sorted(builder.outputs)]
    draft.attributes.update(label.attributes)
    rule = rule_of(op)
    if rule is not None and rule.is_pseudo_op:  # none of the recorded ops is the op itself, whose attributes define it
        draft.attributes.update(op.attributes)
    return draft


def _is_call_attribute(graph: Graph, constant: Value) -> bool:
    """Whether a constant is a list of integers, which is an attribute of the call, so that calls with other shapes share it."""
    return graph.opsets.get("", 0) >= _VALUE_INTS_SINCE and constant.dtype is DType.INT64 and constant.rank == 1


def _reference(draft: _Draft, constant: Value, number: int, *, is_literal: bool) -> Attribute:
    """The elements of a constant, which become an attribute of the call unless they are literal."""
    assert constant.data is not None
    elements = tuple(int(item) for item in constant.data.numpy())
    if is_literal and elements:
        return elements
    name = f"{constant.name.rsplit('/', 1)[-1].rsplit('_', 1)[0]}_{number}"
    draft.attributes[name] = elements
    return Opaque("ref", ReferenceAttribute(name, "INTS"))


def _referenced(op: Op, recorded: Op, given: Attributes) -> Attributes:
    """References to the attributes of the call in place of those of the op, except for empty lists, which have no type."""
    result: Attributes = {}
    for name, value in recorded.attributes.items():
        if recorded.kind == op.kind and value != () and not isinstance(value, Opaque):
            given[name] = value
            result[name] = Opaque("ref", ReferenceAttribute(name, _kind(value)))
        else:
            result[name] = value
    return result


def _kind(value: Attribute) -> str:
    if isinstance(value, tuple):
        return f"{_KINDS[type(value[0])]}S"
    assert not isinstance(value, Opaque)
    return _KINDS[type(value)]


def _find_or_add(graph: Graph, label: Label, draft: _Draft) -> Function:
    """The function with that body; functions of one name with different bodies are numbered."""
    body, attributes, text = draft.body, tuple(draft.attributes), _text(draft.body)
    known = {(each.name, each.overload): each for each in graph.functions if each.domain == label.domain}
    number, name, overload = 1, label.name, ""
    while (other := known.get((name, overload))) is not None:
        if (other.doc, other.attributes) == (text, attributes):
            return other
        number += 1
        name, overload = (name, str(number)) if label.has_overloads else (f"{label.name}_{number}", "")
    function = Function(label.domain, name, attributes, body, doc=text, overload=overload)
    graph.functions.append(function)
    return function


def _text(body: Graph) -> str:
    """The body as text, which is equal for equal functions."""
    opaque = [each for op in body.ops for each in op.attributes.values() if isinstance(each, Opaque)]
    constants = [repr(each.payload) for each in opaque if not isinstance(each.payload, ReferenceAttribute)]
    return "\n".join([to_text(body), *constants])


def _formats(op: Op) -> str:
    """The names of the formats of the first input and output; one name if they are equal."""
    assert op.signature is not None
    first = [storages[0] for storages in (op.signature.inputs, op.signature.outputs) if storages]
    names = dict.fromkeys("scalar" if storage is None else storage.format.name() for storage in first)
    return "_".join(names)
