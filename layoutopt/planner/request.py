"""The request to the planner: a graph, the target or targets, and the constraints on the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from layoutopt.cost import CostModel, MultiTargetCostModel
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Value
from layoutopt.planner.candidates import CandidateMemo
from layoutopt.planner.deadline import NO_DEADLINE, Deadline


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A graph to plan, the target, and the constraints.

    Attributes:
        graph: the graph, unplanned.
        cost_model: the target, or several.
        pins: formats that values must have: graph inputs, graph outputs, or values in between.
        free_constants: whether constants are converted ahead of time, at no cost.
        keeps_qdq_groups: whether QDQ groups stay as they are.
        deadline: the end of the time for planning; after it the best plan so far is returned, with its gap.
        weights_by_runs: whether the prices of ops in bodies are multiplied by the expected number of runs.
        breaks_ties: whether plans of one price are distinguished, by the bytes that they move.
        guards: the cost model at each guard point, where the plan may not be slower than the original graph.
        memo: the candidates of earlier plans of the same graph, pins and sizes at other prices; None if there are none.
    """

    graph: Graph
    cost_model: CostModel
    pins: Mapping[Value, Format] = field(default_factory=dict)
    free_constants: bool = True
    keeps_qdq_groups: bool = False
    deadline: Deadline = NO_DEADLINE
    weights_by_runs: bool = True
    breaks_ties: bool = True
    guards: Sequence[CostModel] = ()
    memo: CandidateMemo | None = None

    @property
    def targets(self) -> tuple[CostModel, ...]:
        """The cost model of every target."""
        return self.cost_model.models if isinstance(self.cost_model, MultiTargetCostModel) else (self.cost_model,)

    @property
    def target_guards(self) -> list[CostModel]:
        """The cost model of every target at each guard point."""
        models = [each.models if isinstance(each, MultiTargetCostModel) else (each,) for each in self.guards]
        return [model for several in models for model in several]
