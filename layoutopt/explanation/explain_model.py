"""The function `explain`: why a plan has each conversion, what the alternatives cost, and which changes would save most.

plan as `optimize` does -> casts of the integer program -> edits of this program, repriced -> further plans of changed models
"""

from collections.abc import Iterator

from layoutopt.driver.finish import plan_report
from layoutopt.driver.job import Job
from layoutopt.driver.options import check, takes
from layoutopt.explanation.changes import model_changes
from layoutopt.explanation.conversions import conversion, ranked_casts
from layoutopt.explanation.item import explain_item, find_item
from layoutopt.explanation.plan_view import PlanView
from layoutopt.explanation.planned_graph import ExplainOptions, PlannedGraph, planned_graph
from layoutopt.explanation.schema import Explanation
from layoutopt.ir.graph import Graph
from layoutopt.planner import Plan
from layoutopt.report.builder import dim_reports
from layoutopt.report.schema import NoteReport
from layoutopt.version import VERSION


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
    item, limit = options.item, options.limit
    with planned_graph(options) as planned:
        if isinstance(planned, Job):
            return _explanation(planned, None, limit, None, reason=planned.context.reason_to_keep)
        return _item(planned, item, limit) if item is not None else _conversions(planned, limit)


def _item(planned: PlannedGraph, name: str, limit: int) -> Explanation:
    found = find_item(planned, name)
    planned.job.progress("pricing alternatives")
    item = explain_item(PlanView(planned), found, limit)
    return _explanation(planned.job, planned.graph, limit, planned.found.plan, item=item)


def _conversions(planned: PlannedGraph, limit: int) -> Explanation:
    view = PlanView(planned)
    casts = ranked_casts(view)
    conversions = []
    planned.job.progress("pricing alternatives")
    has_time = not planned.found.plan.stopped
    for number, cast in enumerate(casts.priced):
        is_priced = has_time and number < limit and not planned.repricer.is_out_of_time
        conversions.append(conversion(view, cast, is_priced=is_priced))
    return _explanation(
        planned.job,
        planned.graph,
        limit,
        planned.found.plan,
        conversions=tuple(conversions),
        free_conversions=casts.free,
        changes=tuple(model_changes(view, casts.priced, limit)) if has_time else (),
    )


def _explanation(job: Job, graph: Graph | None, limit: int, plan: Plan | None, **fields: object) -> Explanation:
    repairs = [] if graph is None else [("read", where, reason) for where, reason in graph.repairs]
    notes = [*repairs, *(("plan", "", each) for each in _plan_notes(job, plan))]
    return Explanation.model_validate(
        {
            "layoutopt_version": VERSION,
            "model": job.name,
            "target": job.context.cost_model.name,
            "runtime": job.runtime.name,
            "dialect": job.dialect.name,
            "dims": tuple(dim_reports(job.context.sizes)),
            "plan": plan_report(plan) if plan is not None else None,
            "limit": limit,
            "notes": tuple(NoteReport(source=source, where=where, reason=reason) for source, where, reason in notes),
            **fields,
        }
    )


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


__all__ = ["explain"]
