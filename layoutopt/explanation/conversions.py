"""The conversions of a plan, the most expensive first, with alternatives and remedies for as many as the limit permits."""

from layoutopt.explanation.alternatives import alternatives
from layoutopt.explanation.changes import remedies
from layoutopt.explanation.plan_view import CastInPlan, PlanView
from layoutopt.explanation.schema import ConversionReport
from layoutopt.formats import Format
from layoutopt.ir.types import Op
from layoutopt.ops import View, rule_of
from layoutopt.planner import GRAPH_OUTPUT


def ranked_casts(view: PlanView) -> tuple[list[CastInPlan], int]:
    """The casts with a cost, the most expensive first, those of one price in the order of the graph; and how many are free."""
    casts = list(view.casts())
    priced = sorted((each for each in casts if each.seconds > 0), key=lambda each: -each.seconds)
    return priced, len(casts) - len(priced)


def conversion(view: PlanView, cast: CastInPlan, *, is_priced: bool) -> ConversionReport:
    """A conversion of a plan; with `is_priced`, its alternatives and remedies."""
    value = view.values[cast.tensor]
    state = cast.state
    base = view.view_base(cast.tensor, view.storage(cast.tensor, cast.source).format)
    kind, name = _moving_op(view, cast, state)
    return ConversionReport(
        kind=kind,
        name=name,
        tensor=value.name,
        body=view.body_of(cast.tensor),
        src=view.text(cast.tensor, cast.source),
        dst=view.text(cast.tensor, state),
        axes=value.format_text(Format.canonical(value.rank or 0)),
        nbytes=view.nbytes(cast.tensor, cast.source) + view.nbytes(cast.tensor, state),
        seconds=cast.seconds,
        percent=view.percent(cast.seconds),
        producer=view.participant(
            view.writers.get(base.tensor), base.tensor, view.produced(base.tensor), is_read=False
        ),
        views=tuple(view.name(op) for op in base.views),
        consumers=tuple(view.participant(op, cast.tensor, each, is_read=True) for op, each in cast.readers),
        is_priced=is_priced,
        alternatives=tuple(alternatives(view, cast)) if is_priced else (),
        remedies=tuple(remedies(view, cast)) if is_priced else (),
    )


def _moving_op(view: PlanView, cast: CastInPlan, state: int) -> tuple[str, str]:
    """'cast' and the tensor; or the type and the name of the view op that the rewritten model has instead.

    A view op whose result is converted to the canonical format at once, and whose input is canonical, is the op of the model
    (the pass absorb-casts).
    """
    value, writer = view.values[cast.tensor], view.writers.get(cast.tensor)
    unit = view.units[writer] if writer is not None else None
    if writer is None or not isinstance(unit, Op) or not isinstance(rule_of(unit), View):
        return "cast", value.name
    operands = view.option(writer).operand_states
    is_canonical = view.storage(cast.tensor, state).format.is_canonical and all(
        view.storage(tensor, each).format.is_canonical for tensor, each in operands
    )
    others = [each for each in view.required(cast.tensor) if each not in cast.readers]
    is_output = any(op == GRAPH_OUTPUT for op, _ in view.required(cast.tensor))
    return (unit.kind, view.name(writer)) if is_canonical and not others and not is_output else ("cast", value.name)
