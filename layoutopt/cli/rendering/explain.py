"""The output of `explain`."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.optimize import fact_rows
from layoutopt.cli.rendering.terminal import (
    footnote,
    indented,
    key_values,
    seconds,
    section,
    show,
    size,
    styled_line,
    table,
    text,
)
from layoutopt.explanation import (
    Alternative,
    ConversionReport,
    Explanation,
    FormatChoice,
    ItemExplanation,
    ModelChange,
    Participant,
    Remedy,
)
from layoutopt.report.facts import proof_text, size_facts

_MAX_FORMATS = 3  # alternatives with another format, per conversion; JSON has all
_MAX_ROWS = 12  # conversions without priced alternatives; JSON has all
_METHODS = {"planned again": "", "bound": "at most "}


def print_explained(found: Explanation, record: JsonRecord) -> None:
    """Print an explanation."""
    record.write(found.model_dump(mode="json"))
    if record.is_printed:
        return
    show(styled_line((found.model, "bold"), f"  {found.target}, runtime {found.runtime}, dialect {found.dialect}"))
    if found.plan is None:
        show(indented(text(f"there is no plan to explain: {found.reason}")))
        return
    show(key_values(*_summary(found)))
    if found.item is not None:
        _print_item(found.item)
        return
    for number, each in enumerate(found.conversions, 1):
        if each.is_priced:
            _print_conversion(number, each)
    if rest := [each for each in found.conversions if not each.is_priced]:
        section("more conversions", "without priced alternatives; see --limit and --config time-limit", _unpriced(rest))
    if found.changes:
        aside = "the estimated time that each saves"
        section("changes to the model", aside, _changes(found.changes))


def _summary(found: Explanation) -> list[tuple[str, RenderableType]]:
    plan = found.plan
    assert plan is not None
    rows: list[tuple[str, RenderableType]] = [
        ("estimated time", styled_line(f"{seconds(plan.seconds_after)}  ", (proof_text(plan), "dim")))
    ]
    if found.item is None:
        rows.append(("conversions", _totals(found)))
    rows += fact_rows(size_facts(found.dims))
    return rows + [("note", text(note.reason, "yellow")) for note in found.notes if note.source == "plan"]


def _totals(found: Explanation) -> Text:
    count, free = len(found.conversions), found.free_conversions
    aside = f", and {free} that cost nothing" if free else ""
    if not count:
        aside = aside or ": no two ops of the plan disagree about a format"
        return text(f"none that costs anything{aside}")
    whole, percent = sum(each.seconds for each in found.conversions), sum(each.percent for each in found.conversions)
    return text(f"{count}, which take {seconds(whole)}, {_percent(percent)} of the time{aside}")


def _print_conversion(number: int, each: ConversionReport) -> None:
    name = f"cast of {each.tensor}" if each.kind == "cast" else f"{each.kind} {each.name}"
    body = f" in {each.body}" if each.body else ""
    cost = f"{seconds(each.seconds)}, {_percent(each.percent)} of the time, {size(each.nbytes)} moved"
    rows: list[tuple[str, RenderableType]] = [("from", _participant(each.producer, "produces"))]
    if each.views:
        aside = (f"  metadata only: {each.tensor} has {each.src}", "dim")
        rows.append(("through", styled_line(", ".join(each.views), aside)))
    rows += [("to", _participant(consumer, "reads")) for consumer in each.consumers]
    parts: list[RenderableType] = [key_values(*rows)]
    if each.alternatives:
        parts += [text("best other plans", "dim"), indented(_alternatives(each.alternatives))]
    if each.remedies:
        parts += [text("what would remove it, with the most that it saves", "dim"), indented(_remedies(each.remedies))]
    section(f"{number}. {name}{body}: {each.src} to {each.dst}", cost, Group(*parts))


def _participant(each: Participant, verb: str) -> Text:
    own = each.format.partition("(")[0]  # without the state of the padding
    others = [candidate for candidate in each.candidates if candidate != own]
    verb = {"graph output": "requires", "graph input": "has", "constant": "has"}.get(each.kind, verb)
    aside = f"  could {verb.removesuffix('s')} {', '.join(others)}" if others else ""
    body = f" in {each.body}" if each.body else ""
    return styled_line(f"{each.kind} {each.name}{body} {verb} ", (each.format, "cyan"), (aside, "dim"))


def _alternatives(found: Sequence[Alternative]) -> Table:
    """All alternatives without a conversion, and the cheapest ones with another format."""
    others = sorted((each for each in found if each.kind == "other format"), key=_extra)
    shown = [each for each in found if each.kind != "other format"] + others[:_MAX_FORMATS]
    rows = table(">extra", ">", "condition", "conversions of that plan instead")
    for each in shown:
        instead = text("; ".join(each.other_conversions) or ("none" if each.extra_seconds is not None else ""), "dim")
        rows.add_row(*_extras(each), text(each.condition), instead)
    if len(others) > _MAX_FORMATS:
        rest = len(others) - _MAX_FORMATS
        rows.add_row("", "", text(f"and {rest} more, which cost no less; see --json", "dim"))
    return rows


def _extra(each: Alternative | FormatChoice) -> float:
    return float("inf") if each.extra_seconds is None else each.extra_seconds


def _extras(each: Alternative | FormatChoice) -> tuple[Text, Text]:
    """The extra time of a plan, absolute and relative."""
    if each.extra_seconds is None or each.extra_percent is None:
        return text("impossible" if each.is_proven else "no time left", "dim"), text("")
    sign = "+" if each.is_proven else "at most +"
    if each.extra_seconds < 0:
        return text(f"-{seconds(-each.extra_seconds)}"), text(f"-{_percent(-each.extra_percent)}")
    return text(f"{sign}{seconds(each.extra_seconds)}"), text(f"+{_percent(each.extra_percent)}")


def _remedies(found: Sequence[Remedy]) -> Table:
    rows = table(">saves", ">", "remedy", "reason")
    for each in found:
        cost = (
            ("", "")
            if each.saved_seconds is None
            else (seconds(each.saved_seconds), _percent(each.saved_percent or 0.0))
        )
        rows.add_row(*cost, text(each.what), text(each.reason, "dim"))
    return rows


def _unpriced(found: Sequence[ConversionReport]) -> Table:
    rows = table("tensor", ">time", ">bytes", "from", "to", "ops")
    for each in found[:_MAX_ROWS]:
        ops = f"{each.producer.kind} {each.producer.name} to " + ", ".join(
            f"{to.kind} {to.name}" for to in each.consumers
        )
        cost = (seconds(each.seconds), size(each.nbytes))
        rows.add_row(text(each.tensor), *cost, text(each.src, "cyan"), text(each.dst, "cyan"), text(ops, "dim"))
    if len(found) > _MAX_ROWS:
        rows.add_row(text(f"and {len(found) - _MAX_ROWS} more; see --json", "dim"))
    return rows


def _changes(found: Sequence[ModelChange]) -> Table:
    rows = table(">saves", ">", "=", "change", "reason")
    for each in found:
        saved = f"{_METHODS[each.method]}{seconds(each.saved_seconds)}"
        rows.add_row(
            text(saved),
            _percent(each.saved_percent),
            text(each.method, "dim"),
            text(each.what),
            text(each.reason, "dim"),
        )
    return rows


def _print_item(item: ItemExplanation) -> None:
    kind = f"tensor {item.type}" if item.kind == "tensor" else item.op_type
    rows: list[tuple[str, RenderableType]] = [("before", text(item.before)), ("after", text(item.after, "cyan"))]
    if item.producer is not None:
        rows.append(("from", _participant(item.producer, "produces")))
    rows += [("to", _participant(each, "reads")) for each in item.consumers]
    if item.note:
        rows.append(("no choice", text(item.note)))
    section(item.name, f"{kind}{f' in {item.body}' if item.body else ''}", key_values(*rows))
    if item.choices:
        section("candidates", "the best plan with each, relative to the plan", _choices(item))
    if item.more_choices:
        footnote(f"{item.more_choices} more candidates are not priced; see --limit.")


def _choices(item: ItemExplanation) -> Table:
    rows = table("=format", ">extra", ">", ">time of the op", "")
    for each in item.choices:
        kernel = "" if each.kernel_seconds is None else seconds(each.kernel_seconds)
        style, mark = ("cyan", "chosen") if each.is_chosen else ("", "")
        rows.add_row(text(each.format, style), *_extras(each), kernel, text(mark, "dim"))
    return rows


def _percent(value: float) -> str:
    return f"{value:.1f}%" if value >= 0.095 or not value else f"{value:.1g}%"
