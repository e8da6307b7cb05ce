"""The graph of a model, unplanned, with its plan and the planning problem that the plan solves."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

from layoutopt.cost import MultiTargetCostModel
from layoutopt.driver.arguments import Model, Target
from layoutopt.driver.job import Job
from layoutopt.driver.options import Options, PlanOptions, option, values_of
from layoutopt.driver.prices import calibrated_plan
from layoutopt.driver.stages import lift, read
from layoutopt.errors import PinError, TargetError
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Value
from layoutopt.passes.base import Pipeline
from layoutopt.passes.planning import AssignFormats, at_prices, plan_request
from layoutopt.planner import FormulatedPlan, PlanRequest, Repricer, make_formulated_plan, make_plan
from layoutopt.report.builder import located_ops


@dataclass(frozen=True)
class ExplainOptions(PlanOptions):
    """The arguments of `explain`.

    Attributes:
        model: as for `optimize`.
        item: the name of a tensor or node to explain; None for all conversions, and the changes to the model that save most.
        target: as for `optimize`, but a single one.
        limit: the largest number of conversions whose alternatives are priced, or of candidates of the item;
            and of plans for changes of one kind.
        calibrate: plan for this machine with kernels that are timed on it, as `optimize` does.
        progress: called with the name of every step as it begins.
    """

    model: Model
    item: str | None = None
    target: Target = "cpu"
    _: KW_ONLY
    limit: int = option(10, "Conversions, or candidates of a tensor or node, that are priced.", least=0)
    calibrate: bool = False
    progress: Callable[[str], None] | None = None


@dataclass
class PlannedGraph:
    """A graph with its plan.

    Attributes:
        job: the job that read the model.
        graph: the graph before formats are assigned.
        original_names: the names of the tensors and ops before the first pass.
        request: the planning request.
        found: the plan and the problem that it solves.
    """

    job: Job
    graph: Graph
    original_names: frozenset[str]
    request: PlanRequest
    found: FormulatedPlan

    @property
    def seconds(self) -> float:
        """The estimated time of the plan."""
        return self.found.plan.seconds

    @cached_property
    def repricer(self) -> Repricer:
        """Prices edits of the planning problem, in the time that the deadline of the request leaves."""
        problem, remaining = self.found.formulation.problem, self.request.deadline.remaining
        return Repricer(problem, self.found.choice, remaining, self.found.limits)

    @cached_property
    def bodies(self) -> Mapping[Graph, str]:
        """The path of every graph with ops: the names of the enclosing ops and of their attributes."""
        return {self.graph: ""} | {located.graph: located.body for located in located_ops(self.graph)}

    def seconds_of_other_plan(self, request: PlanRequest) -> float | None:
        """The estimated time of the plan for another request; None if no plan meets it, or planning has no time left."""
        if self.request.deadline.has_passed:
            return None
        self.job.progress("planning again")
        try:
            other = make_plan(request)
        except PinError:
            return None
        return None if other.stopped else other.seconds

    def seconds_with_pin(self, value: Value, format: Format) -> float | None:
        """The estimated time of the plan with one more pin; None as for `seconds_of_other_plan`."""
        return self.seconds_of_other_plan(replace(self.request, pins={**self.request.pins, value: format}))


@contextmanager
def planned_graph(options: ExplainOptions) -> Iterator[PlannedGraph | Job]:
    """Context manager with the planned graph of a model; with the job alone if the model stays unchanged without planning.

    An exception in the context counts as caused by the model if onnxruntime refuses the model as well.

    Raises:
        LayoutoptError: the arguments or the model are wrong.
    """
    job = _job(options)
    with job.running():
        yield _planned(job)


def _planned(job: Job) -> PlannedGraph | Job:
    source = read(job)
    lifted = lift(job, source)
    graph, context = lifted.graph, job.context
    context.reason_to_keep = lifted.reason
    if graph.contradiction is not None and not lifted.reason:
        context.reason_to_keep = f"its shapes contradict each other at {graph.contradiction[0]}"
    if context.reason_to_keep:
        return job
    names = _names(graph)
    passes = job.pipeline.passes
    first = next(number for number, step in enumerate(passes) if isinstance(step, AssignFormats))
    Pipeline(passes[:first]).run(graph, context, job.watch)
    job.progress("planning")
    request = plan_request(graph, context)
    if job.options.calibrate:
        model, _ = calibrated_plan(
            job, source, graph, context, lambda each: make_plan(at_prices(request, context, each))
        )
        request = at_prices(request, context, model)
    return PlannedGraph(job, graph, names, request, make_formulated_plan(request))


def _names(graph: Graph) -> frozenset[str]:
    """The names of all tensors and ops of a graph and of the bodies in it."""
    tensors = (value.name for each in graph.regions() for value in each.values)
    return frozenset((*tensors, *(op.name for each in graph.regions() for op in each.ops if op.name)))


def _job(options: ExplainOptions) -> Job:
    """The job whose stages up to planning are those of `optimize`; nothing is verified or measured.

    Raises:
        LayoutoptError: an argument is wrong, or there are several targets.
    """
    calibrate = options.calibrate or options.profile is not None
    shared = values_of(options, PlanOptions) | {"verify": False, "measure": False, "calibrate": calibrate}
    job = Job.of(Options(options.model, options.target, progress=options.progress, **shared))
    if isinstance(job.target_model, MultiTargetCostModel):
        what = "a plan for several targets has no single price to explain"
        raise TargetError(what, where=job.target_model.name, hint="name one of them")
    return job


__all__ = ["ExplainOptions", "PlannedGraph", "planned_graph"]
