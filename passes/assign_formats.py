"""Ask the planner, and write its answer into the graph.

before: every op and value canonical
after:  every op has its signature, every value lies where its producer leaves it; reader and writer may disagree
"""

from dataclasses import dataclass

from layoutopt.errors import PinError
from layoutopt.ir.cast import storage_name
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Storage
from layoutopt.pass_base import Pass, PassContext
from layoutopt.planner import make_plan


@dataclass(frozen=True, slots=True)
class AssignFormats(Pass):
    """Give every op the signature that the planner chooses."""

    name = "assign-formats"
    is_reason = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Plan; name copies in another format after it, so that the canonical copy can have the tensor's name."""
        pins = {}
        for name, format in context.pins.items():
            value = graph.find(name)
            if value is None:
                raise PinError("there is no such tensor to pin", where=name, hint="name a tensor of the model")
            pins[value] = format
        context.plan = make_plan(
            graph,
            context.cost_model,
            pins=pins,
            free_constants=context.mode == "inference",
            time_limit=context.time_limit,
        )
        for op, reasons in context.plan.notes.items():
            for reason in reasons:
                context.note(self, op.name or op.kind, reason)
        for value, format in pins.items():
            if value in graph.inputs:
                value.storage = Storage(format)
        for op, signature in context.plan.signatures.items():
            op.signature = signature
            for value, storage in zip(op.outputs, signature.outputs, strict=True):
                if value is None or storage is None:
                    continue
                value.storage = storage
                name = storage_name(value.tensor, storage)
                if name != value.name and not (value in pins and graph.is_output(value)):
                    graph.rename(value, graph.fresh_name(name))
        graph.stage = "assigned"
        graph.touch()
