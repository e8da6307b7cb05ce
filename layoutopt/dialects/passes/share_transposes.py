"""Keeps one of several equal Transposes, or Reshapes, of a value.

before: x -> Transpose(0, 2, 1) -> MatMul      x -> Transpose(0, 2, 1) -> MatMul
after:  x -> Transpose(0, 2, 1) -> MatMul, MatMul

Every op that is written as Transpose, op, Transpose inserts its own Transposes.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class ShareTransposes(Pass):
    """Let all readers of equal Transposes, or Reshapes, of a value read one of them."""

    name = "share-transposes"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the ops in topological order, so that equal Transposes of equal Reshapes are found."""
        kept: dict[Hashable, Value] = {}
        for op in graph.ops:
            key, result = _content(op), op.outputs[0] if op.outputs else None
            if key is None or result is None:
                continue
            first = kept.setdefault(key, result)
            if first is not result and not graph.is_output(result):
                graph.replace_uses(result, first)
                graph.remove_op(op)


def _content(op: Op) -> Hashable | None:
    """The operand and the effect of a Transpose, or of a Reshape to a constant shape; None for any other op."""
    x = op.inputs[0] if op.inputs else None
    if x is None or op.kind not in ("Transpose", "Reshape"):
        return None
    if op.kind == "Transpose":
        return x, op.kind, tuple(op.integers("perm") or ())
    target = op.constant(1) if len(op.inputs) > 1 else None
    return None if target is None else (x, op.kind, tuple(target.tolist()), op.integer("allowzero", 0))


__all__ = ["ShareTransposes"]
