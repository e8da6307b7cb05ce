"""From a graph to a plan: candidates, prices, the planning problem of every target, the choice, and the plan that it means.

One target is the case of several in which the least regret is zero. The regret of a plan on a target is how much longer it
takes there than the target's own best plan, as a fraction.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from layoutopt.cost import CostModel
from layoutopt.errors import PinError
from layoutopt.ir.types import Op, Signature
from layoutopt.ops import QdqGroups, with_unified_formats
from layoutopt.planner.candidates import Candidates, propose
from layoutopt.planner.deadline import NO_DEADLINE, Deadline, within
from layoutopt.planner.formulation import Formulation
from layoutopt.planner.guards import Guarded, guarded
from layoutopt.planner.integers import integers_of
from layoutopt.planner.nest import Nest
from layoutopt.planner.pins import check_pins, enforce_pins
from layoutopt.planner.plan import Outcome, Plan
from layoutopt.planner.problem import TOLERANCE, Problem, Solution
from layoutopt.planner.regret import Agreement, Choice, least_regret
from layoutopt.planner.request import PlanRequest


def make_plan(request: PlanRequest) -> Plan:
    """Choose a signature for every op, in bodies too.

    Raises:
        PinError: no plan meets a pin.
    """
    check_pins(request.graph, request.pins)
    planning, stopped = within(request.deadline, lambda deadline, spreads: _Planning.of(request, deadline, spreads))
    problems, start = planning.problems, planning.start
    agreement = least_regret(problems, start, NO_DEADLINE if stopped else request.deadline)
    if stopped:  # the bound is one of the few candidates that are left
        agreement = agreement.unproven()
    elif request.deadline.is_over and not agreement.is_optimal:
        stopped = "solver"
    checked = planning.guarded(agreement)
    choice = planning.finished(checked.solution.choice, agreement)
    if not all(isfinite(problem.price(choice)) for problem in problems):
        raise _unsatisfiable(request)
    outcomes = planning.outcomes(choice, agreement)
    is_single = len(outcomes) == 1
    return Plan(
        planning.signatures(choice),
        seconds=_mean(each.seconds for each in outcomes),
        baseline=_mean(each.baseline for each in outcomes),
        lower_bound=checked.solution.lower_bound if is_single else _mean(each.lower_bound for each in agreement.own),
        gap=checked.solution.gap if is_single else agreement.gap,
        optimal=checked.solution.optimal if is_single else agreement.is_optimal and not checked.is_other,
        notes=planning.candidates.notes,
        outcomes=() if is_single else outcomes,
        stopped=stopped,
        is_guarded=checked.is_other,
    )


@dataclass(frozen=True, slots=True)
class _Planning:
    """The planning problems of a request.

    Attributes:
        request: the request.
        nest: the graph with its bodies.
        integers: the quantised units that are computed on integers.
        candidates: the signatures to choose from.
        mean: the problem at the mean prices of all targets.
        problems: the problem at the prices of each target.
    """

    request: PlanRequest
    nest: Nest
    integers: QdqGroups
    candidates: Candidates
    mean: Formulation
    problems: Sequence[Problem]

    @classmethod
    def of(cls, request: PlanRequest, deadline: Deadline, spreads: bool) -> "_Planning":
        """Collect the candidates, and price them on every target.

        Args:
            request: the request.
            deadline: the end of the time for it.
            spreads: whether the formats of kernels are collected and spread through the graph.
        """
        model, pins = request.cost_model, dict(request.pins)
        nest = Nest(request.graph, by_runs=request.by_runs)
        integers = integers_of(nest.runs, model, whole=request.whole_units)
        candidates = propose(nest, model, pins, integers, request.whole_units, deadline, spreads)
        enforce_pins(nest, candidates, pins)

        def priced(each: CostModel) -> Formulation:
            return Formulation(nest, each, candidates, integers, pins, request.free_constants, deadline)

        mean = priced(model)
        others = [mean.problem] if len(request.targets) == 1 else [priced(each).problem for each in request.targets]
        return cls(request, nest, integers, candidates, mean, others)

    @property
    def start(self) -> Choice:
        """The choice that leaves every op as it is."""
        return tuple(self.mean.start)

    def guarded(self, agreement: Agreement) -> Guarded:
        """The agreed choice, or the best one that is slower than the start at no guard."""
        own, price = agreement.own, self.mean.problem.price(agreement.choice)
        agreed = own[0] if len(own) == 1 else Solution(agreement.choice, price, 0.0, agreement.is_optimal)
        guards, left = self.request.target_guards, self.request.deadline.left
        return guarded(self._formulate, self.candidates, self.mean.problem, guards, self.start, agreed, left)

    def _formulate(self, model: CostModel, offered: Candidates) -> Formulation:
        request = self.request
        return Formulation(self.nest, model, offered, self.integers, dict(request.pins), request.free_constants)

    def finished(self, choice: Choice, agreement: Agreement) -> Choice:
        """The choice with its storages tightened; the start if that is as good on the worst target and nothing is pinned."""
        if self.request.pins or self._worst(choice, agreement) < self._worst(self.start, agreement) * (1 - TOLERANCE):
            return tuple(self.mean.tightened(self.mean.packed(choice)))
        return self.start

    def _worst(self, choice: Choice, agreement: Agreement) -> float:
        """The largest ratio of the time of a choice on a target to that of the target's own plan."""
        pairs = zip(self.problems, agreement.own, strict=True)
        return max(problem.price(choice) / (own.price or 1.0) for problem, own in pairs)

    def outcomes(self, choice: Choice, agreement: Agreement) -> tuple[Outcome, ...]:
        """The choice on every target, beside the target's own."""
        rows = zip(self.request.targets, self.problems, agreement.own, strict=True)
        return tuple(
            Outcome(
                model.name, problem.price(choice), problem.price(self.start), own.price, self.signatures(own.choice)
            )
            for model, problem, own in rows
        )

    def signatures(self, choice: Choice) -> dict[Op, Signature]:
        """The signature of every op under a choice."""
        units = zip(self.nest.units, choice, strict=True)
        chosen = {unit: self.candidates.signatures[unit][index] for unit, index in units}
        return with_unified_formats(self.nest.runs, self.integers, self.nest.signatures(chosen))


def _unsatisfiable(request: PlanRequest) -> PinError:
    return PinError(
        "no plan meets it: a quantised unit would have to be torn apart",
        where=", ".join(value.name for value in request.pins) or request.graph.name,
        hint="pin the integers before or behind the unit, or a graph input or output",
    )


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return sum(found) / len(found)
