"""The pass `cancel-mirrors`."""

from dataclasses import dataclass

from layoutopt.extend import Graph, Op, Pass, PassContext


@dataclass(frozen=True)
class CancelMirrors(Pass):
    """before: Mirror -> Mirror along the same axis    after: nothing."""

    name = "cancel-mirrors"
    before = "assign-formats"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Let the readers of the second Mirror read the input of the first."""
        for op in graph.ops:
            first = graph.producer(op.inputs[0]) if op.inputs and op.inputs[0] is not None else None
            if not (is_mirror(op) and is_mirror(first)):
                continue
            if op.attributes != first.attributes or graph.is_output(op.outputs[0]):
                context.note(self, op.name, "the two Mirrors have different axes, or the result is an output")
                continue
            graph.replace_uses(op.outputs[0], first.inputs[0])
            graph.remove_if_dead(op)


def is_mirror(op: Op | None) -> bool:
    """Whether an op is a Mirror."""
    return op is not None and op.kind == "acme::Mirror"
