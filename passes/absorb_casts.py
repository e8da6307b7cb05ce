"""Restore a metadata-only Transpose or Reshape to the op of the model if its result is converted back at once.

before: x(NCHW) -> Transpose(a view op: y in CHWN...) -> CastData(canonical) -> ...
after:  x(NCHW) -> Transpose(moves bytes)            -> y(canonical)        -> ...
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph, is_cast
from layoutopt.ir.types import Op, Signature
from layoutopt.ops import is_canonical, rule_of
from layoutopt.ops.view import View
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class AbsorbCasts(Pass):
    """Undo a metadata-only op whose result is converted back to the canonical format."""

    name = "absorb-casts"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Restore the ops whose only reader is a cast and whose input and converted result are canonical."""
        for op in graph.ops:
            rule = rule_of(op)
            if not isinstance(rule, View) or op.signature is None:
                continue
            cast = self._only_cast(graph, op)
            if cast is None or cast.signature is None:
                continue
            restored = Signature(op.signature.inputs, cast.signature.outputs)
            if not is_canonical(restored):
                continue
            renamed, copy = op.outputs[0], cast.outputs[0]
            assert renamed is not None and copy is not None
            op.signature = restored
            renamed.storage = copy.storage
            graph.replace_value(copy, renamed)

    def _only_cast(self, graph: Graph, op: Op) -> Op | None:
        value = op.outputs[0]
        if value is None or graph.is_output(value):
            return None
        reader = next(graph.readers(value)) if graph.use_count(value) == 1 else None
        return reader if is_cast(reader) else None
