"""The casts and view ops of a graph that move the bytes of activations, with their bytes: the ops that `Counts` counts."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import NO_SIZES, Sizes
from layoutopt.ops import canonical_signature
from layoutopt.report.builder import (
    activation_move,
    cast_reason,
    first_output,
    located_ops,
    move_reason,
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
        op, kind = located.op, activation_move(located.op)
        if kind is None:
            continue
        source, result = op.inputs[0], op.outputs[0]
        assert source is not None and result is not None
        if kind == "cast":
            reason = cast_reason(located.graph, source, result)
        else:
            signature = op.signature if op.signature is not None else canonical_signature(op)
            reason = move_reason(located.graph, op, signature)
        yield RemainingMove(
            kind=kind,
            op_type=op.op_type,
            name=op.name or first_output(op),
            body=located.body,
            bytes=round((physical_bytes(source, sizes) + physical_bytes(result, sizes)) * located.runs),
            reason=reason,
        )


__all__ = ["RemainingMove", "remaining_moves"]
