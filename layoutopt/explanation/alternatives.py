"""Alternatives to a conversion or format, each with the price of the best plan that has it."""

from collections.abc import Collection, Iterator
from math import inf

from layoutopt.explanation.plan_view import CastInPlan, PlanView
from layoutopt.explanation.schema import Alternative, AlternativeKind
from layoutopt.planner import GRAPH_OUTPUT, Cast, ProblemEdit, Repriced

_MAX_CONVERSIONS = 4  # conversions of an alternative that are listed
_MAX_OPS = 6  # ops at a conversion whose formats are forced


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
