"""Which signature should every op have? An optimisation problem, solved exactly, with its proof in the result."""

from layoutopt.planner.candidates import Candidates, propose
from layoutopt.planner.deadline import NO_DEADLINE, Deadline
from layoutopt.planner.integers import integers_of
from layoutopt.planner.least import least_moves
from layoutopt.planner.nest import Handover, Nest
from layoutopt.planner.plan import Outcome, Plan
from layoutopt.planner.planning import make_plan
from layoutopt.planner.problem import Option, Problem, Solution, Tensor
from layoutopt.planner.regret import Agreement, least_regret
from layoutopt.planner.request import PlanRequest
from layoutopt.planner.solver import solve

__all__ = [
    "NO_DEADLINE",
    "Agreement",
    "Candidates",
    "Deadline",
    "Handover",
    "Nest",
    "Option",
    "Outcome",
    "Plan",
    "PlanRequest",
    "Problem",
    "Solution",
    "Tensor",
    "integers_of",
    "least_moves",
    "least_regret",
    "make_plan",
    "propose",
    "solve",
]
