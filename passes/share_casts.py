"""Let consumers that want the same copy of a tensor share it.

before: a -> CastData(NHWC) -> x      a -> CastData(NHWC) -> y
after:  a -> CastData(NHWC) -> x, y
"""

from dataclasses import dataclass

from layoutopt.formats import Format
from layoutopt.ir.cast import is_cast
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Value
from layoutopt.pass_base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class ShareCasts(Pass):
    """One CastData per tensor and storage."""

    name = "share-casts"
    is_reason = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Keep the copy that others know by name, else the first."""
        copies: dict[tuple[Value, Format], Value] = {}
        for op in graph.ops:
            source, copy = op.inputs[0] if op.inputs else None, op.outputs[0] if op.outputs else None
            if not is_cast(op) or source is None or copy is None or copy.storage is None:
                continue
            key = (source, copy.storage.format)
            kept = copies.setdefault(key, copy)
            if kept is copy:
                continue
            if self._is_known(graph, copy):
                copies[key], kept, copy = copy, copy, kept
            if not self._is_known(graph, copy):
                graph.replace_uses(copy, kept)
                producer = graph.producer(copy)
                assert producer is not None
                graph.remove_op(producer)

    def _is_known(self, graph: Graph, value: Value) -> bool:
        return graph.is_output(value) or any(use.is_capture for use in graph.uses(value))
