"""The laws of fusion patterns: a match is a part of its graph, and the fused op can replace that part."""

import onnx

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.patterns import FusionPattern, Match
from layoutopt.testing.forced import lifted


def check_pattern(pattern: FusionPattern, *models: onnx.ModelProto) -> int:
    """Assert that the fused op can replace each match of a fusion pattern in the models.

    Returns:
        The number of matches.

    Raises:
        AssertionError: a match names ops or values that are not in the graph, or reads what it replaces.
    """
    assert pattern.name and pattern.fused_op and pattern.root_ops, (
        "a fusion pattern needs a name, a fused op and root ops"
    )
    graphs = [graph for model in models for graph in regions_with_rule(lifted(model))]
    roots = [(graph, op) for graph in graphs for op in graph.ops if op.kind in pattern.root_ops]
    matches = [(graph, op, match) for graph, op in roots if (match := pattern.match(graph, op)) is not None]
    for graph, op, match in matches:
        _check(pattern, graph, op, match)
    return len(matches)


def _check(pattern: FusionPattern, graph: Graph, root_op: Op, match: Match) -> None:
    case = f"{pattern.name} at {root_op.op_type} {root_op.name}"
    computed = {value for op in match.inner for value in op.outputs if value is not None}
    assert root_op in match.inner, f"{case}: the root op is not among the ops of the match"
    assert all(op in graph for op in match.inner), f"{case}: an op of the match is not in the graph"
    assert match.result in computed, f"{case}: no op of the match computes its result"
    for value in match.inputs:
        assert value not in computed, f"{case}: the fused op would read a value that it replaces"
        is_new_constant = value is not None and value.data is not None
        assert value is None or value in graph or is_new_constant, f"{case}: {value.name} is not in the graph"


__all__ = ["check_pattern"]
