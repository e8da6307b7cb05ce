"""Insert a CastData on every edge whose producer and consumer use different storages.

before: a(NHWC) -> Conv(NCHW)      a(NHWC) -> Pool(NCHW)
after:  a(NHWC) -> CastData -> Conv(NCHW)      a(NHWC) -> CastData -> Pool(NCHW)

Deliberately naive: one cast per edge. Sharing and cancelling are other passes.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph, insert_cast, name_with_format
from layoutopt.ir.types import Storage, Value
from layoutopt.passes.base import Pass, PassContext


def satisfies(value: Value, required: Storage | None) -> bool:
    """Whether a value can be read as `required` without a conversion."""
    if required is None or value.storage is None or value.shape is None:
        return True
    return value.storage.format == required.format and value.storage.padding <= required.padding


@dataclass(frozen=True, slots=True)
class InsertCasts(Pass):
    """Insert a layout conversion between a producer and a consumer that use different storages."""

    name = "insert-casts"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Insert casts for the operands of ops, then for the graph's outputs."""
        for op in graph.ops:
            assert op.signature is not None
            copies: dict[int, Value | None] = {}
            for index, required in enumerate(op.signature.inputs):
                value = op.inputs[index]
                if value is not None and required is not None and not satisfies(value, required):
                    copies[index] = insert_cast(graph, value, required)
            graph.change_inputs(op, copies)
        for index, value in enumerate(graph.outputs):
            required = graph.output_storage(index)
            if graph.root is graph:
                graph.set_output(index, self._named(graph, value, required))
            elif required is not None and not satisfies(value, required):
                graph.set_output(index, insert_cast(graph, value, required))
        graph.stage = "cast"

    def _named(self, graph: Graph, value: Value, required: Storage | None) -> Value:
        """The copy of a value in a storage, under the name of the tensor, since callers refer to outputs by name."""
        if satisfies(value, required) or required is None:
            if value.name != value.tensor:
                graph.rename(value, value.tensor)
            return value
        present = graph.find(value.tensor)
        if present is not None and satisfies(present, required):
            return present
        if present is not None:
            assert present.storage is not None
            graph.rename(present, graph.fresh_name(name_with_format(present, present.storage)))
        copy = insert_cast(graph, value, required)
        if copy.name != copy.tensor:
            graph.rename(copy, copy.tensor)
        return copy
