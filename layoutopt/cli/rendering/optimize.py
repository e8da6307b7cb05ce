"""What `optimize` has done, in a few lines."""

from collections import Counter

from rich.text import Text

from layoutopt.cli.files.outputs import Outputs
from layoutopt.cli.rendering.terminal import facts, line, seconds, show, size, text
from layoutopt.cli.rendering.warnings import repairs_of
from layoutopt.driver.result import Result
from layoutopt.files import path_text
from layoutopt.formats import Format
from layoutopt.report.schema import (
    DimReport,
    GrowthReport,
    GrowthRequestReport,
    OpReport,
    PlanReport,
    Report,
    VerificationReport,
)

_CANONICAL = {str(Format.canonical(rank)) for rank in range(12)}
_SHOWN = 4  # formats
_NOTABLE = 1.1  # times as large


def summarize(result: Result, outputs: Outputs) -> None:
    """Print the summary of a run."""
    report = result.report
    left_alone = line(("left alone: ", "bold"), report.reason)
    rows = [
        ("result", text("rewritten", "bold green") if report.changed else left_alone),
        *plan_lines(report),
        *_growth(report.growth),
        *_repaired(report),
        ("verified", _verified(report.verification)),
        ("written", _written(outputs, report)),
        *_unused(outputs),
    ]
    show(title(report), facts(*rows))


def _repaired(report: Report) -> list[tuple[str, Text]]:
    """The first fault that the reader has repaired, and the number of the others; nothing where there is none."""
    repairs = repairs_of(report)
    if not repairs:
        return []
    where, reason = repairs[0]
    more = (f"  and {len(repairs) - 1} more", "dim") if len(repairs) > 1 else ""
    return [("repaired", line((where, "yellow"), f": {reason}", more))]


def title(report: Report) -> Text:
    """Which model, for what."""
    aside = f"  {report.target}, {report.mode}, dialect {report.dialect}"
    return line((report.model, "bold"), (aside, "dim"))


def sized(low: int, high: int) -> str:
    """A size, or a range of sizes."""
    return str(low) if low == high else f"{low}:{high}"


def _sizes(dims: list[DimReport]) -> list[tuple[str, Text]]:
    """What symbolic dimensions are taken to be; nothing where there are none."""
    if not dims:
        return []
    parts = [
        line(f"{each.name} {sized(each.low, each.high)}", ("?" if each.assumed else "", "yellow")) for each in dims
    ]
    unsaid = ("  ? inferred; --dim NAME=SIZE gives it", "dim") if any(each.assumed for each in dims) else ""
    return [("sizes", line(Text(", ").join(parts), unsaid))]


def plan_lines(report: Report) -> list[tuple[str, Text]]:
    """What the plan comes to; nothing where there is none, because the model had been optimised before."""
    if report.plan is None:
        return []
    before, after = report.before, report.after
    rows = [
        *_sizes(report.dims),
        ("ops in", _formats(report.ops)),
        ("casts", _change(before.casts, after.casts)),
        ("transposes", _change(before.transposes, after.transposes)),
    ]
    if report.plan.least_moves is not None:
        aside = ("  no plan of these formats has fewer casts and transposes", "dim")
        rows.append(("least", line(str(report.plan.least_moves), aside)))
    if after.weight_casts:
        aside = ("  at run time, because weights can change", "dim")
        rows.append(("weight casts", line(str(after.weight_casts), aside)))
    if report.plan.targets:
        return [*rows, *_compromise(report.plan, len(report.ops))]
    return [*rows, ("estimate", _estimate(report.plan)), ("lower bound", _bound(report.plan))]


def _compromise(plan: PlanReport, ops: int) -> list[tuple[str, Text]]:
    """What the plan is to each of several targets, and where they agree."""
    rows = []
    for each in plan.targets:
        change = f"{seconds(each.seconds_before)} → {seconds(each.seconds_after)}"
        rest = f", {len(each.differs)} ops otherwise" if each.differs else ""
        regret = (f"  regret {each.regret:.1%}", "bold")
        rows.append((each.target, line(change, regret, (f"  alone {seconds(each.seconds_alone)}{rest}", "dim"))))
    worst = max(each.regret for each in plan.targets)
    proof = "no plan of these formats has less" if not plan.gap else f"gap {plan.gap:.2%}{_stopped(plan)}"
    return [
        *rows,
        ("they agree", line(f"on {plan.agreeing} of {ops} ops")),
        ("worst regret", line(f"{worst:.1%}", (f"  {proof}", "dim"))),
    ]


def _formats(ops: list[OpReport]) -> Text:
    """How many ops leave their result in which format; the order of ONNX is one format, whatever the rank."""
    counted: Counter[str] = Counter()
    for op in ops:
        format = next((each for each in op.outputs if each is not None), None)
        counted["unknown" if format is None else "as in ONNX" if format in _CANONICAL else format] += 1
    common = counted.most_common()
    parts = [line(f"{count} ", (name, "cyan")) for name, count in common[:_SHOWN]]
    if rest := common[_SHOWN:]:
        parts.append(line(f"{sum(count for _, count in rest)} in {len(rest)} others"))
    return Text(", ").join(parts)


def _change(before: int, after: int) -> Text:
    """A number that should fall."""
    return line(f"{before} → ", (str(after), "green" if after < before else "yellow" if after > before else ""))


def _estimate(plan: PlanReport) -> Text:
    before, after = plan.seconds_before, plan.seconds_after
    is_better = after < before
    gain = (f"  {before / after:.2f} times as fast" if is_better and after else "", "bold")
    return line(f"{seconds(before)} → ", (seconds(after), "green" if is_better else ""), gain)


def _bound(plan: PlanReport) -> Text:
    if plan.optimal and plan.gap <= 0:
        return line(seconds(plan.lower_bound), ("  no plan of these formats is faster", "dim"))
    why = _stopped(plan)
    return line(seconds(plan.lower_bound), (f"  gap {plan.gap:.2%}{why}", "" if plan.optimal else "yellow"))


def _growth(growth: GrowthReport | None) -> list[tuple[str, Text]]:
    """How much larger the constants became, and for what; nothing where they grew by less than 10 % and none was declined."""
    if growth is None or (growth.bytes_after <= _NOTABLE * growth.bytes_before and not growth.declined):
        return []
    change = line(f"{size(growth.bytes_before)} → ", (size(growth.bytes_after), "yellow"))
    parts = [change, *_purchases("for", growth.accepted), *_purchases("declined:", growth.declined)]
    hint = [line(("--max-growth", "dim"))] if growth.declined else []
    return [("constants", Text("  ").join([*parts, *hint]))]


def _purchases(verb: str, rows: list[GrowthRequestReport]) -> list[Text]:
    """What grew the file or would have, by the pass, with the estimated gain."""
    if not rows:
        return []
    sources = ", ".join(dict.fromkeys(row.source for row in rows))
    gain, nbytes = sum(row.seconds for row in rows), sum(row.nbytes for row in rows)
    return [line(f"{verb} {seconds(gain)} per run", (f" ({sources}, {size(nbytes)})", "dim"))]


def _stopped(plan: PlanReport) -> str:
    return f", the time limit ended planning in the stage {plan.stopped}" if plan.stopped else ""


def _verified(verdict: VerificationReport) -> Text:
    if verdict.status == "off":
        return text("no", "yellow")
    if verdict.status == "not verified":
        return line(("no: ", "yellow"), verdict.reason)
    parts = line((verdict.status, "green"), f": {verdict.reason}" if verdict.reason else "")
    if verdict.largest_error is not None and verdict.rounding is not None:
        rounding = (f", rounding alone moves this model by {verdict.rounding:.1e}", "dim")
        parts.append_text(line(f"  error {verdict.largest_error:.1e}", rounding))
    if verdict.sizes:
        parts.append_text(text(f", at {len(verdict.sizes)} sizes"))
    if verdict.outputs_depend_on_inputs is False:
        says = "  but the outputs do not depend on the inputs, so that says little"
        parts.append_text(text(says, "yellow"))
    return parts


def _written(outputs: Outputs, report: Report) -> Text:
    took = (f"  in {seconds(report.seconds)}", "dim")
    if outputs.written is None:
        return line(("no model", "yellow"), took)
    names = ", ".join(map(path_text, outputs.written.files))
    was = (f", was {size(outputs.source_size)}", "dim")
    return line((names, "bold"), f"  {size(outputs.written_size)}", was, took)


def _unused(outputs: Outputs) -> list[tuple[str, Text]]:
    """External data of the replaced model that no model in the folder uses any more."""
    if outputs.written is None or not outputs.written.unused:
        return []
    names = ", ".join(map(path_text, outputs.written.unused))
    return [("unused", line((names, "yellow"), ("  no model in the folder uses it any more", "dim")))]
