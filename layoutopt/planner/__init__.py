"""Planner: selects a signature for every op by solving an optimisation problem exactly, with a proof of optimality."""

from layoutopt.planner.planning import (
    FormulatedPlan,
    Plan,
    PlanRequest,
    TargetOutcome,
    make_formulated_plan,
    make_plan,
)
from layoutopt.planner.problem import (
    GRAPH_OUTPUT,
    NO_DEADLINE,
    Cast,
    Deadline,
    Option,
    Problem,
    ProblemEdit,
    Solution,
    Tensor,
)
from layoutopt.planner.propagation import CandidateMemo, Candidates, RegionTree, planned_qdq_groups, propose
from layoutopt.planner.regret import MinimaxSolution, least_regret
from layoutopt.planner.repricing import Repriced, Repricer
from layoutopt.planner.solver import solve

__all__ = [
    "GRAPH_OUTPUT",
    "NO_DEADLINE",
    "CandidateMemo",
    "Candidates",
    "Cast",
    "Deadline",
    "FormulatedPlan",
    "MinimaxSolution",
    "Option",
    "Plan",
    "PlanRequest",
    "Problem",
    "ProblemEdit",
    "RegionTree",
    "Repriced",
    "Repricer",
    "Solution",
    "TargetOutcome",
    "Tensor",
    "least_regret",
    "make_formulated_plan",
    "make_plan",
    "planned_qdq_groups",
    "propose",
    "solve",
]
