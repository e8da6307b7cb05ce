"""Alternatives to a conversion or format, each with the price of the best plan that has it."""

from collections.abc import Collection, Iterator
from math import inf

from layoutopt.explanation.plan_view import CastInPlan, PlanView
from layoutopt.explanation.schema import Alternative, AlternativeKind
from layoutopt.planner import GRAPH_OUTPUT, Cast, ProblemEdit, Repriced

_MAX_CONVERSIONS = 4  # conversions of an alternative that are listed
_MAX_OPS = 6  # ops at a conversion whose formats are forced


def alternatives(view: PlanView, cast: CastInPlan) -> Iterator[Alternative]:
    """The alternatives to a cast: without it, without any cast in its neighbourhood, and its ops in other formats."""
    views = view.view_tensors(cast.tensor) - {cast.tensor}
    condition = "no such conversion" + (", nor one on the other side of view ops" if views else "")
    edit = ProblemEdit(forbidden_casts=_same_cast(view, cast) | _casts_of(view, views))
    yield _alternative(view, "without the conversion", condition, edit)
    tensors = view.neighbourhood(cast.tensor)
    if len(tensors) > len(views) + 1:
        condition = (
            f"no conversion of the {len(tensors)} tensors around it, up to the next ops with kernels of their own"
        )
        edit = ProblemEdit(forbidden_casts=_casts_of(view, tensors))
        yield _alternative(view, "without conversions around it", condition, edit)
    yield from _other_formats(view, cast)


def _same_cast(view: PlanView, cast: CastInPlan) -> frozenset[Cast]:
    state = cast.readers[0][1]
    keys = view.key(cast.tensor, cast.source), view.key(cast.tensor, state)
    return frozenset(view.same_conversions(cast.tensor, *keys))


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
    extra, percent = extra_of(view, found)
    return Alternative(
        kind=kind,
        condition=condition,
        extra_seconds=extra,
        extra_percent=percent,
        is_proven=found.is_proven,
        other_conversions=tuple(_other_conversions(view, found, edit)),
    )


def extra_of(view: PlanView, found: Repriced) -> tuple[float | None, float | None]:
    """The extra seconds of a repriced plan, and in percent of the time of the plan; None if there is no such plan."""
    if found.extra == inf:
        return None, None
    return found.extra, view.percent(found.extra)


def _other_conversions(view: PlanView, found: Repriced, edit: ProblemEdit) -> list[str]:
    """The most expensive conversions of a repriced plan that the plan does not have."""
    if found.extra == inf:
        return []
    known = {_conversion(view, each, view.choice) for each in view.casts()}
    others: dict[str, float] = {}
    choice = view.repricer.nearest(found, edit)
    for tensor, cast in view.casts(choice):
        text = _conversion(view, (tensor, cast), choice)
        if text not in known:
            others[text] = view.problem.tensors[tensor].prices[cast]
    ranked = sorted(others, key=lambda text: -others[text])
    rest = len(ranked) - _MAX_CONVERSIONS
    return [*ranked[:_MAX_CONVERSIONS], *([f"and {rest} more"] if rest > 0 else [])]


def _conversion(view: PlanView, cast: Cast, choice: tuple[int, ...]) -> str:
    tensor, number = cast
    source, casts = view.produced(tensor, choice), view.problem.tensors[tensor].casts
    target = next(state for (has, state), each in casts.items() if has == source and each == number)
    return view.conversion_text(tensor, view.storage(tensor, source), view.storage(tensor, target))
