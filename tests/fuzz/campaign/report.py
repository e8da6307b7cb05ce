"""The report of a campaign as HTML and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from .failures import command_of
from .part import Part
from .parts import PARTS, part
from .summary import PartSummary, Summary

_FAILURES = 50  # rows of a report
_DETAIL = 300  # characters


@dataclass(frozen=True)
class _Row:
    """A part and its numbers."""

    part: Part
    numbers: PartSummary

    @property
    def kinds(self) -> str:
        """The number of examples by outcome."""
        return ", ".join(f"{count:,} {kind}" for kind, count in self.numbers.kinds.most_common())


def write_report(summary: Summary, output: Path) -> None:
    """Write `report.html` and `report.md`."""
    output.mkdir(parents=True, exist_ok=True)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "template"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = lambda text: " ".join(str(text).split()).replace("|", "\\|")
    context = _context(summary)
    for name in ("report.html", "report.md"):
        text = environment.get_template(f"{name}.j2").render(context)
        (output / name).write_text(text, encoding="utf-8")


def _context(summary: Summary) -> dict[str, Any]:
    rows = [_Row(part(name), numbers) for name, numbers in sorted(summary.parts.items(), key=_order)]
    failures = summary.failures
    return {
        "rows": rows,
        "sessions": summary.sessions,
        "last": summary.sessions[-1] if summary.sessions else None,
        "examples": sum(row.numbers.examples for row in rows),
        "cpu": sum(row.numbers.cpu + row.numbers.preparation for row in rows),
        "failures": [(line, command_of(line), line.get("detail", "")[:_DETAIL]) for line in failures[:_FAILURES]],
        "more_failures": max(0, len(failures) - _FAILURES),
        "count": len(failures),
        "not_run": list(_not_run(rows, summary)),
    }


def _order(item: tuple[str, PartSummary]) -> int:
    return list(PARTS).index(item[0]) if item[0] in PARTS else len(PARTS)


def _not_run(rows: Sequence[_Row], summary: Summary) -> Sequence[str]:
    """What the campaign has not run, one sentence each."""
    found = []
    names = {row.numbers.name for row in rows}
    for name, entry in PARTS.items():
        if name not in names:
            reason = "" if entry.is_installed else f": the package {entry.package} is not installed"
            found.append(f"{name}: no example{reason}")
    for row in rows:
        size = row.part.size
        if size is not None and row.numbers.examples < size:
            found.append(f"{row.numbers.name}: {size - row.numbers.examples:,} of its {size:,} examples")
    shards = {session["settings"]["shard"] for session in summary.sessions}
    counts = {shard.partition("/")[2] for shard in shards}
    for count in sorted(counts, key=int):
        missing = [f"{number}/{count}" for number in range(1, int(count) + 1) if f"{number}/{count}" not in shards]
        if missing and shards != {"1/1"}:
            found.append(f"the shards {', '.join(missing)}")
    return found
