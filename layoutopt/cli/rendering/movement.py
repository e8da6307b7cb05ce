"""The ops that move data, by kind: those that onnxruntime executes, and those in the file."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from layoutopt.cli.rendering.terminal import size, styled_line
from layoutopt.report.schema import DataMovementReport, Report

_TRANSPOSE, _RESHAPE = "Transpose", "Reshape"
_GAP = 4  # columns


@dataclass(frozen=True, slots=True)
class Movement:
    """Numbers of ops that move data in one model.

    Attributes:
        transposes: Transposes and other view ops that move bytes, without Reshapes.
        conversions: layout conversions: ReorderInput and ReorderOutput of onnxruntime, or CastData.
        reshapes: Reshapes that copy their operand.
        nbytes: bytes that the ops read and write; None if unknown.
    """

    transposes: int
    conversions: int
    reshapes: int = 0
    nbytes: int | None = None

    @property
    def count(self) -> int:
        """The number of ops."""
        return self.transposes + self.conversions + self.reshapes


def executed(found: DataMovementReport | None) -> Movement | None:
    """The movement that onnxruntime executes in one run, after its own optimiser; None if it was not measured."""
    if found is None:
        return None
    transposes = found.ops.get(_TRANSPOSE, 0)
    return Movement(transposes, found.count - transposes, nbytes=found.nbytes)


def in_file(report: Report) -> tuple[Movement, Movement]:
    """The movement in the files before and after; every op has canonical formats before, so that no Reshape copies."""
    before, after = report.before, report.after
    reshapes = sum(op.kind == _RESHAPE and op.moves_data for op in report.ops) if report.changed else 0
    reshapes = min(reshapes, after.transposes)  # those of constants are not counted
    return (
        Movement(before.transposes, before.casts),
        Movement(after.transposes - reshapes, after.casts, reshapes),
    )


def movement_rows(report: Report) -> list[tuple[str, Text]]:
    """One row per kind of op, before and after: in one run of onnxruntime, and in the file. One row if nothing moves."""
    runs = executed(report.moved_before), executed(report.moved_after)
    before, after = in_file(report)
    if not any(each is not None and each.count for each in (*runs, before, after)):
        return [("data movement", styled_line("none"))]
    columns = [
        _column(_title(runs), *runs, has_reshapes=False),
        _column("in the file", before, after, has_reshapes=True),
    ]
    shown = [each for each in columns if each]
    widths = [max(len(cell.plain) for cell in each) for each in shown]
    labels = ("data movement", "Transposes", "layout conversions", "Reshapes that copy", "bytes moved")
    rows = [(label, _joined([each[number] for each in shown], widths)) for number, label in enumerate(labels)]
    return [(label, row) for label, row in rows if row.plain and not (label == labels[3] and not after.reshapes)]


def _title(runs: tuple[Movement | None, Movement | None]) -> str:
    return "executed by onnxruntime" if runs[1] is not None else "executed by onnxruntime, original"


def _column(title: str, before: Movement | None, after: Movement | None, *, has_reshapes: bool) -> list[Text]:
    """A title and the changes of all kinds; empty without numbers."""
    if before is None:
        return []
    later = after or before
    has_after = after is not None
    return [
        styled_line((title, "dim")),
        _change(before.transposes, later.transposes, has_after=has_after),
        _change(before.conversions, later.conversions, has_after=has_after),
        _change(before.reshapes, later.reshapes, has_after=has_after) if has_reshapes else Text(),
        _change(before.nbytes, later.nbytes, has_after=has_after, is_size=True),
    ]


def _change(before: int | None, after: int | None, *, has_after: bool, is_size: bool = False) -> Text:
    """A number before and after, green if it falls."""
    if before is None or after is None:
        return Text()
    words = (size(before), size(after)) if is_size else (str(before), str(after))
    style = "green" if after < before else "yellow" if after > before else ""
    return styled_line(f"{words[0]} → ", (words[1], style)) if has_after else styled_line(words[0])


def _joined(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text()
    for cell, width in zip(cells, widths, strict=True):
        line.append_text(cell)
        line.append(" " * (width - len(cell.plain) + _GAP))
    line.rstrip()
    return line
