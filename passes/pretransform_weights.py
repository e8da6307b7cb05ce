"""Convert constants ahead of time.

before: w(constant, OIHW) -> CastData(OHWI) -> Conv
after:  w(constant, OHWI) -> Conv

The elements stay in logical order in the graph; they are packed when the model is written, so nothing is held.
"""

from dataclasses import dataclass

from layoutopt.ir.cast import is_cast
from layoutopt.ir.graph import Graph
from layoutopt.pass_base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class PretransformWeights(Pass):
    """Let constants lie as their readers want them."""

    name = "pretransform-weights"
    is_reason = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Every cast of a constant becomes a constant of its own; in training mode weights change, so nothing is done."""
        if context.mode == "training":
            return
        for op in graph.ops:
            source = op.inputs[0] if op.inputs else None
            if not is_cast(op) or source is None or not source.is_constant:
                continue
            copy = op.outputs[0]
            assert copy is not None and copy.storage is not None
            packed = graph.new_value(copy.name, copy.type, storage=copy.storage, data=source.data, tensor=source.tensor)
            graph.replace_uses(copy, packed)
            for index, output in enumerate(graph.outputs):
                if output is copy:
                    graph.set_output(index, packed)
            name = copy.name
            graph.remove_op(op)
            graph.rename(packed, name)
            if not graph.uses(source) and not graph.is_output(source):
                graph.remove_value(source)
