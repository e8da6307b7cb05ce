"""Writes the ops that a builder recorded into a graph."""

from collections.abc import Sequence

from layoutopt.dialects.builder import OpBuilder
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value


def write_plain(graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
    """Add the recorded ops to the graph.

    Args:
        graph: the lowered graph.
        op: the planned op that they compute.
        builder: the builder that recorded them.
        outputs: the values of `graph` that become their results.
    """
    final = {builder.outputs[index]: outputs[index] for index in builder.outputs}
    values: dict[Value, Value | None] = {}
    for constant in builder.constants:
        values[constant] = graph.new_value(constant.name, constant.type, data=constant.data)
    recorded = list(builder.ops)
    produced = {value for each in recorded for value in each.outputs if value is not None}
    for source, result in final.items():
        if source not in produced and result is not None:
            # The output is an input: an Identity gives it the output's name.
            recorded.append(Op("Identity", (source,), (result,), version=graph.opsets.get("", 0)))
            values[result] = result
    for number, each in enumerate(recorded):
        for value in each.outputs:
            if value is not None and value not in values:
                target = final.get(value)
                values[value] = target if target is not None else graph.new_value(value.name, value.type)
        inputs = tuple(value and values.get(value, value) for value in each.inputs)
        name = op.name if len(recorded) == 1 else f"{op.name or first_name(op)}/{number}"
        copy = each.copy(inputs, tuple(value and values[value] for value in each.outputs), name=name)
        copy.order = (*op.order, number)
        graph.add_op(copy)


def first_name(op: Op) -> str:
    """The name of the first output of an op, or its type."""
    return next((value.name for value in op.outputs if value is not None), op.op_type)


__all__ = ["first_name", "write_plain"]
