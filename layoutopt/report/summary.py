"""The key numbers of a report as text and as HTML, for programs and notebooks.

model.onnx for cpu-avx2, runtime onnxruntime
result              rewritten
data movement       88 -> 1, 23.6 MB -> 1.20 MB, executed by onnxruntime
estimated time      5.99 ms -> 2.80 ms, 2.14x
measured time       7.30 ms -> 4.17 ms, 1.76x (1.74 to 1.77), threads 1
verification        passed, largest error 8.8e-07
"""

from html import escape

from layoutopt.report.schema import MeasurementReport, PricesReport, Report, VerificationReport
from layoutopt.report.units import seconds, size

TIME_IS_SPENT = "the processor time for timing kernels was spent"
_STYLE = "text-align: left; padding: 0 1em 0 0"
_LABEL_WIDTH = 20  # columns


def summary_rows(report: Report) -> list[tuple[str, str]]:
    """Rows of a label and a value."""
    rows = [
        ("result", "rewritten" if report.changed else f"unchanged: {report.reason}"),
        ("data movement", _movement(report)),
        ("estimated time", _estimate(report)),
        ("prices", _skipped(report.calibration)),
        ("measured time", _measured(report.measurement)),
        ("verification", _verified(report.verification)),
    ]
    return [(label, value) for label, value in rows if value]


def summary_text(report: Report) -> str:
    """The title and the rows as lines of text."""
    return "\n".join([_title(report), *(f"{label:<{_LABEL_WIDTH}}{value}" for label, value in summary_rows(report))])


def summary_html(report: Report) -> str:
    """The rows as an HTML table; names of models and tensors are escaped."""
    cells = [
        f'<tr><th style="{_STYLE}">{escape(label)}</th><td style="{_STYLE}">{escape(value)}</td></tr>'
        for label, value in summary_rows(report)
    ]
    return f"<table><caption>{escape(_title(report))}</caption>{''.join(cells)}</table>"


def _title(report: Report) -> str:
    return f"{report.model} for {report.target}, runtime {report.runtime}"


def _movement(report: Report) -> str:
    """The ops that move data, executed if they were counted, or else those in the file."""
    before, after = report.moved_before, report.moved_after
    if before is not None and after is not None:
        numbers = f"{before.count} -> {after.count}, {size(before.nbytes)} -> {size(after.nbytes)}"
        return f"{numbers}, executed by onnxruntime"
    counts = (each.casts + each.transposes for each in (report.before, report.after))
    return f"{' -> '.join(map(str, counts))} ops in the file"


def _estimate(report: Report) -> str:
    found = report.gain or report.plan
    if found is None:
        return ""
    return _change(found.seconds_before, found.seconds_after)


def _skipped(found: PricesReport | None) -> str:
    """The kernels that were not timed; empty if none was left out."""
    if found is None or not found.skipped:
        return ""
    return f"{found.share:.0%} from timed kernels, {found.skipped} kernels have estimates: {TIME_IS_SPENT}"


def _measured(found: MeasurementReport | None) -> str:
    if found is None or found.reason == "off":
        return ""
    if found.reason or not found.sizes:
        return f"not measured: {found.reason}"
    first = found.sizes[0]
    interval = f"({first.low:.2f} to {first.high:.2f}), threads {found.threads}"
    return f"{seconds(first.seconds_before)} -> {seconds(first.seconds_after)}, {first.speed_up:.2f}x {interval}"


def _change(before: float, after: float) -> str:
    ratio = f", {before / after:.2f}x" if after else ""
    return f"{seconds(before)} -> {seconds(after)}{ratio}"


def _verified(found: VerificationReport) -> str:
    error = "" if found.largest_error is None else f", largest error {found.largest_error:.1e}"
    return f"{found.status}{error}{f': {found.reason}' if found.reason else ''}"


__all__ = ["TIME_IS_SPENT", "summary_html", "summary_rows", "summary_text"]
