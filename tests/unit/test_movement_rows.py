"""The rows of data movement in the summary of `optimize`."""

from typing import Any

from layoutopt.cli.rendering.movement import movement_rows
from layoutopt.report.schema import Counts, DataMovementReport, OpReport, Report


def report(before: tuple[int, int], after: tuple[int, int], **parts: Any) -> Report:
    """A report with (transposes, casts) of both files."""
    counts = [Counts(transposes=transposes, casts=casts, weight_casts=0) for transposes, casts in (before, after)]
    empty: dict[str, Any] = {"moved_before": None, "moved_after": None, "ops": [], "changed": True}
    return Report.model_construct(before=counts[0], after=counts[1], **{**empty, **parts})


def rows(found: Report) -> list[tuple[str, str]]:
    return [(label, value.plain) for label, value in movement_rows(found)]


def test_executed_and_in_the_file() -> None:
    moved = [
        DataMovementReport(ops={"Transpose": 2, "ReorderInput": 12, "ReorderOutput": 3}, nbytes=23_600_000),
        DataMovementReport(ops={"Transpose": 1}, nbytes=1200),
    ]
    assert rows(report((70, 0), (1, 2), moved_before=moved[0], moved_after=moved[1])) == [
        ("data movement", "executed by onnxruntime    in the file"),
        ("Transposes", "2 → 1                      70 → 1"),
        ("layout conversions", "15 → 0                     0 → 2"),
        ("bytes moved", "23.6 MB → 1.20 kB"),
    ]
    alone = rows(report((3, 0), (0, 1), moved_before=moved[0]))
    assert alone[0][1].startswith("executed by onnxruntime, original") and alone[1][1].split() == ["2", "3", "→", "0"]


def test_reshapes_that_copy_are_no_transposes() -> None:
    op = OpReport(name="r", kind="Reshape", inputs=[], outputs=[], seconds=1.0, moves_data=True)
    assert rows(report((3, 0), (3, 0), ops=[op, op])) == [
        ("data movement", "in the file"),
        ("Transposes", "3 → 1"),
        ("layout conversions", "0 → 0"),
        ("Reshapes that copy", "0 → 2"),
    ]


def test_one_row_if_nothing_moves() -> None:
    assert rows(report((0, 0), (0, 0))) == [("data movement", "none")]
