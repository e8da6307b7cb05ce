"""The function `explain`: why a plan has each conversion, what the alternatives cost, and what would remove it.

plan as `optimize` does -> casts of the integer program -> edits of this program, repriced
"""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

from layoutopt.cost import MultiTargetCostModel
from layoutopt.driver.job import Job, Model, Target
from layoutopt.driver.lifting import Lifted, lift, read
from layoutopt.driver.options import Options, PlanOptions, check, option, takes, values_of
from layoutopt.driver.prices import calibrated_plan
from layoutopt.driver.result import plan_report
from layoutopt.errors import TargetError
from layoutopt.explanation.conversions import conversion
from layoutopt.explanation.item import explain_item, find_item
from layoutopt.explanation.plan_view import PlanView
from layoutopt.explanation.quantization import quantization_note
from layoutopt.explanation.schema import Explanation
from layoutopt.passes.base import Pipeline
from layoutopt.passes.planning import AssignFormats, at_prices, plan_request
from layoutopt.planner import Plan, make_formulated_plan, make_plan
from layoutopt.report.builder import dim_reports
from layoutopt.report.schema import NoteReport
from layoutopt.version import VERSION


@dataclass(frozen=True)
class ExplainOptions(PlanOptions):
    """The arguments of `explain`.

    Attributes:
        model: as for `optimize`.
        item: the name of a tensor or node to explain; None for all conversions.
        target: as for `optimize`, but a single one.
        limit: the largest number of conversions whose alternatives are priced, or of candidates of the item.
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


@takes(ExplainOptions)
def explain(options: ExplainOptions) -> Explanation:
    """Explain the plan of a model: why each conversion is there, what its alternatives cost, what would remove it.

    The plan is made at the prices of the target, unless kernel times are given or taken. No model is written.

    Args:
        options: the arguments are the fields of `ExplainOptions`.

    Raises:
        ArgumentError: an argument is wrong, or no tensor and no node has the name `item`.
        LayoutoptError: as for `optimize`.
    """
    check(options)
    job, item, limit = _job(options), options.item, options.limit
    with job.running():  # an exception counts as caused by the model if onnxruntime refuses the model as well
        lifted = lift(job, read(job))
        quantization = quantization_note(job, lifted)
        found = _view(job, lifted)
        view = None if isinstance(found, str) else found
        if view is None:
            fields: dict[str, Any] = {"reason": found}
        elif item is not None:
            explained = find_item(view, item)
            job.progress("pricing alternatives")
            fields = {"item": explain_item(view, explained, limit)}
        else:
            fields = _conversions(view, limit)
        repairs = [] if view is None else [("read", where, reason) for where, reason in view.graph.repairs]
        plan_notes = [*_plan_notes(job, None if view is None else view.plan), *filter(None, [quantization])]
        notes = [*repairs, *(("plan", "", each) for each in plan_notes)]
        return Explanation(
            layoutopt_version=VERSION,
            model=job.name,
            target=job.context.cost_model.name,
            runtime=job.runtime.name,
            dialect=job.dialect.name,
            dims=tuple(dim_reports(job.context.sizes)),
            plan=plan_report(view.plan) if view is not None else None,
            limit=limit,
            notes=tuple(NoteReport(source=source, where=where, reason=reason) for source, where, reason in notes),
            **fields,
        )


def _conversions(view: PlanView, limit: int) -> dict[str, Any]:
    """The fields of all conversions, those with a cost in descending order of it, else in the order of the graph."""
    casts = list(view.casts())
    priced = sorted((each for each in casts if each.seconds > 0), key=lambda each: -each.seconds)
    conversions = []
    view.job.progress("pricing alternatives")
    has_time = not view.plan.stopped
    for number, cast in enumerate(priced):
        is_priced = has_time and number < limit and not view.repricer.is_out_of_time
        conversions.append(conversion(view, cast, is_priced=is_priced))
    return {"conversions": tuple(conversions), "free_conversions": len(casts) - len(priced)}


def _plan_notes(job: Job, plan: Plan | None) -> Iterator[str]:
    """Notes on the source of the prices, and on what limits them."""
    calibration = job.calibration
    if calibration is not None and calibration.reason:
        yield f"the prices are those of the target: {calibration.reason}"
    elif calibration is not None:
        yield f"the prices are from timed kernels, which are {calibration.share:.0%} of the time"
    if plan is not None and plan.stopped:
        yield f"the time limit ended planning in the stage {plan.stopped}: a better plan may exist"
    if plan is not None and plan.is_limited_by_guards:
        yield (
            "a plan that is faster at these sizes was rejected, since it is slower than the model at other sizes; other plans "
            "meet this condition, too"
        )


def _view(job: Job, lifted: Lifted) -> PlanView | str:
    """The planned graph of a model, or the reason why the model stays unchanged without planning."""
    graph, context = lifted.graph, job.context
    if lifted.reason:
        return lifted.reason
    passes = job.pipeline.passes
    first = next(number for number, step in enumerate(passes) if isinstance(step, AssignFormats))
    Pipeline(passes[:first]).run(graph, context, job.watch)
    job.progress("planning")
    request = plan_request(graph, context)
    if job.options.calibrate:
        model, _ = calibrated_plan(job, lifted.model, graph, lambda each: make_plan(at_prices(request, context, each)))
        request = at_prices(request, context, model)
    return PlanView(job, graph, request, make_formulated_plan(request))


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
