"""The casts and view ops of a graph that move the bytes of activations, with their bytes: the ops that `Counts` counts."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from layoutopt.ir.cast import is_cast, moves
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import NO_SIZES, Sizes
from layoutopt.ops import canonical_signature
from layoutopt.report.builder import (
    LocatedOp,
    cast_reason,
    first_output,
    located_ops,
    move_reason,
    moves_data,
    physical_bytes,
)
from layoutopt.report.schema import ReportModel


class RemainingMove(ReportModel):
    """An op that moves the bytes of an activation."""

    kind: Literal["cast", "transpose"] = Field(description="`transpose` is a Transpose or another view op")
    op_type: str
    name: str = Field(description="the name of the op, or of its first output")
    body: str = Field(default="", description="the body that it is in: op and attribute; empty in the main graph")
    bytes: int = Field(description="physical bytes read and written in one run of the model")
    reason: str = Field(description="the format of its input and the required one")


def remaining_moves(graph: Graph, sizes: Sizes = NO_SIZES) -> list[RemainingMove]:
    """The casts and view ops that move the bytes of activations, in order; those in bodies once.

    Args:
        graph: a planned graph, or one without signatures, whose ops count as canonical.
        sizes: sizes of symbolic dimensions, over which bytes are means.
    """
    return list(_moves(graph, sizes))


def _moves(graph: Graph, sizes: Sizes) -> Iterator[RemainingMove]:
    for located in located_ops(graph):
        op = located.op
        if is_cast(op):
            source, copy = op.inputs[0], op.outputs[0]
            if source is None or copy is None or copy.storage is None or source.is_constant:
                continue
            if moves(source, copy.storage):
                yield _move(located, "cast", sizes, cast_reason(located.graph, source, copy))
        elif moves_data(op) and not all(value is None or value.is_constant for value in op.inputs):
            signature = op.signature if op.signature is not None else canonical_signature(op)
            yield _move(located, "transpose", sizes, move_reason(located.graph, op, signature))


def _move(located: LocatedOp, kind: Literal["cast", "transpose"], sizes: Sizes, reason: str) -> RemainingMove:
    op = located.op
    operands = (op.inputs[0], op.outputs[0])
    nbytes = sum(physical_bytes(value, sizes) for value in operands if value is not None)
    return RemainingMove(
        kind=kind,
        op_type=op.op_type,
        name=op.name or first_output(op),
        body=located.body,
        bytes=round(nbytes * located.runs),
        reason=reason,
    )


__all__ = ["RemainingMove", "remaining_moves"]
