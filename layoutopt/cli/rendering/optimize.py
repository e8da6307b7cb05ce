"""The output of `optimize`: a summary of plan, verification and files."""

from collections.abc import Sequence

from rich.text import Text

from layoutopt.cli.output_files import Outputs
from layoutopt.cli.rendering.movement import movement_rows
from layoutopt.cli.rendering.stages import print_stages
from layoutopt.cli.rendering.terminal import key_values, seconds, show, size, styled_line, text
from layoutopt.files import path_text
from layoutopt.report.output_formats import count_output_formats
from layoutopt.report.schema import (
    DimReport,
    GainReport,
    GrowthReport,
    GrowthRequestReport,
    MeasuredReport,
    MeasurementReport,
    OpReport,
    PlanReport,
    PortableReport,
    PricesReport,
    Report,
    VerificationReport,
)
from layoutopt.report.summary import TIME_IS_SPENT
from layoutopt.report.warnings import repairs_of
from layoutopt.sample_inputs import sizes_text
from layoutopt.timing.speed_up import BLOCKS

_MAX_FORMATS = 4  # formats
_MIN_GROWTH = 1.1  # times as large
_NEGLIGIBLE = 1e-4  # of the time of the original: smaller causes are not printed


def print_summary(report: Report, outputs: Outputs, *, is_verbose: bool = False) -> None:
    """Print the summary of a run; if `is_verbose`, also the time of each stage, and the notes."""
    unchanged = styled_line(("left unchanged: ", "bold"), report.reason)
    rows = [
        ("result", text("rewritten", "bold green") if report.changed else unchanged),
        *_runs_in(report),
        *plan_lines(report),
        *_calibrated(report.calibration),
        *_growth(report.growth),
        *_portable(report.portable),
        *_repaired(report),
        ("verification", _verified(report.verification)),
        *_measured(report.measurement),
        ("written", _written(outputs, report)),
        *_unused(outputs),
    ]
    show(title(report), key_values(*rows))
    if is_verbose:
        print_stages(report)


def summary_texts(report: Report) -> list[tuple[str, str]]:
    """The rows of the summary that are about the report, as (label, text)."""
    rows = [
        *_runs_in(report),
        *plan_lines(report),
        *_calibrated(report.calibration),
        *_growth(report.growth),
        *_portable(report.portable),
        *_repaired(report),
        ("verification", _verified(report.verification)),
        *_measured(report.measurement),
    ]
    return [(label, line.plain) for label, line in rows]


def _runs_in(report: Report) -> list[tuple[str, Text]]:
    """The programs that can run the result; empty for the original."""
    return [("runs in", text(report.runs_in))] if report.runs_in else []


def _portable(portable: PortableReport | None) -> list[tuple[str, Text]]:
    """The machines that run each branch of a portable result; empty for any other result."""
    if portable is None:
        return []
    standard = "standard operators" if portable.standard_changed else "the operators of the original"
    return [("portable", text(f"native kernels where blocks have {portable.block} channels, {standard} elsewhere"))]


def _repaired(report: Report) -> list[tuple[str, Text]]:
    """The first repair of the reader and the number of further repairs; empty without repairs."""
    repairs = repairs_of(report.notes)
    if not repairs:
        return []
    where, reason = repairs[0]
    more = (f"  and {len(repairs) - 1} more", "dim") if len(repairs) > 1 else ""
    return [("repaired", styled_line((where, "yellow"), f": {reason}", more))]


def title(report: Report) -> Text:
    """The title line: model, target, runtime, mode and dialect."""
    aside = f"  {report.target}, runtime {report.runtime}, {report.mode}, dialect {report.dialect}"
    return styled_line((report.model, "bold"), (aside, "dim"))


def size_text(low: int, high: int) -> str:
    """A size, or a range of sizes as LOW:HIGH."""
    return str(low) if low == high else f"{low}:{high}"


def size_rows(dims: Sequence[DimReport]) -> list[tuple[str, Text]]:
    """The sizes of symbolic dimensions; empty without symbolic dimensions."""
    if not dims:
        return []
    parts = [
        styled_line(f"{each.name} {size_text(each.low, each.high)}", ("?" if each.assumed else "", "yellow"))
        for each in dims
    ]
    hint = ("  ? inferred; set it with --dim NAME=SIZE", "dim") if any(each.assumed for each in dims) else ""
    return [("sizes", styled_line(Text(", ").join(parts), hint))]


def plan_lines(report: Report) -> list[tuple[str, Text]]:
    """The rows about the plan; empty for a model that was optimised before."""
    if report.plan is None:
        return []
    after = report.after
    rows = [
        *size_rows(report.dims),
        ("op outputs", _formats(report.ops)),
        *movement_rows(report),
    ]
    if report.plan.least_moves is not None:
        aside = ("  the minimum of conversions and transposes over all plans with these formats", "dim")
        rows.append(("minimum", styled_line(str(report.plan.least_moves), aside)))
    if after.weight_casts:
        aside = ("  at run time, because training changes the weights", "dim")
        rows.append(("weight conversions", styled_line(str(after.weight_casts), aside)))
    if report.plan.targets:
        return [*rows, *_compromise(report.plan, len(report.ops))]
    return [*rows, *_estimated(report.plan, report.gain), ("lower bound", _bound(report.plan, report.gain))]


def _compromise(plan: PlanReport, ops: int) -> list[tuple[str, Text]]:
    """The estimated time and regret of the plan on each of several targets, and the number of ops on which they agree."""
    rows = []
    for each in plan.targets:
        gain = f"{each.seconds_before / each.seconds_after:.2f}x" if each.seconds_after else ""
        change = f"{seconds(each.seconds_before)} → {seconds(each.seconds_after)}  {gain}"
        rest = f" with other formats for {len(each.differs)} ops" if each.differs else ""
        regret = (f"  regret {each.regret:.1%}", "bold")
        rows.append(
            (
                each.target,
                styled_line(
                    change, regret, (f"  optimum for this target alone {seconds(each.seconds_alone)}{rest}", "dim")
                ),
            )
        )
    worst = max(each.regret for each in plan.targets)
    proof = _proof(plan) if not plan.gap else f"gap {plan.gap:.2%}{_stopped(plan)}"
    return [
        *rows,
        (
            "agreement",
            styled_line(f"{plan.agreeing} of {ops} ops have the same formats in the optimum of every target"),
        ),
        ("worst regret", styled_line(f"{worst:.1%}", (f"  {proof}", "dim"))),
    ]


def _formats(ops: list[OpReport]) -> Text:
    """The number of ops by the format of their first output; the canonical formats of all ranks count as one."""
    common = count_output_formats(ops)
    parts = [styled_line(f"{count} ", (name, "cyan")) for name, count in common[:_MAX_FORMATS]]
    if rest := common[_MAX_FORMATS:]:
        parts.append(styled_line(f"{sum(count for _, count in rest)} in {len(rest)} other formats"))
    return Text(", ").join(parts)


def _estimated(plan: PlanReport, gain: GainReport | None) -> list[tuple[str, Text]]:
    """The estimated times, and the causes of the gain."""
    if gain is None:
        return [("estimated time", estimate(plan))]
    causes = (
        ("formats", gain.formats),
        ("folding", gain.folding),
        ("fusion", gain.fusion),
        ("algorithms", gain.algorithms),
    )
    parts = ", ".join(
        f"{name} {seconds(abs(value))}{' more' if value < 0 else ''}"
        for name, value in causes
        if abs(value) > _NEGLIGIBLE * gain.seconds_before
    )
    return [
        ("estimated time", estimate(plan, gain)),
        *([("saved by", styled_line(parts, ("  estimated", "dim")))] if parts else []),
    ]


def estimate(plan: PlanReport, gain: GainReport | None = None) -> Text:
    """The estimated times before and after, and their ratio; without a gain those of the planner."""
    before, after = (gain or plan).seconds_before, (gain or plan).seconds_after
    is_better = after < before
    ratio = (f"  {before / after:.2f}x" if is_better and after else "", "bold")
    return styled_line(f"{seconds(before)} → ", (seconds(after), "green" if is_better else ""), ratio)


def _proof(plan: PlanReport) -> str:
    """The statement that the plan is optimal, and the number of candidates for which it is not proven."""
    return f"proven optimal for these formats{_cut(plan)}"


def _cut(plan: PlanReport) -> str:
    return f", {plan.cut} candidates beyond the limits were cut" if plan.cut else ""


def _bound(plan: PlanReport, gain: GainReport | None) -> Text:
    """The lower bound with its proof; it holds for files that may grow, which the estimate does not presume."""
    is_limited = gain is not None and gain.seconds_after > plan.seconds_after * (1 + 1e-6)
    growth = f", {seconds(plan.seconds_after)} for the plan if the file may grow" if is_limited else ""
    if plan.optimal and plan.gap <= 0:
        return styled_line(seconds(plan.lower_bound), (f"  {_proof(plan)}{growth}", "dim"))
    style = "" if plan.optimal else "yellow"
    return styled_line(seconds(plan.lower_bound), (f"  gap {plan.gap:.2%}{_stopped(plan)}{growth}", style))


def _growth(growth: GrowthReport | None) -> list[tuple[str, Text]]:
    """The growth of the constants and its gain; empty if they grew by less than 10 % and no growth was declined."""
    if growth is None or (growth.bytes_after <= _MIN_GROWTH * growth.bytes_before and not growth.declined):
        return []
    change = styled_line(f"{size(growth.bytes_before)} → ", (size(growth.bytes_after), "yellow"))
    parts = [change, *_growth_requests("saves", growth.accepted), *_growth_requests("declined:", growth.declined)]
    hint = [styled_line(("--config max-growth=X", "dim"))] if growth.declined else []
    return [("constants", Text("  ").join([*parts, *hint]))]


def _growth_requests(verb: str, rows: list[GrowthRequestReport]) -> list[Text]:
    """The passes that grew the constants, or that the limit stopped, with the estimated gain in seconds."""
    if not rows:
        return []
    sources = ", ".join(dict.fromkeys(row.source for row in rows))
    gain, nbytes = sum(row.seconds for row in rows), sum(row.nbytes for row in rows)
    return [styled_line(f"{verb} {seconds(gain)} per run", (f" ({sources}, {size(nbytes)})", "dim"))]


def _stopped(plan: PlanReport) -> str:
    """The reason why the plan is not proven optimal, and the number of candidates that were cut."""
    return f", time limit reached in stage {plan.stopped}{_cut(plan)}" if plan.stopped else _cut(plan)


def _verified(verdict: VerificationReport) -> Text:
    if verdict.status == "off":
        return text("not run (--no-verify)", "yellow")
    if verdict.status == "not verified":
        return styled_line(("not possible: ", "yellow"), verdict.reason)
    parts = styled_line((verdict.status, "green"), f": {verdict.reason}" if verdict.reason else "")
    if verdict.largest_error is not None and verdict.rounding is not None:
        rounding = (f", rounding spread {verdict.rounding:.1e}", "dim")
        parts.append_text(styled_line(f"  largest error {verdict.largest_error:.1e}", rounding))
    if verdict.sizes:
        parts.append_text(text(f", at {len(verdict.sizes)} sizes"))
    if verdict.block_by_definition is not None:
        parts.append_text(text(f", {by_definition(verdict.block_by_definition)}", "yellow"))
    if verdict.outputs_depend_on_inputs is False:
        caveat = "  but the outputs do not depend on the inputs, so this is weak evidence"
        parts.append_text(text(caveat, "yellow"))
    return parts


def _calibrated(found: PricesReport | None) -> list[tuple[str, Text]]:
    """The kernels that were timed; empty if the prices are those of the target."""
    if found is None or found.reason:
        return []
    now = f", kernels timed now: {found.timed}, in {seconds(found.seconds)}" if found.timed else ""
    skipped = (f", {found.skipped} kernels have estimates: {TIME_IS_SPENT}" if found.skipped else "", "yellow")
    return [("prices", styled_line(f"{found.share:.0%} from kernels timed on this machine", (now, "dim"), skipped))]


def _measured(found: MeasurementReport | None) -> list[tuple[str, Text]]:
    """The measured speed-up at every size; empty if nothing was measured on purpose."""
    if found is None or found.reason == "off":
        return []
    if found.reason:
        return [("measured", styled_line(("not measured: ", "yellow"), found.reason))]
    lines = [_measured_at(each, found.threads) for each in found.sizes]
    lines += [
        text(f"not measured at {sizes_text(each)}: the original does not run there", "yellow") for each in found.skipped
    ]
    return [("" if number else "measured", each) for number, each in enumerate(lines)]


def _measured_at(found: MeasuredReport, threads: int) -> Text:
    style = "green" if found.low > 1 else "yellow" if found.high < 1 else ""
    times = f"{seconds(found.seconds_before)} → {seconds(found.seconds_after)}"
    gain = (f"  {found.speed_up:.2f}x", f"bold {style}".strip())
    where = f", {sizes_text(found.sizes)}" if found.sizes else ""
    aside = f"  {found.low:.2f} to {found.high:.2f}, threads {threads}{where}; session creation {found.creation_speed_up:.2f}x"
    if found.sessions < BLOCKS:
        aside += f"; {found.sessions} instead of {BLOCKS} blocks, since runs or sessions take long"
    return styled_line(times, gain, (aside, "dim"))


def by_definition(block: int) -> str:
    """The caveat of a verification without the kernels that the model is packed for."""
    return f"blocks of {block} channels by definition, not by this machine's kernels"


def _written(outputs: Outputs, report: Report) -> Text:
    took = (f"  in {seconds(report.seconds)}", "dim")
    if outputs.written is None and not outputs.prints_model:
        return styled_line(("no model", "yellow"), took)
    names = ", ".join(map(path_text, outputs.written.files)) if outputs.written is not None else "to stdout"
    was = (f", was {size(outputs.source_size)}", "dim")
    return styled_line((names, "bold"), f"  {size(outputs.written_size)}", was, took)


def _unused(outputs: Outputs) -> list[tuple[str, Text]]:
    """External data files that no model in the folder uses since the replacement."""
    if outputs.written is None or not outputs.written.unused:
        return []
    names = ", ".join(map(path_text, outputs.written.unused))
    return [("unused", styled_line((names, "yellow"), ("  no longer used by a model in the folder", "dim")))]
