"""Changes to a model that would save time, each with the price of a plan of the changed model or a bound on what it saves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from layoutopt.explanation.channel_groups import ChannelGroup, resized, unfilled_groups
from layoutopt.explanation.plan_view import CastInPlan, PlanView
from layoutopt.explanation.reasons import kind_of, reason_without_choice, refusal_of
from layoutopt.explanation.schema import ChangeKind, ChangeMethod, ModelChange
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Value
from layoutopt.planner import GRAPH_OUTPUT, ProblemEdit

MAX_CHANGES = 5
_NAMED = 3  # ops of a change that are named
_LEAST_SHARE = 1e-6  # of the time of the plan that a change saves


def model_changes(view: PlanView, casts: Sequence[CastInPlan], limit: int) -> list[ModelChange]:
    """The changes to the model that save most, the best first.

    Args:
        view: the plan.
        casts: its casts with a cost, the most expensive first.
        limit: the largest number of plans for changes of one kind.
    """
    found = [
        *_rules(view, casts if limit else ()),
        *_pins(view, limit),
        *_interfaces(view, casts, min(limit, MAX_CHANGES)),
        *_channels(view, limit),
    ]
    ranked = sorted(found, key=lambda each: -each.saved_seconds)
    least = _LEAST_SHARE * view.planned.seconds
    return [each for each in ranked if each.saved_seconds > least][:MAX_CHANGES]


def _rules(view: PlanView, casts: Sequence[CastInPlan]) -> Iterator[ModelChange]:
    """Ops at casts whose formats are not those of a neighbour for want of a rule, priced as if they were: a bound."""
    alike: dict[tuple[str, str], dict[int, ProblemEdit]] = {}
    for op, reason, edit in [*_refusing(view, casts), *_without_choice(view, casts)]:
        unit = view.units[op]
        assert isinstance(unit, Op)
        edits = alike.setdefault((unit.kind, reason), {})
        edits[op] = edits[op].joined(edit) if op in edits else edit
    for (kind, reason), edits in alike.items():
        edit = reduce(ProblemEdit.joined, edits.values())
        repriced = view.planned.repricer.reprice(edit)
        what = f"{kind} in the formats of its neighbours, or replaced: {_names([view.name(op) for op in edits])}"
        yield _change(view, kind_of(reason), what, reason, "bound", view.planned.seconds + repriced.least_extra)


def _refusing(view: PlanView, casts: Sequence[CastInPlan]) -> Iterator[tuple[int, str, ProblemEdit]]:
    """The ops at casts whose layout rules refuse the format on the other side, each with the reason and the edit without it."""
    for cast in casts:
        source = view.storage(cast.tensor, cast.source).format
        for op, _ in cast.readers:
            refusal = refusal_of(view, op, cast.tensor, source, is_read=True) if op != GRAPH_OUTPUT else None
            if refusal is not None and refusal[0] != "kernel" and isinstance(view.units[op], Op):
                yield op, refusal[1], ProblemEdit(free_reads=frozenset({(op, cast.tensor)}))
        base = view.view_base(cast.tensor, view.storage(cast.tensor, cast.readers[0][1]).format)
        writer = view.writers.get(base.tensor)
        if writer is None or base.format is None or not isinstance(view.units[writer], Op):
            continue
        refusal = refusal_of(view, writer, base.tensor, base.format, is_read=False)
        if refusal is not None and refusal[0] != "kernel":
            yield writer, refusal[1], ProblemEdit(free_results=frozenset({cast.tensor}))


def _without_choice(view: PlanView, casts: Sequence[CastInPlan]) -> Iterator[tuple[int, str, ProblemEdit]]:
    """The ops with one signature next to casts, or separated from them by ops that take the formats of their neighbours."""
    tensors: set[int] = set()
    for cast in casts:
        if cast.tensor not in tensors:
            tensors |= view.neighbourhood(cast.tensor)
    for op, options in enumerate(view.problem.ops):
        unit, option = view.units[op], options[0]
        is_alone = not view.is_anchor(op) and len(set(map(view.keys_of, options))) == 1
        if isinstance(unit, Op) and is_alone and tensors & view.tensors_of(op):
            reads = frozenset((op, tensor) for tensor, _ in option.operand_states)
            yield (
                op,
                reason_without_choice(view, unit),
                ProblemEdit(free_reads=reads, free_results=frozenset(tensor for tensor, _ in option.result_states)),
            )


def _pins(view: PlanView, limit: int) -> Iterator[ModelChange]:
    """Pins that are dropped."""
    request = view.planned.request
    for value, format in list(request.pins.items())[:limit]:
        others = {each: own for each, own in request.pins.items() if each is not value}
        seconds = view.planned.seconds_of_other_plan(replace(request, pins=others))
        if seconds is not None:
            text = f"{value.name}={value.format_text(format)}"
            yield _change(view, "pin", f"no --pin {text}", "the plan has to meet it", "planned again", seconds)


def _interfaces(view: PlanView, casts: Sequence[CastInPlan], limit: int) -> Iterator[ModelChange]:
    """Inputs and outputs of the model in the formats of their first or last op."""
    for value, (format, reason) in list(_interface_formats(view, casts).items())[:limit]:
        seconds = view.planned.seconds_with_pin(value, format)
        if seconds is not None:
            text = f"{value.name}={value.format_text(format)}"
            yield _change(view, "interface", f"--pin {text}", reason, "planned again", seconds)


def _interface_formats(view: PlanView, casts: Sequence[CastInPlan]) -> Mapping[Value, tuple[Format, str]]:
    """The inputs and outputs of the model that are converted, with the other format of the first conversion of each."""
    found: dict[Value, tuple[Format, str]] = {}
    for cast in casts:
        value = view.values[cast.tensor]
        is_main = not view.body_of(cast.tensor)
        base = view.view_base(cast.tensor, view.storage(cast.tensor, cast.readers[0][1]).format)
        if base.tensor not in view.writers and is_main and base.format is not None:
            found.setdefault(view.values[base.tensor], (base.format, "the input is converted for its readers"))
        if any(op == GRAPH_OUTPUT for op, _ in cast.readers):
            format = view.storage(cast.tensor, cast.source).format
            found.setdefault(value, (format, "the output is converted back"))
    return found


def _channels(view: PlanView, limit: int) -> Iterator[ModelChange]:
    """Channel counts that do not fill blocks, raised to those that do; equal counts are changed together."""
    planned = view.planned
    alike: dict[tuple[int, int], list[ChannelGroup]] = {}
    for group in unfilled_groups(planned.graph, planned.request.cost_model):
        alike.setdefault((group.extent, group.next_extent), []).append(group)
    ranked = sorted(alike.items(), key=lambda each: -len(each[1]))
    for (before, after), groups in ranked[:limit]:
        with resized(planned.graph, groups):
            seconds = view.planned.seconds_of_other_plan(planned.request)
        if seconds is not None:
            names = _names([group.op.name or group.op.kind for group in groups])
            what = f"{after} in place of {before} channels at {names}"
            reason = f"{before} channels do not fill blocks of {groups[0].block}"
            yield _change(view, "channels", what, reason, "planned again", seconds)


def _change(
    view: PlanView, kind: ChangeKind, what: str, reason: str, method: ChangeMethod, seconds: float
) -> ModelChange:
    """A change of the model, after which the best plan takes `seconds`."""
    saved = view.planned.seconds - seconds
    return ModelChange(
        kind=kind,
        what=what,
        reason=reason,
        method=method,
        saved_seconds=saved,
        saved_percent=view.percent(saved),
    )


def _names(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


__all__ = ["MAX_CHANGES", "model_changes"]
