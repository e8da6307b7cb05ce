"""The output of `optimize`: the verdict on one model, all facts with `--verbose`, and the table of several models."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from layoutopt.cli.output_files import Outputs
from layoutopt.cli.rendering.notes import notes_table
from layoutopt.cli.rendering.terminal import Cell, key_values, seconds, section, show, size, styled_line, table, text
from layoutopt.files import path_text
from layoutopt.report.schema import Fact, Report

TONES = {"good": "green", "bad": "bold red", "absent": "yellow", "plain": ""}


def print_summary(report: Report, outputs: Outputs, *, is_verbose: bool = False) -> None:
    """Print the verdict and the files; if `is_verbose`, all facts, the time of every pass, and the notes."""
    unused = ", ".join(map(path_text, outputs.written.unused)) if outputs.written is not None else ""
    unused_line = styled_line((unused, "yellow"), ("  no longer used by a model in the folder", "dim"))
    if is_verbose:
        rows = [*fact_rows(report.facts), ("written", _written(outputs, report))]
        show(title(report), key_values(*rows, *([("unused", unused_line)] if unused else [])))
        _print_passes(report)
        return
    parts = [
        styled_line((each.value, TONES[each.tone]), _aside(each)) for each in report.facts if each.level == "verdict"
    ]
    show(Text("  ").join([text(_names(outputs) or f"{report.model} (no model is written)", "bold"), *parts]))
    if report.plan is not None:
        hint = "" if report.model == "stdin" else f"; layoutopt explain {report.model} shows why conversions remain"
        show(text(f"-v shows all facts{hint}", "dim"))
    if unused:
        show(styled_line("unused: ", unused_line))


def title(report: Report) -> Text:
    """The title line: model, target, runtime, mode and dialect."""
    aside = f"  {report.target}, runtime {report.runtime}, {report.mode}, dialect {report.dialect}"
    return styled_line((report.model, "bold"), (aside, "dim"))


def fact_rows(facts: Iterable[Fact]) -> list[tuple[str, Cell]]:
    """Facts as rows of a label and a value."""
    return [
        (each.label, styled_line((each.value, TONES[each.tone]), (f"  {each.detail}" if each.detail else "", "dim")))
        for each in facts
    ]


def _aside(fact: Fact) -> tuple[str, str]:
    return f" ({fact.detail})" if fact.detail else "", "dim"


def _names(outputs: Outputs) -> str:
    """The files of the result; empty if no model is written."""
    if outputs.written is not None:
        return ", ".join(map(path_text, outputs.written.files))
    return "to stdout" if outputs.prints_model else ""


def _written(outputs: Outputs, report: Report) -> Text:
    took = (f"  in {seconds(report.seconds)}", "dim")
    if not (names := _names(outputs)):
        return styled_line(("no model", "yellow"), took)
    was = (f", was {size(outputs.source_size)}", "dim")
    return styled_line((names, "bold"), f"  {size(outputs.written_size)}", was, took)


def _print_passes(report: Report) -> None:
    rows: list[list[Cell]] = [
        [each.name, ("changed", "green") if each.changed else ("nothing to do", "dim"), seconds(each.seconds)]
        for each in report.passes
    ]
    rest = report.seconds - sum(each.seconds for each in report.passes)
    rows.append([("outside of passes: reading, timing, verifying, measuring", "dim"), "", seconds(max(rest, 0.0))])
    section("passes", "in the order in which they ran", table(["=pass", "=result", ">time"], rows))
    if report.notes:
        section("notes", "passes that did not apply, with reasons", notes_table(report.notes, show_all=True))


@dataclass(frozen=True, slots=True)
class Row:
    """One model of the table of several.

    Attributes:
        model: the file.
        report: the report; None if the model failed.
        is_cached: whether the outcome was in the cache.
    """

    model: str
    report: Report | None
    is_cached: bool = False


def print_table(rows: Sequence[Row]) -> None:
    """Print one row per model, and the numbers of models that were rewritten, left unchanged and failed."""
    shown: list[list[Cell]] = []
    for row in rows:
        facts = {each.label: each for each in reversed(row.report.facts)} if row.report is not None else {}
        default = Fact(label="", value="unchanged") if facts else Fact(label="", value="failed", tone="bad")
        result, moves = facts.get("speed", default), facts.get("data movement", Fact(label="", value=""))
        numbers = moves.value.replace(" layout changes", "")
        shown.append([row.model, (result.value, TONES[result.tone]), numbers])
    changed = sum(row.report is not None and row.report.changed for row in rows)
    failed = sum(row.report is None for row in rows)
    counts = f"{len(rows)} models: {changed} rewritten, {len(rows) - changed - failed} unchanged"
    ends = [(f", {failed} failed", "bold red")] if failed else []
    cached = sum(row.is_cached for row in rows)
    ends += [(f"; {cached} from the cache", "")] if cached else []
    show(table(["model", "=result", "=layout changes"], shown), styled_line(counts, *ends))
