"""The formats of the ops of a report, by which summaries and legends count them."""

from collections import Counter
from collections.abc import Iterable

from layoutopt.report.schema import OpReport

CANONICAL = "canonical"
UNKNOWN = "unknown"


def output_format(op: OpReport) -> str:
    """The format of the first output that has one; the canonical formats of all ranks are one."""
    known = ((each, axes) for each, axes in zip(op.outputs, op.output_axes, strict=True) if each is not None)
    format, axes = next(known, (UNKNOWN, ""))
    return CANONICAL if format == axes else format


def count_output_formats(ops: Iterable[OpReport]) -> list[tuple[str, int]]:
    """The number of ops by the format of their outputs, the most frequent format first."""
    return Counter(map(output_format, ops)).most_common()


__all__ = ["CANONICAL", "UNKNOWN", "count_output_formats", "output_format"]
