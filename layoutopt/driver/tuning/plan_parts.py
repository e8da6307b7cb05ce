"""The parts of a plan, kernels and conversions, with their estimated seconds at the prices of the first plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from layoutopt.cost import CostModel
from layoutopt.cost.scaled import PlannedConversion, PlannedKernel, planned_conversion, planned_kernel
from layoutopt.ir.cast import is_cast
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Storage
from layoutopt.ops import View, canonical_signature, rule_of
from layoutopt.report.builder import graph_report, located_ops

PartKey: TypeAlias = PlannedKernel | PlannedConversion


@dataclass(frozen=True, slots=True)
class PlanPart:
    """A kernel or a conversion of a plan.

    Attributes:
        seconds: its estimated time in a run.
        op: the op of a kernel; None for a conversion.
        signature: the signature of that op.
    """

    seconds: float
    op: Op | None = None
    signature: Signature | None = None


def plan_parts(graph: Graph, cost_model: CostModel, *, keeps_qdq_groups: bool) -> dict[PartKey, PlanPart]:
    """The parts of a planned graph that take time.

    Args:
        graph: the graph, planned.
        cost_model: the cost model with the sizes of symbolic dimensions.
        keeps_qdq_groups: whether QDQ groups stay as they are.
    """
    report = graph_report(graph, cost_model, keeps_qdq_groups=keeps_qdq_groups)
    ops = [located.op for located in located_ops(graph)]
    kernels, casts = [op for op in ops if not is_cast(op)], [op for op in ops if is_cast(op)]
    found: dict[PartKey, PlanPart] = {}
    for op, row in zip(kernels, report.ops, strict=True):
        signature = op.signature or canonical_signature(op)
        move = _move_of_view(op, signature) if row.moves_data else None
        if move is None:
            _add(found, planned_kernel(op, signature), PlanPart(row.seconds, op, signature))
        else:
            _add(found, move, PlanPart(row.seconds))
    for op, cast in zip(casts, report.casts, strict=True):
        _add(found, _conversion(op), PlanPart(cast.seconds))
    return found


def _add(found: dict[PartKey, PlanPart], key: PartKey, part: PlanPart) -> None:
    known = found.get(key)
    if part.seconds > 0.0:
        found[key] = part if known is None else PlanPart(known.seconds + part.seconds, part.op, part.signature)


def _conversion(cast: Op) -> PlannedConversion:
    source, copy = cast.inputs[0], cast.outputs[0]
    assert source is not None and copy is not None and source.storage is not None and copy.storage is not None
    return planned_conversion(source, source.storage, copy.storage)


def _move_of_view(op: Op, signature: Signature) -> PlannedConversion | None:
    """The conversion of the result of a view op that moves bytes."""
    rule, y, source, target = rule_of(op), op.outputs[0], signature.inputs[0], signature.outputs[0]
    assert isinstance(rule, View) and y is not None and source is not None and target is not None
    same = rule.output_format(op, source.format)
    return None if same is None else planned_conversion(y, Storage(same), target)


def total_seconds(parts: Mapping[PartKey, PlanPart]) -> float:
    """The estimated seconds of all parts."""
    return sum(each.seconds for each in parts.values())


def differing_keys(one: Mapping[PartKey, PlanPart], other: Mapping[PartKey, PlanPart]) -> Iterator[PartKey]:
    """The keys of the parts that only one of two plans has, in order."""
    yield from (key for key in one if key not in other)
    yield from (key for key in other if key not in one)


__all__ = ["PartKey", "PlanPart", "differing_keys", "plan_parts", "total_seconds"]
