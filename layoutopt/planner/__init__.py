"""Which signature should every op have? An optimisation problem, solved exactly, with its proof in the result."""

from layoutopt.planner.candidates import Candidates, propose
from layoutopt.planner.integers import integers_of
from layoutopt.planner.least import least_moves
from layoutopt.planner.nest import Handover, Nest
from layoutopt.planner.plan import Plan, make_plan
from layoutopt.planner.problem import Option, Problem, Solution, Tensor
from layoutopt.planner.solver import solve

__all__ = [
    "Candidates",
    "Handover",
    "Nest",
    "Option",
    "Plan",
    "Problem",
    "Solution",
    "Tensor",
    "integers_of",
    "least_moves",
    "make_plan",
    "propose",
    "solve",
]
