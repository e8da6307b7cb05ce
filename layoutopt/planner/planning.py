"""Planning: candidates, prices, the planning problem of every target, the solver's choice, and the plan.

The regret of a plan on a target is the relative extra time over the best plan for this target alone. One target is the special
case of several targets in which the regret is zero.

A platform is one target: a signature is on a device, so that one problem contains the choice of devices and of formats. The
memory of a device limits the bytes of the constants that its ops read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from operator import getitem
from typing import Literal

from msgspec import field
from msgspec.structs import replace

from layoutopt.cost import CostModel, targets_of
from layoutopt.errors import PinError, TargetError
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Value
from layoutopt.ops import storage_bytes
from layoutopt.planner.formulation import Formulation
from layoutopt.planner.problem import (
    NO_DEADLINE,
    TOLERANCE,
    Choice,
    Deadline,
    Problem,
    Solution,
)
from layoutopt.planner.program import Limit
from layoutopt.planner.propagation import (
    CandidateMemo,
    Candidates,
    RegionTree,
    check_pins,
    enforce_pins,
    propose,
)
from layoutopt.planner.regret import least_regret, worst_ratio
from layoutopt.planner.solver import solve, solve_within
from layoutopt.record import Record

# --- The request to the planner: a graph, the target or targets, and the constraints on the plan ---


class PlanRequest(Record):
    """A graph to plan, the target, and the constraints.

    Attributes:
        graph: the graph, unplanned.
        cost_model: the target, or several.
        pins: formats that values must have: graph inputs, graph outputs, or values in between.
        free_constants: whether constants are converted ahead of time, at no cost.
        keeps_qdq_groups: whether QDQ groups stay as they are.
        deadline: the end of the time for planning; after it the best plan so far is returned, with its gap.
        guards: the cost model at each guard point, where the plan may not be slower than the original graph.
        memo: the candidates of earlier plans of the same graph, pins and sizes at other prices; None if there are none.
        devices: the devices of a platform, the host first, with the bytes of their memory.
        placement: the devices on which each op of the graph and of its bodies may run, for a platform.
    """

    graph: Graph
    cost_model: CostModel
    pins: Mapping[Value, Format] = field(default_factory=dict)
    free_constants: bool = True
    keeps_qdq_groups: bool = False
    deadline: Deadline = NO_DEADLINE
    guards: Sequence[CostModel] = ()
    memo: CandidateMemo | None = None
    devices: Mapping[str, float] = field(default_factory=dict)
    placement: Mapping[Op, tuple[str, ...]] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[CostModel, ...]:
        """The cost model of every target."""
        return targets_of(self.cost_model)

    @property
    def target_guards(self) -> list[CostModel]:
        """The cost model of every target at each guard point."""
        return [model for each in self.guards for model in targets_of(each)]


# --- The plan: the signature of every op, its estimated time, and the proof ---


class TargetOutcome(Record):
    """The estimated times of a plan for several targets on one of them.

    Attributes:
        target: its name.
        seconds: estimated time under the plan.
        baseline: estimated time of the original graph.
        alone: estimated time under the best plan for this target alone, of the same candidates.
    """

    target: str
    seconds: float
    baseline: float
    alone: float

    @property
    def regret(self) -> float:
        """The relative extra time over the best plan for this target alone."""
        return self.seconds / self.alone - 1 if self.alone else 0.0


class PlatformOutcome(Record):
    """The estimated times of other plans for a platform; infinite if memory is too small.

    Attributes:
        alone: with every op on one device, by its name; ops that cannot run there, or are placed elsewhere, are on others.
        placed_first: of the best devices for canonical formats, with the best formats for these devices.
    """

    alone: Mapping[str, float]
    placed_first: float


class Plan(Record):
    """The chosen signature of every op, the estimated time, and the proof of optimality.

    Attributes:
        signatures: the signature of every op of the graph and of its bodies.
        seconds: estimated time of all ops and casts under the plan; ops in bodies are weighted with their expected runs.
        baseline: estimated time of the graph before planning, with every op in canonical format.
        greedy: estimated time with formats that are propagated from op to op, or the baseline where that is faster.
        lower_bound: the time in seconds that no plan of the candidates can beat.
        gap: the largest possible distance of `seconds` to the best plan, as a fraction; 0 if the plan is proven optimal.
        optimal: whether the solver finished.
        notes: per op, the reasons why proposed formats are illegal.
        stopped: the stage that the time limit ended, or None. In the stage `candidates`, ops keep the model's formats, apart
            from pinned values, and the lower bound is 0.
        cut: the number of formats and signatures beyond the limits of candidates, for which the bound does not hold.
        is_limited_by_guards: whether a faster plan was rejected because it is slower than the original graph at other sizes.
        outcomes: the times on each target of a plan for several targets. `seconds`, `baseline` and `lower_bound` are then means
            over the targets, and the gap is that of the worst ratio of the seconds to those of the best plan for
            that target alone.
        platform: the times of other plans; None unless the target is a platform.
    """

    signatures: Mapping[Op, Signature]
    seconds: float
    baseline: float
    greedy: float
    lower_bound: float
    gap: float
    optimal: bool
    notes: Mapping[Op, list[str]] = field(default_factory=dict)
    outcomes: tuple[TargetOutcome, ...] = ()
    platform: PlatformOutcome | None = None
    stopped: Literal["candidates", "solver"] | None = None
    is_limited_by_guards: bool = False
    cut: int = 0

    def __repr__(self) -> str:
        proof = "optimal" if self.optimal and not self.gap else f"gap {self.gap:.2%}"
        return f"Plan({len(self.signatures)} ops, {self.seconds:.3g} s, before {self.baseline:.3g} s, {proof})"

    @property
    def improves(self) -> bool:
        """Whether the plan is faster than the original graph; for several targets, whether its worst ratio is smaller."""
        if self.outcomes:
            before = max(each.baseline / (each.alone or 1.0) for each in self.outcomes)
            return max(each.regret for each in self.outcomes) + 1 < before * (1 - TOLERANCE)
        return self.seconds < self.baseline * (1 - TOLERANCE)


# --- Plans that are not slower than the original model at other sizes of symbolic dimensions ---
#
# The fastest plan at the inferred sizes of dimensions may be slower than the original model at other sizes: a Transpose of a
# product with one row, for example, is free. A plan is therefore compared with the baseline (the original graph) at the guard
# points. If it is slower at one of them, the planner searches the cheapest plan among those that are not:
#
#     minimise     price at the planned sizes
#     subject to   price at guard k <= price of the baseline at guard k     for every k


class FormulatedPlan(Record):
    """A plan, and the planning problem that it solves.

    Attributes:
        plan: the plan.
        formulation: the problem at the prices of the target, the mean of several.
        choice: the number of the chosen signature, per op of the problem.
        limits: the limits of guards that rejected a faster plan.
    """

    plan: Plan
    formulation: Formulation
    choice: Choice
    limits: tuple[Limit, ...]


def make_plan(request: PlanRequest) -> Plan:
    """Choose a signature for every op, in bodies too.

    Raises:
        PinError: no plan meets a pin.
        TargetError: the devices of a platform have too little memory, or no device has the kernels of a QDQ group.
    """
    return make_formulated_plan(request).plan


def make_formulated_plan(request: PlanRequest) -> FormulatedPlan:
    """Choose a signature for every op, in bodies too; returns the plan with the planning problem.

    Raises:
        PinError: no plan meets a pin.
        TargetError: the devices of a platform have too little memory, or no device has the kernels of a QDQ group.
    """
    check_pins(request.pins)
    planning = _Planning(request)
    minimax, best_solutions = least_regret(planning.problems, planning.baseline, request.deadline)
    stopped: Literal["candidates", "solver"] | None = None
    if not planning.candidates.is_complete:  # the bound holds only for the candidates that were collected
        stopped = "candidates"
        minimax = replace(minimax, lower_bound=0.0, optimal=False)
        best_solutions = tuple(replace(each, lower_bound=0.0, optimal=False) for each in best_solutions)
    elif request.deadline.has_passed and not minimax.optimal:
        stopped = "solver"
    checked, limits = planning.within_limits(minimax)
    choice = planning.finalized(checked.choice, best_solutions)
    if not all(isfinite(problem.price(choice)) for problem in planning.problems):
        raise _unsatisfiable(request, planning.candidates)
    outcomes = planning.outcomes(choice, best_solutions)
    is_single = len(outcomes) == 1
    plan = Plan(
        planning.signatures(choice),
        seconds=_mean(each.seconds for each in outcomes),
        baseline=_mean(each.baseline for each in outcomes),
        greedy=min(map(planning.mean.problem.price, (planning.baseline, planning.mean.greedy_choice()))),
        lower_bound=checked.lower_bound if is_single else _mean(each.lower_bound for each in best_solutions),
        gap=checked.gap if is_single else minimax.gap,
        optimal=checked.optimal if is_single else minimax.optimal and not limits,
        notes=planning.candidates.notes,
        outcomes=() if is_single else outcomes,
        platform=planning.platform_outcome(choice, limits),
        stopped=stopped,
        is_limited_by_guards=len(limits) > len(planning.memory_limits),
        cut=planning.candidates.cut,
    )
    return FormulatedPlan(plan, planning.mean, choice, limits)


class _Planning:
    """The planning problems of a request.

    Args:
        request: the request.

    Attributes:
        candidates: the signatures to choose from.
        mean: the problem at the mean prices of all targets.
        problems: the problem at the prices of each target.
        baseline: the choice of the original graph: every op in canonical formats, apart from pins.
        memory_limits: the limits of the devices whose memory is too small for all constants.
    """

    def __init__(self, request: PlanRequest) -> None:
        self.request, memo = request, request.memo
        self.candidates = (memo and memo.found) or _collected(request)
        if memo is not None and not self.candidates.cut:
            memo.found = self.candidates
        self.mean = self._formulation(request.cost_model, self.candidates)
        self.problems = [self.mean.problem]
        if len(request.targets) > 1:
            self.problems = [self._formulation(each, self.candidates).problem for each in request.targets]
        self.baseline: Choice = tuple(self.mean.baseline_choice)
        self.memory_limits = [*self._memory_limits()]

    def _formulation(self, model: CostModel, candidates: Candidates) -> Formulation:
        return Formulation(candidates, model, self.request.pins, self.request.free_constants)

    def _memory_limits(self) -> Iterator[Limit]:
        nbytes = [
            sum(storage_bytes(value, value.storage) for value in {*op.inputs} if value and value.data and value.storage)
            for op in self.candidates.signatures
        ]
        for device, memory in self.request.devices.items():
            if sum(nbytes) > memory:
                options = zip(nbytes, self.mean.problem.ops, self.candidates.signatures.values(), strict=True)
                ops = [
                    [replace(one, price=size * (of.device == device)) for one, of in zip(own, signatures, strict=True)]
                    for size, own, signatures in options
                ]
                tensors = [replace(each, prices=[0.0] * len(each.prices)) for each in self.mean.problem.tensors]
                yield Limit(Problem(ops, tensors), memory)

    def within_limits(self, minimax: Solution) -> tuple[Solution, tuple[Limit, ...]]:
        """The minimax choice if it is within all limits; otherwise the best such choice.

        It must not exceed the memory of a device, nor be slower than the baseline at a guard point.

        Returns:
            The solution at the mean prices of all targets; the limits of memory, and if a guard point rejected the minimax
            choice, those of guards.

        Raises:
            TargetError: the devices have too little memory, or the time limit ended before such a choice was found.
        """
        limits = tuple(self.memory_limits)
        if limits and not all(each.allows(minimax.choice) for each in limits):
            minimax = solve_within(self.mean.problem, limits, minimax.choice, self.request.deadline)
            if not isfinite(minimax.price):
                what = "the devices have too little memory for the constants of their ops"
                hint = "place fewer ops, or give more memory; a constant counts once per op that reads it"
                if self.request.deadline.has_passed:
                    what = "the time limit ended before a plan within the memory of the devices was found"
                    hint = "raise the time limit"
                raise TargetError(what, where=self.request.cost_model.name, hint=hint)
        checked, guards = self._within_guards(minimax)
        return checked, (*limits, *guards)

    def _within_guards(self, minimax: Solution) -> tuple[Solution, tuple[Limit, ...]]:
        """The minimax choice if it is not slower than the baseline at any guard point; otherwise the best such choice.

        A baseline that exceeds the memory of a device is no plan to compare with.
        """
        problem, baseline, guards = self.mean.problem, self.baseline, self.request.target_guards
        solution = minimax
        if len(self.problems) > 1:
            solution = replace(minimax, price=problem.price(minimax.choice), lower_bound=0.0)
        if solution.choice == baseline or not isfinite(problem.price(baseline)) or not self._baseline_fits():
            return solution, ()
        if not any(self._is_slower(guard, solution.choice) for guard in guards):
            return solution, ()
        problems = [self._formulation(guard, self.candidates).problem for guard in guards]
        limits = tuple(Limit(each, each.price(baseline)) for each in problems)
        found = solve_within(problem, (*limits, *self.memory_limits), baseline, self.request.deadline)
        bound = max(found.lower_bound, solution.lower_bound)
        return replace(found, lower_bound=bound).with_optimality(), limits

    def _baseline_fits(self) -> bool:
        return all(each.allows(self.baseline) for each in self.memory_limits)

    def _is_slower(self, guard: CostModel, choice: Choice) -> bool:
        """Whether a choice is slower than the baseline at a guard point, by a problem of these two, which has few prices."""
        options = self.candidates.signatures.items()
        pairs = {op: [each[a], each[b]] for (op, each), a, b in zip(options, self.baseline, choice, strict=True)}
        problem = self._formulation(guard, replace(self.candidates, signatures=pairs)).problem
        first, second = (0,) * len(choice), (1,) * len(choice)
        return not Limit(problem, problem.price(first)).allows(second)

    def finalized(self, choice: Choice, best_solutions: Sequence[Solution]) -> Choice:
        """The choice; the baseline if that is as fast, and nothing is pinned."""
        worst, before = (worst_ratio(self.problems, best_solutions, each) for each in (choice, self.baseline))
        is_best = self.request.pins or not self._baseline_fits() or worst < before * (1 - TOLERANCE)
        return choice if is_best else self.baseline

    def platform_outcome(self, choice: Choice, limits: Sequence[Limit]) -> PlatformOutcome | None:
        """The times of other plans of a platform."""
        if not self.request.devices:
            return None
        deadline, first = self.request.deadline, (0,) * len(choice)

        def best(options: Sequence[Sequence[int]]) -> Solution:
            problem, within = self.mean.problem.restricted(options), [each.restricted(options) for each in limits]
            return solve_within(problem, within, first, deadline) if within else solve(problem, first, deadline)

        ops = range(len(choice))
        alone = {each: best([self.mean.options_on(op, each) for op in ops]).price for each in self.request.devices}
        canonical = [*zip(*self.mean.baselines, strict=True)]
        placed = map(getitem, canonical, best(canonical).choice)
        devices = [each.device for each in self.signatures(tuple(placed)).values()]
        return PlatformOutcome(alone, best([*map(self.mean.options_on, ops, devices)]).price)

    def outcomes(self, choice: Choice, best_solutions: Sequence[Solution]) -> tuple[TargetOutcome, ...]:
        """The times of the choice, of the baseline and of the best choice for this target alone, on every target."""
        targets = zip(self.request.targets, self.problems, best_solutions, strict=True)
        return tuple(
            TargetOutcome(
                model.name,
                problem.price(choice),
                problem.price(self.baseline),
                best.price,
            )
            for model, problem, best in targets
        )

    def signatures(self, choice: Choice) -> dict[Op, Signature]:
        """The signature of every op under a choice."""
        options = zip(self.candidates.signatures.items(), choice, strict=True)
        return {op: signatures[index] for (op, signatures), index in options}


def _collected(request: PlanRequest) -> Candidates:
    """The candidates of a graph, of which all meet the pins."""
    tree = RegionTree(request.graph)
    candidates = propose(tree, request.cost_model, request.pins, request.keeps_qdq_groups, request.deadline)
    enforce_pins(candidates, request.pins)
    if not request.devices:
        return candidates
    signatures = {
        op: [each.placed(device) for device in request.placement[op] for each in found]
        for op, found in candidates.signatures.items()
    }
    return replace(candidates, signatures=signatures, devices=tuple(request.devices))


def _unsatisfiable(request: PlanRequest, candidates: Candidates) -> PinError | TargetError:
    if request.devices and not request.pins:
        where = _op_without_device(request, candidates) or request.cost_model.name
        hint = "place them on one device, or give one device kernels of all of them"
        return TargetError("the ops of a QDQ group cannot run on one device", where=where, hint=hint)
    return PinError(
        "no plan satisfies the pins: a conversion would be inside of a QDQ group",
        where=", ".join(value.name for value in request.pins) or request.graph.name,
        hint="pin the integers before or behind the QDQ group, or a graph input or output",
    )


def _op_without_device(request: PlanRequest, candidates: Candidates) -> str:
    """The first op that runs on no device of the ops before it in the kernel of its QDQ group; empty if there is none."""
    writers, groups, shared = candidates.tree.writers, candidates.groups, dict[Op, set[str]]()
    for op in candidates.tree.ops:
        shared[op] = {*request.placement[op]}
        for index, value in enumerate(op.inputs):
            writer = writers[value][0] if value in writers and (op, index) in groups.inner else op
            if not groups.fused_into_kernels.isdisjoint((op, writer)):
                shared[op] &= shared[writer]
        if not shared[op]:
            return op.name or op.kind
    return ""


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return sum(found) / len(found)
