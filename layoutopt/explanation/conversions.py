"""The conversions of a plan, the most expensive first, and the alternatives to each, with the price of the best plan."""

from collections.abc import Collection, Iterator, Sequence
from math import inf

from msgspec.structs import replace

from layoutopt.explanation.plan_view import CastInPlan, PlanView
from layoutopt.explanation.remedies import remedies
from layoutopt.explanation.schema import Alternative, ConversionReport
from layoutopt.formats import Format
from layoutopt.ir.types import Padding
from layoutopt.planner import GRAPH_OUTPUT, Cast, ProblemEdit

_MAX_CONVERSIONS = 4  # conversions of an alternative that are listed
_MAX_OPS = 6  # ops at a conversion whose formats are forced


def conversion(view: PlanView, cast: CastInPlan, *, is_priced: bool) -> ConversionReport:
    """A conversion of a plan; with `is_priced`, its alternatives and remedies."""
    value, tensor = view.values[cast.tensor], cast.tensor
    base = view.view_base(tensor, view.storage(tensor, cast.source).format)
    return ConversionReport(
        tensor=value.name,
        body=view.body_of(value),
        src=view.text(tensor, cast.source),
        dst=view.text(tensor, cast.state),
        axes=value.format_text(Format.canonical(value.rank or 0)),
        bytes=view.nbytes(tensor, cast.source) + view.nbytes(tensor, cast.state),
        seconds=cast.seconds,
        percent=view.percent(cast.seconds),
        views=tuple(view.name(op) for op in base.views),
        ops=view.participants(base.tensor, tensor, cast.readers),
        is_priced=is_priced,
        alternatives=tuple(alternatives(view, cast)) if is_priced else (),
        remedies=tuple(remedies(view, cast)) if is_priced else (),
    )


# --- alternatives ------------------------------------------------------------------------------------------


def alternatives(view: PlanView, cast: CastInPlan) -> Iterator[Alternative]:
    """The alternatives to a cast: without it, and its ops in other formats."""
    views = view.view_tensors(cast.tensor) - {cast.tensor}
    condition = "no such conversion" + (", nor one on the other side of view ops" if views else "")
    yield alternative(view, condition, ProblemEdit(forbidden_casts=_same_cast(view, cast) | _casts_of(view, views)))
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
                condition = f"{view.label(op)} {'reads' if is_read else 'produces'} {text}"
                yield alternative(view, condition, ProblemEdit(allowed_options={op: options}))


def alternative(view: PlanView, condition: str, edit: ProblemEdit, kernel_seconds: float | None = None) -> Alternative:
    """The best plan of an edited problem; `kernel_seconds` is the time of the op that the condition is about."""
    found = view.repricer.reprice(edit)
    is_possible = found.extra < inf
    return Alternative(
        condition=condition,
        extra_seconds=found.extra if is_possible else None,
        extra_percent=view.percent(found.extra) if is_possible else None,
        is_proven=found.is_proven,
        kernel_seconds=kernel_seconds,
        other_conversions=_other_conversions(view, view.repricer.nearest(found, edit)) if is_possible else (),
    )


def _other_conversions(view: PlanView, choice: Sequence[int]) -> tuple[str, ...]:
    """The most expensive conversions of another plan that the plan does not have."""
    required, tensors = view.problem.required_casts, view.problem.tensors
    known = {_text(view, *each) for each in required(view.choice) or ()}
    casts = sorted(required(choice) or (), key=lambda each: -tensors[each[0]].prices[each[1]])
    others = [text for text in dict.fromkeys(_text(view, *each) for each in casts) if text not in known]
    rest = len(others) - _MAX_CONVERSIONS
    return (*others[:_MAX_CONVERSIONS], *([f"and {rest} more"] if rest > 0 else []))


def _text(view: PlanView, tensor: int, cast: int) -> str:
    """A conversion in one line: the tensor and both formats."""
    source, state = next(states for states, each in view.problem.tensors[tensor].casts.items() if each == cast)
    target = replace(view.storage(tensor, state), padding=Padding.ZERO)
    value = view.values[tensor]
    return f"{value.name}: {view.text(tensor, source)} to {target.placed_text(value.axis_letters or '')}"
