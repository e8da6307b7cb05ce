"""The conversions of a plan, the most expensive first, and the alternatives to each, with the price of the best plan."""

from collections.abc import Collection, Iterator
from math import inf

from layoutopt.explanation.changes import remedies
from layoutopt.explanation.plan_view import CastInPlan, PlanView
from layoutopt.explanation.schema import Alternative, AlternativeKind, ConversionReport
from layoutopt.formats import Format
from layoutopt.ops import View, rule_of
from layoutopt.planner import GRAPH_OUTPUT, Cast, ProblemEdit, Repriced

_MAX_CONVERSIONS = 4  # conversions of an alternative that are listed
_MAX_OPS = 6  # ops at a conversion whose formats are forced


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
    if writer is None or unit is None or not isinstance(rule_of(unit), View):
        return "cast", value.name
    operands = view.option(writer).operand_states
    is_canonical = view.storage(cast.tensor, state).format.is_canonical and all(
        view.storage(tensor, each).format.is_canonical for tensor, each in operands
    )
    others = [each for each in view.required(cast.tensor) if each not in cast.readers]
    is_output = any(op == GRAPH_OUTPUT for op, _ in view.required(cast.tensor))
    return (unit.kind, view.name(writer)) if is_canonical and not others and not is_output else ("cast", value.name)


# --- alternatives ------------------------------------------------------------------------------------------


def alternatives(view: PlanView, cast: CastInPlan) -> Iterator[Alternative]:
    """The alternatives to a cast: without it, and its ops in other formats."""
    views = view.view_tensors(cast.tensor) - {cast.tensor}
    condition = "no such conversion" + (", nor one on the other side of view ops" if views else "")
    edit = ProblemEdit(forbidden_casts=_same_cast(view, cast) | _casts_of(view, views))
    yield _alternative(view, "without the conversion", condition, edit)
    yield from _other_formats(view, cast)


def _same_cast(view: PlanView, cast: CastInPlan) -> frozenset[Cast]:
    """The casts of the tensor between the same formats, whatever the padding states are."""
    keys = view.key(cast.tensor, cast.source), view.key(cast.tensor, cast.state)
    casts = view.problem.tensors[cast.tensor].casts.items()
    alike = (each for states, each in casts if tuple(view.key(cast.tensor, state) for state in states) == keys)
    return frozenset((cast.tensor, each) for each in alike if each is not None)


def _casts_of(view: PlanView, tensors: Collection[int]) -> frozenset[Cast]:
    """All casts of some tensors."""
    return frozenset((each, cast) for each in tensors for cast in range(len(view.problem.tensors[each].prices)))


def _other_formats(view: PlanView, cast: CastInPlan) -> Iterator[Alternative]:
    """The producer and the readers of a cast, each forced to every other format that it has for the tensor."""
    base = view.view_base(cast.tensor, view.storage(cast.tensor, cast.source).format).tensor
    ops = [(view.writers[base], base, view.produced(base), False)] if base in view.writers else []
    ops += [(op, cast.tensor, state, True) for op, state in cast.readers if op != GRAPH_OUTPUT]
    for op, tensor, state, is_read in ops[:_MAX_OPS]:
        chosen = view.key(tensor, state)
        for key, (format, options) in view.formats_of(op, tensor, is_read=is_read).items():
            if key != chosen:
                text = view.values[tensor].format_text(format)
                condition = f"{view.label(op, tensor)} {'reads' if is_read else 'produces'} {text}"
                yield _alternative(view, "other format", condition, ProblemEdit(allowed_options={op: options}))


def _alternative(view: PlanView, kind: AlternativeKind, condition: str, edit: ProblemEdit) -> Alternative:
    found = view.repricer.reprice(edit)
    others = tuple(_other_conversions(view, found, edit)) if found.extra < inf else ()
    return Alternative(kind=kind, condition=condition, other_conversions=others, **view.price(found))


def _other_conversions(view: PlanView, found: Repriced, edit: ProblemEdit) -> list[str]:
    """The most expensive conversions of a repriced plan that the plan does not have."""
    known = {_text(view, each) for each in view.casts()}
    casts = sorted(view.casts(view.repricer.nearest(found, edit)), key=lambda each: -each.seconds)
    others = [text for text in dict.fromkeys(_text(view, each) for each in casts) if text not in known]
    rest = len(others) - _MAX_CONVERSIONS
    return [*others[:_MAX_CONVERSIONS], *([f"and {rest} more"] if rest > 0 else [])]


def _text(view: PlanView, cast: CastInPlan) -> str:
    """A conversion in one line: the tensor and both formats."""
    value, target = view.values[cast.tensor], view.storage(cast.tensor, cast.state).format
    return f"{value.name}: {view.text(cast.tensor, cast.source)} to {value.format_text(target)}"
