"""The output of `explain`."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.optimize import fact_rows
from layoutopt.cli.rendering.terminal import (
    Cell,
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
    Participant,
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
    proof = (f"  {proof_text(found.plan)}", "dim")
    rows: list[tuple[str, Cell]] = [("estimated time", styled_line(seconds(found.plan.seconds_after), proof))]
    rows += [("conversions", _totals(found))] if found.item is None else []
    rows += fact_rows(size_facts(found.dims))
    rows += [("note", (note.reason, "yellow")) for note in found.notes if note.source == "plan"]
    show(key_values(*rows))
    if found.item is not None:
        _print_item(found.item)
        return
    for number, each in enumerate(found.conversions, 1):
        if each.is_priced:
            _print_conversion(number, each)
    if rest := [each for each in found.conversions if not each.is_priced]:
        section("more conversions", "without priced alternatives; see --limit and --config time-limit", _unpriced(rest))
    if found.changes:
        changes: list[list[Cell]] = [
            [
                f"{_METHODS[each.method]}{seconds(each.saved_seconds)}",
                _percent(each.saved_percent),
                (each.method, "dim"),
                each.what,
                (each.reason, "dim"),
            ]
            for each in found.changes
        ]
        columns = [">saves", ">", "=", "change", "reason"]
        section("changes to the model", "the estimated time that each saves", table(columns, changes))


def _totals(found: Explanation) -> str:
    count, free = len(found.conversions), found.free_conversions
    aside = f", and {free} that cost nothing" if free else ""
    if not count:
        return f"none that costs anything{aside or ': no two ops of the plan disagree about a format'}"
    whole, percent = sum(each.seconds for each in found.conversions), sum(each.percent for each in found.conversions)
    return f"{count}, which take {seconds(whole)}, {_percent(percent)} of the time{aside}"


def _print_conversion(number: int, each: ConversionReport) -> None:
    name = f"cast of {each.tensor}" if each.kind == "cast" else f"{each.kind} {each.name}"
    body = f" in {each.body}" if each.body else ""
    cost = f"{seconds(each.seconds)}, {_percent(each.percent)} of the time, {size(each.nbytes)} moved"
    rows: list[tuple[str, Cell]] = [("from", _participant(each.producer, "produces"))]
    if each.views:
        aside = (f"  metadata only: {each.tensor} has {each.src}", "dim")
        rows.append(("through", styled_line(", ".join(each.views), aside)))
    rows += [("to", _participant(consumer, "reads")) for consumer in each.consumers]
    parts: list[RenderableType] = [key_values(*rows)]
    if each.alternatives:
        parts += [text("best other plans", "dim"), indented(_alternatives(each.alternatives))]
    if each.remedies:
        remedies: list[list[Cell]] = [
            [
                "" if remedy.saved_seconds is None else seconds(remedy.saved_seconds),
                "" if remedy.saved_percent is None else _percent(remedy.saved_percent),
                remedy.what,
                (remedy.reason, "dim"),
            ]
            for remedy in each.remedies
        ]
        parts += [text("what would remove it, with the most that it saves", "dim")]
        parts += [indented(table([">saves", ">", "remedy", "reason"], remedies))]
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
    rows: list[list[Cell]] = []
    for each in [*(each for each in found if each.kind != "other format"), *others[:_MAX_FORMATS]]:
        instead = "; ".join(each.other_conversions) or ("none" if each.extra_seconds is not None else "")
        rows.append([*_extras(each), each.condition, (instead, "dim")])
    if (rest := len(others) - _MAX_FORMATS) > 0:
        rows.append(["", "", (f"and {rest} more, which cost no less; see --json", "dim")])
    return table([">extra", ">", "condition", "conversions of that plan instead"], rows)


def _extra(each: Alternative | FormatChoice) -> float:
    return float("inf") if each.extra_seconds is None else each.extra_seconds


def _extras(each: Alternative | FormatChoice) -> tuple[Cell, Cell]:
    """The extra time of a plan, absolute and relative."""
    if each.extra_seconds is None or each.extra_percent is None:
        return ("impossible" if each.is_proven else "no time left", "dim"), ""
    sign = "-" if each.extra_seconds < 0 else "+"
    caveat = "" if each.is_proven or sign == "-" else "at most "
    return f"{caveat}{sign}{seconds(abs(each.extra_seconds))}", f"{sign}{_percent(abs(each.extra_percent))}"


def _unpriced(found: Sequence[ConversionReport]) -> Table:
    rows: list[list[Cell]] = []
    for each in found[:_MAX_ROWS]:
        readers = ", ".join(f"{to.kind} {to.name}" for to in each.consumers)
        ops = f"{each.producer.kind} {each.producer.name} to {readers}"
        cost = (seconds(each.seconds), size(each.nbytes))
        rows.append([each.tensor, *cost, (each.src, "cyan"), (each.dst, "cyan"), (ops, "dim")])
    if len(found) > _MAX_ROWS:
        rows.append([(f"and {len(found) - _MAX_ROWS} more; see --json", "dim")])
    return table(["tensor", ">time", ">bytes", "from", "to", "ops"], rows)


def _print_item(item: ItemExplanation) -> None:
    kind = f"tensor {item.type}" if item.kind == "tensor" else item.op_type
    rows: list[tuple[str, Cell]] = [("before", item.before), ("after", (item.after, "cyan"))]
    rows += [("from", _participant(item.producer, "produces"))] if item.producer is not None else []
    rows += [("to", _participant(each, "reads")) for each in item.consumers]
    rows += [("no choice", item.note)] if item.note else []
    section(item.name, f"{kind}{f' in {item.body}' if item.body else ''}", key_values(*rows))
    if item.choices:
        choices: list[list[Cell]] = [
            [
                (each.format, "cyan" if each.is_chosen else ""),
                *_extras(each),
                "" if each.kernel_seconds is None else seconds(each.kernel_seconds),
                ("chosen" if each.is_chosen else "", "dim"),
            ]
            for each in item.choices
        ]
        columns = ["=format", ">extra", ">", ">time of the op", ""]
        section("candidates", "the best plan with each, relative to the plan", table(columns, choices))
    if item.more_choices:
        footnote(f"{item.more_choices} more candidates are not priced; see --limit.")


def _percent(value: float) -> str:
    return f"{value:.1f}%" if value >= 0.095 or not value else f"{value:.1g}%"
