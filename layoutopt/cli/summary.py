"""What `optimize` has done, in a few lines."""

from collections import Counter

from rich.text import Text

from layoutopt.api import Result
from layoutopt.cli.outputs import Outputs
from layoutopt.cli.terminal import facts, file_size, line, seconds, show, size, text
from layoutopt.formats import Format
from layoutopt.report import OpReport, PlanReport, Report, VerificationReport

_CANONICAL = {str(Format.canonical(rank)) for rank in range(12)}
_SHOWN = 4  # formats


def summarize(result: Result, outputs: Outputs) -> None:
    """Print the summary of a run."""
    report = result.report
    rows = [
        ("result", _verdict(report)),
        ("formats", formats_line(report.ops)),
        ("casts", change(report.before.casts, report.after.casts)),
        ("transposes", change(report.before.transposes, report.after.transposes)),
    ]
    if report.after.weight_casts:
        rows.append(("weight casts", line(str(report.after.weight_casts), (" at run time: the weights can change", "dim"))))
    rows += plan_lines(report.plan, report.changed)
    rows += [("verified", _verified(report.verification)), ("written", _written(outputs, report))]
    show(title(report), facts(*rows))


def title(report: Report) -> Text:
    """Which model, for what."""
    return line((report.model, "bold"), (f"  {report.target}, {report.mode}, dialect {report.dialect}", "dim"))


def formats_line(ops: list[OpReport]) -> Text:
    """How many ops leave their result in which format; those in the order of ONNX are one, whatever their rank."""
    counted: Counter[str] = Counter()
    for op in ops:
        format = next((each for each in op.outputs if each is not None), None)
        counted["unknown" if format is None else "as in ONNX" if format in _CANONICAL else format] += 1
    common = counted.most_common()
    parts = [line(str(count), (f" {name}", "cyan")) for name, count in common[:_SHOWN]]
    if rest := common[_SHOWN:]:
        parts.append(line(f"{sum(count for _, count in rest)} in {len(rest)} others"))
    return Text(", ").join(parts)


def change(before: int, after: int) -> Text:
    """A number that should fall."""
    style = "green" if after < before else "yellow" if after > before else ""
    return line(f"{before} → ", (str(after), style))


def plan_lines(plan: PlanReport | None, changed: bool) -> list[tuple[str, Text]]:
    """The estimate and the proof."""
    if plan is None:
        return []
    estimate = line(f"{seconds(plan.seconds_before)} → ", (seconds(plan.seconds_after), "green" if changed else ""))
    if changed and plan.seconds_after:
        estimate.append_text(line((f"  {plan.seconds_before / plan.seconds_after:.2f}x", "bold")))
    proof = "proven optimal" if plan.optimal else f"gap {plan.gap:.1%}: the planner was stopped"
    return [("estimate", estimate), ("bound", line(seconds(plan.lower_bound), (f"  {proof}", "" if plan.optimal else "yellow")))]


def _verdict(report: Report) -> Text:
    return text("rewritten", "bold green") if report.changed else line(("left alone: ", "bold"), report.reason)


def _verified(verdict: VerificationReport) -> Text:
    if verdict.status == "off":
        return text("no", "yellow")
    if verdict.status == "not verified":
        return line(("no: ", "yellow"), verdict.reason)
    parts = line((verdict.status, "green"), f": {verdict.reason}" if verdict.reason else "")
    if verdict.largest_error is not None and verdict.tolerance is not None:
        parts.append_text(line(f", largest error {verdict.largest_error:.1e} of {verdict.tolerance:.0e} allowed"))
    if verdict.outputs_depend_on_inputs is False:
        parts.append_text(text("; but the outputs do not depend on the inputs, so this says little", "yellow"))
    return parts


def _written(outputs: Outputs, report: Report) -> Text:
    took = (f"  in {seconds(report.seconds)}", "dim")
    if not outputs.files:
        return line(("no model", "yellow"), took)
    names = ", ".join(str(path) for path in outputs.files)
    return line((names, "bold"), f"  {size(file_size(*outputs.files))}", (f" (was {size(outputs.source_size)})", "dim"), took)
