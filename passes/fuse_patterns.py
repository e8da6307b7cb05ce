"""Fuse several ops that an exporter wrote into one op for which the dialect has a kernel.

before: x -> Div(sqrt 2) -> Erf -> Add(1) -> Mul(0.5) -> Mul(x) -> y
after:  x -> com.microsoft::Gelu -> y
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.passes.base import Pass, PassContext
from layoutopt.patterns import FusionPattern, Match, patterns_at


@dataclass(frozen=True, slots=True)
class FusePatterns(Pass):
    """Apply the fusion patterns whose fused op has a kernel in the dialect."""

    name = "fuse-patterns"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Match the patterns at every op, in topological order."""
        if context.mode == "training":
            return
        for op in graph.ops:
            for pattern in patterns_at(op):
                if op not in graph or not self.is_applicable(pattern, context):
                    continue
                match = pattern.match(graph, op)
                if match is None:
                    continue
                external_use = match.external_use(graph)
                if external_use is None:
                    _replace(graph, pattern, match)
                else:
                    context.note(self, op.name or op.kind, f"no {pattern.name}: {external_use.name} has other readers")

    def is_applicable(self, pattern: FusionPattern, context: PassContext) -> bool:
        """Whether the dialect has a kernel for the fused op."""
        return pattern.fused_op in context.kernels


def _replace(graph: Graph, pattern: FusionPattern, match: Match) -> None:
    """Insert the fused op at the position of the last op of the match, under its name."""
    last = graph.producer(match.result)
    assert last is not None
    domain, _, op_type = pattern.fused_op.rpartition("::")
    version = graph.opsets.setdefault(domain, 1)
    for value in match.inputs:
        if value is not None and value not in graph:
            value.name = value.tensor = graph.fresh_name(value.name)
            graph.add_value(value)
    new = graph.new_value(f"{match.result.name}__{pattern.name}", match.result.type)
    fused = Op(
        op_type,
        match.inputs,
        (new,),
        domain=domain,
        version=version,
        name=last.name,
        attributes=dict(match.attributes),
    )
    graph.add_op(fused, last)
    graph.replace_value(match.result, new)
