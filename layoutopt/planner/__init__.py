"""Which signature should every op have? An optimisation problem, solved exactly, with its proof in the result."""

from layoutopt.planner.candidates import Candidates, propose
from layoutopt.planner.plan import Plan, make_plan
from layoutopt.planner.problem import Option, Problem, Solution, Tensor
from layoutopt.planner.solver import solve

__all__ = [
    "Candidates",
    "Option",
    "Plan",
    "Problem",
    "Solution",
    "Tensor",
    "make_plan",
    "propose",
    "solve",
]
