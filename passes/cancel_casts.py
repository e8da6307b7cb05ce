"""Replace chains of layout conversions by one conversion, and remove conversions that cancel.

before: a(NCHW) -> CastData(NHWC) -> CastData(NCHW) -> Conv
after:  a(NCHW) -> Conv

A cast between blocked formats leaves zero padding, so it stays if its reader does not accept the padding of the source.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph, Use, is_cast, moves
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class CancelCasts(Pass):
    """Remove redundant layout conversions."""

    name = "cancel-casts"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit casts in topological order, so that each of a chain reads the source of the chain."""
        for op in graph.ops:
            if not is_cast(op):
                continue
            source, copy = op.inputs[0], op.outputs[0]
            assert source is not None and copy is not None
            if is_cast(graph.producer(source)) and not self._is_free(graph, source, copy):
                self._skip(graph, op)
            self._bypass(graph, op, copy)
            if not graph.is_used(copy):
                graph.remove_op(op)

    def _is_free(self, graph: Graph, source: Value, copy: Value) -> bool:
        """Whether a cast moves no bytes of a source that has other readers or is an output."""
        shared = graph.use_count(source) > 1 or graph.is_output(source)
        return shared and copy.storage is not None and not moves(source, copy.storage)

    def _skip(self, graph: Graph, op: Op) -> None:
        """Redirect a cast to the source of the cast before it."""
        source = op.inputs[0]
        before = graph.producer(source) if source is not None else None
        assert source is not None and before is not None and before.inputs[0] is not None
        graph.set_input(op, 0, before.inputs[0])
        assert op.signature is not None and before.signature is not None
        op.signature = Signature(before.signature.inputs, op.signature.outputs)
        if not graph.is_used(source):
            graph.remove_op(before)

    def _bypass(self, graph: Graph, op: Op, copy: Value) -> None:
        """Redirect the readers that accept the padding of the source to the source."""
        source = op.inputs[0]
        assert source is not None
        if source.storage is None or copy.storage is None or source.storage.format != copy.storage.format:
            return
        accepting = [use for use in graph.uses(copy) if accepts(use, source.storage)]
        graph.replace_uses(copy, source, accepting)


def accepts(use: Use, storage: Storage) -> bool:
    """Whether a reader accepts the padding state of a storage."""
    signature = use.op.signature
    required = signature.inputs[use.index] if signature is not None else None
    return required is None or storage.padding <= required.padding
