"""Share one layout conversion among all readers of a value that require the same storage.

before: a -> CastData(NHWC) -> x      a -> CastData(NHWC) -> y
after:  a -> CastData(NHWC) -> x, y

before: a -> CastData(NHWC) -> x      a -> CastData(NCHW16c) -> y       where 16 channels make the same bytes of both
after:  a -> CastData(NHWC) -> x -> CastData(NCHW16c) -> y        the second one changes only the shape
"""

from collections.abc import Hashable
from dataclasses import dataclass

from layoutopt.ir.graph import Graph, is_cast, moves
from layoutopt.ir.types import Signature, Storage, Value
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class ShareCasts(Pass):
    """Keep one CastData per value and storage, and one that moves bytes per value and byte order."""

    name = "share-casts"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Share the casts of a value to equal storages, then those to storages with equal bytes."""
        self._share(graph)
        self._chain(graph)

    def _share(self, graph: Graph) -> None:
        """Keep the copy that is a graph output, otherwise the first one."""
        copies: dict[tuple[Value, Storage], Value] = {}
        for op in graph.ops:
            source, copy = op.inputs[0] if op.inputs else None, op.outputs[0] if op.outputs else None
            if not is_cast(op) or source is None or copy is None or copy.storage is None:
                continue
            key = (source, copy.storage)
            kept = copies.setdefault(key, copy)
            if kept is copy:
                continue
            if graph.is_output(copy):
                copies[key], kept, copy = copy, copy, kept
            if not graph.is_output(copy):
                graph.replace_uses(copy, kept)
                producer = graph.producer(copy)
                assert producer is not None
                graph.remove_op(producer)

    def _chain(self, graph: Graph) -> None:
        """Redirect a cast to the first copy with the same bytes, so that these are moved only once."""
        copies: dict[tuple[Value, Hashable], Value] = {}
        for op in graph.ops:
            source, copy = op.inputs[0] if op.inputs else None, op.outputs[0] if op.outputs else None
            if not is_cast(op) or source is None or copy is None or copy.storage is None or copy.shape is None:
                continue
            if not moves(source, copy.storage):
                continue
            first = copies.setdefault((source, (copy.storage.format.key(copy.shape), copy.storage.padding)), copy)
            if first is not copy:
                graph.set_input(op, 0, first)
                op.signature = Signature((first.storage,), (copy.storage,))
