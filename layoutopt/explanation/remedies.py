"""Changes outside of the plan that remove a conversion: another kernel, a layout rule, a pin, the interface, channels."""

from collections.abc import Iterator

from layoutopt.explanation.plan_view import CastInPlan, PlanView
from layoutopt.explanation.reasons import refusal_of
from layoutopt.explanation.schema import Remedy, RemedyKind
from layoutopt.planner import GRAPH_OUTPUT, ProblemEdit

_MAX_READERS = 4


def remedies(view: PlanView, cast: CastInPlan) -> Iterator[Remedy]:
    """The remedies for a cast, each with a bound on what it saves."""
    state = cast.readers[0][1]
    if view.key(cast.tensor, cast.source) == view.key(cast.tensor, state):
        yield from _padding(view, cast, state)
    value = view.values[cast.tensor]
    if value in view.planned.request.pins:
        text = value.format_text(view.planned.request.pins[value])
        yield Remedy(
            kind="pin", what=f"no --pin {value.name}={text}", reason="the tensor is pinned to it", saved_seconds=None
        )
    found = [_of_reader(view, cast, op, required) for op, required in cast.readers[:_MAX_READERS]]
    effective = [each for each in found if each is not None and each.saved_seconds]
    joint = [_of_all_readers(view, cast)] if len(cast.readers) > 1 and not effective else []
    for each in (*effective, *joint, _of_producer(view, cast, state)):
        if each is not None and each.saved_seconds:
            yield each


def _of_reader(view: PlanView, cast: CastInPlan, op: int, required: int) -> Remedy | None:
    """The remedy that a reader accepts the format in which the tensor is produced; None if it does at no cost."""
    tensor, source = cast.tensor, view.storage(cast.tensor, cast.source).format
    value = view.values[tensor]
    edit = ProblemEdit(free_reads=frozenset({(op, tensor)}))
    given, needed = value.format_text(source), view.text(tensor, required)
    if op == GRAPH_OUTPUT:
        reason = f"the model returns it in {needed}"
        what = f"an output {value.name} in {given}: --pin {value.name}={given}"
        return _priced(view, "interface", what, reason, edit)
    refusal = refusal_of(view, op, tensor, source, is_read=True)
    if refusal is None:
        return None
    kind, reason = refusal
    return _priced(view, kind, f"{view.label(op, tensor)} that reads {given} as fast as {needed}", reason, edit)


def _of_all_readers(view: PlanView, cast: CastInPlan) -> Remedy | None:
    """The remedy that all readers accept the format in which the tensor is produced; None if each does at no cost."""
    source = view.storage(cast.tensor, cast.source).format
    ops = [op for op, _ in cast.readers if op != GRAPH_OUTPUT]
    refusals = [refusal_of(view, op, cast.tensor, source, is_read=True) for op in ops]
    reasons = list(dict.fromkeys(refusal[1] for refusal in refusals if refusal is not None))
    kind: RemedyKind = next((refusal[0] for refusal in refusals if refusal is not None), "kernel")
    if not reasons:
        return None
    edit = ProblemEdit(free_reads=frozenset((op, cast.tensor) for op, _ in cast.readers))
    labels = ", ".join(view.label(op, cast.tensor) for op, _ in cast.readers)
    given = view.values[cast.tensor].format_text(source)
    return _priced(view, kind, f"{labels}, if all of them read {given} as fast", "; ".join(reasons), edit)


def _of_producer(view: PlanView, cast: CastInPlan, state: int) -> Remedy | None:
    """The remedy that the producer has the format that the readers require; None if it may have it at no cost."""
    base = view.view_base(cast.tensor, view.storage(cast.tensor, state).format)
    tensor, value = base.tensor, view.values[base.tensor]
    edit = ProblemEdit(free_results=frozenset({cast.tensor}))
    given = view.text(tensor, view.produced(tensor))
    needed = "a format with these bytes" if base.format is None else value.format_text(base.format)
    if tensor not in view.writers:
        pin = "" if base.format is None else f": --pin {value.name}={needed}"
        what = f"an input {value.name} in {needed}{pin}"
        return _priced(view, "interface", what, f"callers pass it in {given}", edit)
    op = view.writers[tensor]
    what = f"{view.label(op, tensor)} that produces {needed} as fast as {given}"
    if base.format is None:
        names = ", ".join(view.name(each) for each in base.views)
        return _priced(view, "rule", what, f"no format of {value.name} has these bytes in front of {names}", edit)
    refusal = refusal_of(view, op, tensor, base.format, is_read=False)
    if refusal is None:
        return None
    kind, reason = refusal
    return _priced(view, kind, what, reason, edit)


def _priced(view: PlanView, kind: RemedyKind, what: str, reason: str, edit: ProblemEdit) -> Remedy:
    found = view.planned.repricer.reprice(edit)
    saved = max(0.0, -found.least_extra)
    return Remedy(kind=kind, what=what, reason=reason, saved_seconds=saved, saved_percent=view.percent(saved))


def _padding(view: PlanView, cast: CastInPlan, state: int) -> Iterator[Remedy]:
    """The remedy for a mask: channel counts that fill the blocks."""
    value, storage = view.values[cast.tensor], view.storage(cast.tensor, state)
    shape = value.static_shape
    for axis in storage.format.blocked_axes if shape is not None else ():
        block = storage.format.block(axis)
        if shape is not None and shape[axis] % block:
            full = -(-shape[axis] // block) * block
            what = f"{full} in place of {shape[axis]} channels in axis {axis} of {value.name}"
            reason = (
                f"{shape[axis]} do not fill blocks of {block}, and a reader does not accept the elements in the padding"
            )
            edit = ProblemEdit(free_reads=frozenset((op, cast.tensor) for op, _ in cast.readers))
            yield _priced(view, "channels", what, reason, edit)


__all__ = ["remedies"]
