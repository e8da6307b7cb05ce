"""Planner: selects a signature for every op by solving an optimisation problem exactly, with a proof of optimality."""

from layoutopt.planner.candidates import CandidateMemo, Candidates
from layoutopt.planner.deadline import NO_DEADLINE, Deadline
from layoutopt.planner.least_moves import least_moves
from layoutopt.planner.plan import Plan, TargetOutcome
from layoutopt.planner.planning import FormulatedPlan, make_formulated_plan, make_plan
from layoutopt.planner.problem import Option, Problem, Solution, Tensor
from layoutopt.planner.problem_edit import GRAPH_OUTPUT, Cast, ProblemEdit
from layoutopt.planner.propagation import propose
from layoutopt.planner.qdq_groups import planned_qdq_groups
from layoutopt.planner.region_tree import BoundaryUnit, RegionTree
from layoutopt.planner.regret import MinimaxSolution, least_regret
from layoutopt.planner.repricing import Repriced, Repricer
from layoutopt.planner.request import PlanRequest
from layoutopt.planner.solver import solve

__all__ = [
    "GRAPH_OUTPUT",
    "NO_DEADLINE",
    "BoundaryUnit",
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
    "least_moves",
    "least_regret",
    "make_formulated_plan",
    "make_plan",
    "planned_qdq_groups",
    "propose",
    "solve",
]
