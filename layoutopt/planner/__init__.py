"""Planner: selects a signature for every op by solving an optimisation problem exactly, with a proof of optimality."""

from layoutopt.planner.planning import (
    FormulatedPlan,
    Plan,
    PlanRequest,
    PlatformOutcome,
    make_formulated_plan,
    make_plan,
)
from layoutopt.planner.problem import (
    GRAPH_OUTPUT,
    Cast,
    Deadline,
    Option,
    Problem,
    ProblemEdit,
    Tensor,
)
from layoutopt.planner.propagation import CandidateMemo, RegionTree, planned_qdq_groups, propose
from layoutopt.planner.regret import least_regret
from layoutopt.planner.repricing import Repricer
from layoutopt.planner.solver import solve
