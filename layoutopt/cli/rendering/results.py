"""The texts of `optimize`, `inspect`, `explain` and `ci`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from layoutopt.cli.rendering.terminal import Document, documents_text, fact_line, line, rendered, table, value_text
from layoutopt.files import path_text
from layoutopt.onnx_io.writer import WrittenFiles
from layoutopt.report.facts import proof_text, size_facts
from layoutopt.report.schema import Fact, OpReport, Report
from layoutopt.report.units import seconds

if TYPE_CHECKING:
    from layoutopt.batch.task import Outcome
    from layoutopt.explanation import Explanation
    from layoutopt.gates.report import GateReport

OpChange: TypeAlias = Mapping[Literal["before", "after"], OpReport | None]
"""The reports of one op before and after planning; None where it does not exist."""

_MAX_ROWS = 20  # rows of a table without --all
_NOT_OF_PLANS = ("result", "speed", "verification", "measured time")  # facts of results
_MOVED = ("tensor", "src", "dst", "bytes", "seconds", "percent")  # columns of conversions
_OMITTED_FORMATS = ("C", "scalar", None)  # formats that are not printed

# --- optimize ----------------------------------------------------------------------------------------------


def summary(report: Report, written: WrittenFiles | None, names: str, *, is_verbose: bool = False) -> str:
    """The verdict and the files; if `is_verbose`, all facts, the time of every pass, and the notes.

    Args:
        report: the report.
        written: the files of the result; None if no model is written to a file.
        names: the destination of the result; empty if no model is written.
        is_verbose: whether everything is printed.
    """
    unused = ", ".join(map(path_text, written.unused)) if written is not None else ""
    if is_verbose:
        rest = report.seconds - sum(each.seconds for each in report.passes)
        record = {
            "written": names or "no model",
            "unused": unused,
            "passes": [*(each.model_dump() for each in report.passes), {"name": "outside", "seconds": max(rest, 0.0)}],
            "notes": [each.model_dump() for each in report.notes],
        }
        return documents_text(Document(title=report.model, aside=_aside(report), facts=report.facts, record=record))
    facts = [(("  ", ""), *fact_line(each, " ({})")) for each in report.facts if each.level == "verdict"]
    lines = [line((names or f"{report.model} (no model is written)", "bold"), *chain(*facts))]
    if report.plan is not None:
        hint = "" if report.model == "stdin" else f"; layoutopt explain {report.model} shows why conversions remain"
        lines.append(line((f"-v shows all facts{hint}", "dim")))
    if unused:
        lines.append(line((f"unused: {unused}", "yellow"), ("  no longer used by a model in the folder", "dim")))
    return rendered(*lines)


def _aside(found: "Report | Explanation") -> str:
    return f"{found.target}, runtime {found.runtime}, dialect {found.dialect}"


def batch_text(outcomes: "Sequence[Outcome]") -> str:
    """One row per model, and the numbers of models that were rewritten, left unchanged and failed."""
    rows = []
    for each in outcomes:
        facts = {fact.label: fact.value for fact in reversed(each.report.facts)} if each.report is not None else {}
        moves = facts.get("data movement", "").replace(" layout changes", "")
        result = facts.get("speed", "unchanged" if facts else "failed")
        rows.append({"model": path_text(each.model), "result": result, "layout changes": moves})
    changed = sum(each.report is not None and each.report.changed for each in outcomes)
    failed = sum(each.report is None for each in outcomes)
    counts = f"{len(rows)} models: {changed} rewritten, {len(rows) - changed - failed} unchanged"
    counts += f", {failed} failed" if failed else ""
    cached = sum(each.is_cached for each in outcomes)
    return rendered(table(rows), line((f"{counts}; {cached} from the cache" if cached else counts, "")))


# --- inspect -----------------------------------------------------------------------------------------------


def planned_document(report: Report, changes: Sequence[OpChange], show_all: bool) -> Document:
    """The plan of a model: formats of ops, conversions and notes; without `show_all`, equal rows of ops are one."""
    verdict = "would be rewritten" if report.changed else f"would be left unchanged: {report.reason}"
    facts = [Fact("result", verdict, tone="good" if report.changed else "plain")]
    facts += [each for each in report.facts if each.label not in _NOT_OF_PLANS]
    casts = sorted(report.casts, key=lambda each: -each.seconds)
    conversions = [each.model_dump(include={"tensor", "bytes", "seconds", "reason"}) for each in casts]
    record = {
        "ops": _ops(changes, show_all),
        "layout conversions": conversions if show_all else conversions[:_MAX_ROWS],
        "notes": [each.model_dump() for each in report.notes[: None if show_all else _MAX_ROWS]],
    }
    note = "" if show_all else "--all lists each op."
    return Document(title=report.model, aside=_aside(report), facts=facts, record=record, note=note)


def _ops(changes: Sequence[OpChange], show_all: bool) -> list[dict[str, Any]]:
    """One row per op, or one row for all ops of one type with the same formats and note, the most expensive first."""
    rows = []
    for each in changes:
        before, after = each["before"], each["after"]
        op = before or after
        assert op is not None
        rows.append(
            {
                "ops": 1,
                "op": op.kind,
                "name": op.name if show_all else "",
                "device": op.device if after is None else after.device,
                "formats before": _sides(before.inputs, before.outputs) if before is not None else "",
                "formats after": _sides(after.inputs, after.outputs) if after is not None else "folded",
                "note": _note(before, after),
                "before_seconds": before.seconds if before is not None else 0.0,
                "after_seconds": after.seconds if after is not None else 0.0,
            }
        )
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        numbers = {key: value for key, value in row.items() if isinstance(value, int | float)}
        key = str([each for each in row.items() if each[0] not in numbers])
        found[key] = row | {name: found.get(key, {}).get(name, 0) + value for name, value in numbers.items()}
    if show_all:
        return list(found.values())
    return sorted(found.values(), key=lambda row: -max(row["before_seconds"], row["after_seconds"]))[:_MAX_ROWS]


def _note(before: OpReport | None, after: OpReport | None) -> str:
    """The outcome of an op that moved data, or the reason why an op has no choice of formats or moves data."""
    if after is None or after.reason:
        return "" if after is None else after.reason
    return "metadata only" if before is not None and before.moves_data else ""


def _sides(operands: Sequence[str | None], results: Sequence[str | None]) -> str:
    """The formats of inputs and outputs."""
    inputs = list(dict.fromkeys(each for each in operands if each not in _OMITTED_FORMATS))
    outputs = list(dict.fromkeys(each for each in results if each is not None))
    shown = outputs if inputs in (outputs, []) else [*inputs, "→", *outputs]
    return " ".join(map(str, shown))


# --- explain -----------------------------------------------------------------------------------------------


def explanation_documents(found: "Explanation") -> Iterator[Document]:
    """A plan with its conversions, then each conversion with its alternatives, or one tensor or op."""
    facts = [Fact("no plan", found.reason)] if found.reason else []
    if found.plan is not None:
        facts = [Fact("estimated time", seconds(found.plan.seconds_after), proof_text(found.plan))]
    if found.item is None and found.plan is not None:
        free = f"{found.free_conversions} more cost nothing" if found.free_conversions else ""
        facts.append(Fact("conversions", str(len(found.conversions)), free))
    facts += size_facts(found.dims)
    facts += [Fact("note", each.reason, tone="absent") for each in found.notes if each.source == "plan"]
    moved = [each.model_dump(include={*_MOVED}) for each in found.conversions]
    yield Document(title=found.model, aside=_aside(found), facts=facts, record={"moved": moved})
    for number, each in enumerate(found.conversions, 1):
        if each.is_priced:
            record = each.model_dump(exclude={*_MOVED, "is_priced", "axes"})
            yield Document(title=f"{number}. {each.tensor}: {each.src} to {each.dst}", record=record)
    if found.item is not None:
        yield Document(title=found.item.name, record=found.item.model_dump(exclude={"name"}, exclude_defaults=True))


def price_lines(found: "Explanation") -> dict[str, list[str]]:
    """The alternatives of each conversion and what would remove it, by tensor, for the page."""
    return {
        each.tensor: [
            *(
                f"{other.condition}: {value_text('', other.model_dump(exclude={'condition'}))}"
                for other in each.alternatives
            ),
            *(f"{other.what}: {value_text('', other.model_dump(exclude={'what'}))}" for other in each.remedies),
        ]
        for each in found.conversions
    }


# --- ci ----------------------------------------------------------------------------------------------------


def gates_document(report: "GateReport") -> Document:
    """The failed checks and warnings, and the table of the models."""
    errors = [f"{each.model}: {text}" for each in report.models for text in each.messages("error")]
    warnings = [f"{each.model}: {text}" for each in report.models for text in each.messages("warning")]
    rows = []
    for each in report.models:
        row: dict[str, Any] = {"model": each.model, "result": each.status}
        if (found := each.numbers) is not None:
            row |= {
                "layout changes": found.transposes + found.casts,
                "moved_bytes": found.bytes_moved,
                "estimated speed-up": found.speed_up,
                "growth of constants": found.size_growth,
            }
        rows.append(row)
    written = "written" if report.is_updated else f"of layoutopt {report.baseline_version}"
    baseline = f", baseline {report.baseline} {written}" if report.baseline else ""
    record = {"errors": errors, "warnings": warnings, "models": rows}
    return Document(title="layoutopt ci", aside=f"{report.target}, runtime {report.runtime}{baseline}", record=record)
