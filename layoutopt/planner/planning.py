"""Planning: candidates, prices, the planning problem of every target, the solver's choice, and the plan.

The regret of a plan on a target is the relative extra time over the best plan for this target alone. One target is the special
case of several targets in which the regret is zero.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from layoutopt.cost import CostModel
from layoutopt.errors import PinError
from layoutopt.ir.types import Op, Signature
from layoutopt.ops import QdqGroups, with_unified_formats
from layoutopt.planner.candidates import Candidates
from layoutopt.planner.deadline import NO_DEADLINE, Deadline, formulate_within
from layoutopt.planner.formulation import Formulation
from layoutopt.planner.guards import GuardedSolution, GuardLimit, guarded_solution
from layoutopt.planner.pins import check_pins, enforce_pins
from layoutopt.planner.plan import Plan, TargetOutcome
from layoutopt.planner.problem import TOLERANCE, Choice, Problem, Solution
from layoutopt.planner.propagation import propose
from layoutopt.planner.qdq_groups import planned_qdq_groups
from layoutopt.planner.region_tree import RegionTree
from layoutopt.planner.regret import MinimaxSolution, least_regret
from layoutopt.planner.request import PlanRequest


@dataclass(frozen=True, slots=True)
class FormulatedPlan:
    """A plan, and the planning problem that it solves.

    Attributes:
        plan: the plan.
        formulation: the problem at the prices of the target, the mean of several.
        candidates: the signatures to choose from.
        choice: the number of the chosen signature, per unit of the problem.
        limits: the limits of guards that rejected a faster plan.
    """

    plan: Plan
    formulation: Formulation
    candidates: Candidates
    choice: Choice
    limits: tuple[GuardLimit, ...]


def make_plan(request: PlanRequest) -> Plan:
    """Choose a signature for every op, in bodies too.

    Raises:
        PinError: no plan meets a pin.
    """
    return make_formulated_plan(request).plan


def make_formulated_plan(request: PlanRequest) -> FormulatedPlan:
    """Choose a signature for every op, in bodies too; returns the plan with the planning problem.

    Raises:
        PinError: no plan meets a pin.
    """
    check_pins(request.graph, request.pins)
    planning, stopped = formulate_within(
        request.deadline, lambda deadline, propagates: _PlanningProblems.of(request, deadline, propagates)
    )
    problems, baseline = planning.problems, planning.baseline_choice
    minimax = least_regret(problems, baseline, NO_DEADLINE if stopped else request.deadline)
    if stopped:  # the bound holds only for the few candidates that were collected
        minimax = minimax.unproven()
    if not stopped and request.deadline.has_passed and not minimax.is_optimal:
        stopped = "solver"
    checked = planning.check_guards(minimax)
    stopped = checked.stopped or stopped
    choice = planning.finalized(checked.solution.choice, minimax)
    if not all(isfinite(problem.price(choice)) for problem in problems):
        raise _unsatisfiable(request)
    outcomes = planning.outcomes(choice, minimax)
    is_single = len(outcomes) == 1
    candidates = planning.candidates
    plan = Plan(
        planning.signatures(choice),
        seconds=_mean(each.seconds for each in outcomes),
        baseline=_mean(each.baseline for each in outcomes),
        lower_bound=checked.solution.lower_bound
        if is_single
        else _mean(each.lower_bound for each in minimax.best_solutions),
        gap=checked.solution.gap if is_single else minimax.gap,
        optimal=checked.solution.optimal if is_single else minimax.is_optimal and not checked.is_replaced,
        notes=candidates.notes,
        outcomes=() if is_single else outcomes,
        stopped=stopped,
        is_limited_by_guards=checked.is_replaced,
        cut=candidates.cut,
    )
    return FormulatedPlan(plan, planning.mean_formulation, candidates, choice, checked.limits)


@dataclass(frozen=True, slots=True)
class _PlanningProblems:
    """The planning problems of a request.

    Attributes:
        request: the request.
        tree: the graph with its regions.
        groups: the QDQ groups that are computed on integers.
        candidates: the signatures to choose from.
        mean_formulation: the problem at the mean prices of all targets.
        problems: the problem at the prices of each target.
    """

    request: PlanRequest
    tree: RegionTree
    groups: QdqGroups
    candidates: Candidates
    mean_formulation: Formulation
    problems: Sequence[Problem]

    @classmethod
    def of(cls, request: PlanRequest, deadline: Deadline, propagates: bool) -> "_PlanningProblems":
        """Collect the candidates, and price them on every target.

        Args:
            request: the request.
            deadline: the end of the time for candidates and prices.
            propagates: whether the formats of kernels are collected and propagated through the graph.
        """
        model, pins = request.cost_model, dict(request.pins)
        known = request.memo.found if request.memo is not None and propagates else None
        tree, groups, candidates = known or _collected(request, deadline, propagates)
        if request.memo is not None and propagates and not candidates.cut:
            request.memo.found = tree, groups, candidates

        def formulate(each: CostModel) -> Formulation:
            return Formulation(
                tree, each, candidates, groups, pins, request.free_constants, deadline, breaks_ties=request.breaks_ties
            )

        mean = formulate(model)
        is_single = len(request.targets) == 1
        problems = [mean.problem] if is_single else [formulate(each).problem for each in request.targets]
        return cls(request, tree, groups, candidates, mean, problems)

    @property
    def baseline_choice(self) -> Choice:
        """The choice of the original graph: every op in canonical formats, apart from pins."""
        return tuple(self.mean_formulation.baseline_choice)

    def check_guards(self, minimax: MinimaxSolution) -> GuardedSolution:
        """The minimax choice, or the best choice that is not slower than the baseline at any guard point."""
        solution, mean_problem = minimax.best_solutions[0], self.mean_formulation.problem
        if len(minimax.best_solutions) > 1:
            solution = Solution(minimax.choice, mean_problem.price(minimax.choice), 0.0, minimax.is_optimal)
        return guarded_solution(
            self._formulate_at_guard,
            self.candidates,
            mean_problem,
            self.request.target_guards,
            self.baseline_choice,
            solution,
            self.request.deadline,
        )

    def _formulate_at_guard(self, model: CostModel, candidates: Candidates, deadline: Deadline) -> Formulation:
        request = self.request
        pins = dict(request.pins)
        return Formulation(self.tree, model, candidates, self.groups, pins, request.free_constants, deadline)

    def finalized(self, choice: Choice, minimax: MinimaxSolution) -> Choice:
        """The choice with packed constants and least padding; the baseline if that is as fast, and nothing is pinned."""
        worst, worst_before = self._worst_ratio(choice, minimax), self._worst_ratio(self.baseline_choice, minimax)
        formulation = self.mean_formulation
        if self.request.pins or worst < worst_before * (1 - TOLERANCE):
            return tuple(formulation.with_least_padding(formulation.with_packed_constants(choice)))
        return self.baseline_choice

    def _worst_ratio(self, choice: Choice, minimax: MinimaxSolution) -> float:
        """The largest ratio of the time of a choice on a target to that of the best plan for this target alone."""
        pairs = zip(self.problems, minimax.best_solutions, strict=True)
        return max(problem.price(choice) / (best.price or 1.0) for problem, best in pairs)

    def outcomes(self, choice: Choice, minimax: MinimaxSolution) -> tuple[TargetOutcome, ...]:
        """The times of the choice, of the baseline and of the best choice for this target alone, on every target."""
        targets = zip(self.request.targets, self.problems, minimax.best_solutions, strict=True)
        return tuple(
            TargetOutcome(
                model.name,
                problem.price(choice),
                problem.price(self.baseline_choice),
                best.price,
                self.signatures(best.choice),
            )
            for model, problem, best in targets
        )

    def signatures(self, choice: Choice) -> dict[Op, Signature]:
        """The signature of every op under a choice."""
        units = zip(self.tree.units, choice, strict=True)
        chosen = {unit: self.candidates.signatures[unit][index] for unit, index in units}
        return with_unified_formats(self.tree.runs, self.groups, self.tree.signatures(chosen))


def _collected(request: PlanRequest, deadline: Deadline, propagates: bool) -> tuple[RegionTree, QdqGroups, Candidates]:
    """The graph with its regions, its QDQ groups and its candidates, of which all meet the pins."""
    model, pins = request.cost_model, dict(request.pins)
    tree = RegionTree(request.graph, weights_by_runs=request.weights_by_runs)
    groups = planned_qdq_groups(tree.runs, model, keeps_them=request.keeps_qdq_groups)
    candidates = propose(tree, model, pins, groups, request.keeps_qdq_groups, deadline, propagates)
    enforce_pins(tree, candidates, pins)
    return tree, groups, candidates


def _unsatisfiable(request: PlanRequest) -> PinError:
    return PinError(
        "no plan satisfies the pins: a conversion would be inside of a QDQ group",
        where=", ".join(value.name for value in request.pins) or request.graph.name,
        hint="pin the integers before or behind the QDQ group, or a graph input or output",
    )


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return sum(found) / len(found)
