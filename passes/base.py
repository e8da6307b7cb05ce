"""Pass, Pipeline and PassContext: the interface of a pass, and the loop that runs the passes.

A pass is a frozen dataclass, because `Pass` is one: its fields are its options, `run` changes the graph. The graph's version
shows whether it changed something. Between passes the invariants of the graph are checked, so the error names the pass that
breaks one; an exception that a pass raises has a note with the name of the pass.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct, field

from layoutopt.cost import CostModel, Epilogues, Platform, priced_with
from layoutopt.cost.size_growth import Growth, PassBudget
from layoutopt.errors import InvariantError
from layoutopt.formats import Format
from layoutopt.ir.constants import stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import NO_SIZES, Sizes
from layoutopt.ir.types import Value
from layoutopt.ir.verify import violations
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.planner import Plan
from layoutopt.record import Record

Mode: TypeAlias = Literal["inference", "training"]
Sessions: TypeAlias = Literal["balanced", "fast"]
Moment: TypeAlias = Literal["before", "after"]
PlanWith: TypeAlias = Callable[[CostModel], Plan]
MakePlan: TypeAlias = Callable[[Graph, PlanWith], tuple[CostModel, Plan]]
TimeGraphs: TypeAlias = Callable[[Sequence[Graph]], Sequence[float | None]]
Watch: TypeAlias = Callable[[Moment, "Pass", Graph], None]


class Note(Record):
    """The reason why a pass did not apply to an op or a value."""

    source: str
    where: str
    reason: str


class PassContext(Struct):
    """The state that passes share.

    Attributes:
        cost_model: the cost model of the target.
        mode: in training, weights and their casts stay in the graph.
        pins: formats that values must have, by the value's name.
        time_limit: seconds for the planner.
        kernels: the ops beyond the ONNX standard for which the dialect has kernels.
        sizes: the sizes of symbolic dimensions that the planner uses.
        find_epilogues: finds the ops that the runtime computes in the kernel before them.
        epilogues: these ops of the planned graph; empty before planning.
        keeps_qdq_groups: whether QDQ groups stay as they are.
        make_plan: returns the plan and the cost model that it has the prices of, given a function that plans at the prices of
            a cost model; None to plan at those of `cost_model`.
        time_graphs: times lowered graphs in the runtime, in seconds; None for a graph that was not timed. Not set if nothing is
            to be timed.
        plan: the plan; None before planning.
        notes: the ops and values to which passes did not apply, with reasons.
        growth: the budget for the growth of constants in bytes.
        is_rewritten: whether a pass with `justifies_rewrite` has changed the graph.
        reason_to_keep: the reason of a pass of the dialect to return the original; empty if there is none.
        block: the number of channels in a block of the lowered graph's arrays; 0 if its kernels take no blocks.
        sessions: "fast" if session creation may become faster at the cost of runs.
        exact: rewrites that change rounding and must not be made, each as the name of its pass and its tensor.
        inexact: the pass and the tensor of every rewrite that changed rounding.
        platform: the devices of the target; None unless it is a platform.
        devices: the device of some ops, by op type or by the beginning of the name.
    """

    cost_model: CostModel
    mode: Mode = "inference"
    pins: Mapping[str, Format] = field(default_factory=dict)
    time_limit: float | None = None
    kernels: frozenset[str] = frozenset()
    sizes: Sizes = NO_SIZES
    find_epilogues: Callable[[Graph], Epilogues] = lambda graph: {}
    epilogues: Epilogues = field(default_factory=dict)
    keeps_qdq_groups: bool = False
    make_plan: MakePlan | None = None
    time_graphs: TimeGraphs | None = None
    plan: Plan | None = None
    notes: list[Note] = field(default_factory=list)
    growth: Growth = field(default_factory=Growth)
    is_rewritten: bool = False
    reason_to_keep: str = ""
    block: int = 0
    sessions: Sessions = "balanced"
    exact: frozenset[tuple[str, str]] = frozenset()
    inexact: list[tuple[str, str]] = field(default_factory=list)
    platform: Platform | None = None
    devices: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_to_gain(self) -> bool:
        """Whether the original stays if the result is slower: not in training or for fast sessions, pins and devices."""
        # The baseline has packed weights, which training changes.
        return not self.pins and self.platform is None and self.sessions != "fast" and self.mode != "training"

    def prices_at(self, sizes: Sizes, model: CostModel | None = None) -> CostModel:
        """The prices of the ops of the graph at given sizes, with the runtime's epilogues; `cost_model` by default."""
        return priced_with(self.cost_model if model is None else model, sizes=sizes, epilogues=self.epilogues)

    def budget(self, source: "Pass", graph: Graph) -> PassBudget:
        """The bytes by which `source` may enlarge the constants of a graph and its bodies."""
        return PassBudget(self.growth, source.name, self.growth.limit - stored_bytes(graph.regions()))

    def note(self, source: "Pass", where: str, reason: str) -> None:
        """Record why `source` did not apply."""
        self.notes.append(Note(source.name, where, reason))

    def may_change_rounding(self, source: "Pass", value: Value) -> bool:
        """Whether `source` may compute a value by operations that round differently."""
        return (source.name, value.tensor) not in self.exact

    def changed_rounding(self, source: "Pass", value: Value) -> None:
        """Record that `source` computes a value by operations that round differently."""
        self.inexact.append((source.name, value.tensor))


@dataclass(frozen=True)
class Pass(ABC):
    """A step of the pipeline.

    A pass that computes the same real numbers by other operations, which round differently, asks
    `PassContext.may_change_rounding` at every place, and calls `changed_rounding` where it does.

    Attributes:
        name: its name in reports and dumps.
        justifies_rewrite: whether a change by this pass is a reason to rewrite a model that no plan makes faster.
        handles_bodies: whether it runs once, on the main graph, and handles bodies itself; if not, it runs on every graph,
            bodies first.
        needs_constants: whether it does not run in training, which changes weights.
        before: for the pass of an extension: the name of the pass before whose first run it is inserted.
        after: for the pass of an extension: the name of the pass after whose last run it is inserted. It sets either this or
            `before`.
    """

    name: ClassVar[str]
    justifies_rewrite: ClassVar[bool] = True
    handles_bodies: ClassVar[bool] = False
    needs_constants: ClassVar[bool] = False
    before: ClassVar[str] = ""
    after: ClassVar[str] = ""

    @abstractmethod
    def run(self, graph: Graph, context: PassContext) -> None:
        """Change the graph in place."""


class PassResult(Record):
    """The result of a run of a pass."""

    name: str
    changed: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in order."""

    passes: tuple[Pass, ...]

    def extended(self, added: Sequence[Pass]) -> "Pipeline":
        """The pipeline with each of `added` before or after the pass that it names.

        A pass that names a pass neither in the pipeline nor in `added` is left out.
        """
        passes, waiting = list(self.passes), list(added)
        while waiting:
            names = [each.name for each in passes]
            step = next((each for each in waiting if (each.before or each.after) in names), None)
            if step is None:
                break
            waiting.remove(step)
            position = names.index(step.before) if step.before else len(names) - names[::-1].index(step.after)
            passes.insert(position, step)
        return Pipeline(tuple(passes))

    def run(self, graph: Graph, context: PassContext, watch: Watch | None = None) -> list[PassResult]:
        """Run all passes.

        Args:
            graph: the graph, which is changed in place.
            context: the state that the passes share.
            watch: called as `watch("before" | "after", pass, graph)` around every pass.

        Raises:
            InvariantError: the graph violates an invariant; the error names the pass.
        """
        self._check(graph, "the graph before the first pass")
        results = []
        for step in self.passes:
            if watch is not None:
                watch("before", step, graph)
            versions, start = _versions(graph), perf_counter()
            _run(step, graph, context)
            result = PassResult(step.name, _versions(graph) != versions, perf_counter() - start)
            results.append(result)
            context.is_rewritten |= result.changed and step.justifies_rewrite
            self._check(graph, f"pass {step.name}")
            if watch is not None:
                watch("after", step, graph)
        return results

    def _check(self, graph: Graph, source: str) -> None:
        if (broken := next(iter(violations(graph)), None)) is not None:
            raise InvariantError(str(broken), where=source, hint="this is a bug in the pass; please report it")


def _run(step: Pass, graph: Graph, context: PassContext) -> None:
    """Run one pass; an exception gets a note with the names of the pass and of the graph."""
    if step.needs_constants and context.mode == "training":
        return
    for each in [graph] if step.handles_bodies else reversed(regions_with_rule(graph)):
        try:
            step.run(each, context)
        except Exception as error:
            error.add_note(f"in pass {step.name}, graph {each.name!r}")
            raise


def _versions(graph: Graph) -> list[tuple[int, int]]:
    return [(id(each), each.version) for each in graph.regions()]
