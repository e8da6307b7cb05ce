"""The headline facts of the page: times, data movement, verification and proof, each with its source or its absence."""

from dataclasses import dataclass
from typing import Literal

from layoutopt.report.schema import MeasurementReport, PlanReport, Report, VerificationReport
from layoutopt.report.units import seconds, size


@dataclass(frozen=True, slots=True)
class Fact:
    """One headline fact.

    Attributes:
        label: what it is about.
        value: the number or verdict.
        detail: the source of the number, or the reason for its absence.
        tone: "good", "bad", "absent" for a fact that was not established, or "plain".
    """

    label: str
    value: str
    detail: str
    tone: Literal["good", "bad", "absent", "plain"] = "plain"


def headline_facts(report: Report) -> list[Fact]:
    """The headline facts of a report."""
    return [
        *_estimated(report),
        _measured(report),
        _conversions(report),
        _executed(report),
        _verified(report.verification),
        *([_proof(report.plan)] if report.plan is not None else []),
    ]


def _estimated(report: Report) -> list[Fact]:
    plan = report.plan
    if plan is None:
        return [Fact("estimated time", "not planned", report.reason or "the model has no plan", "absent")]
    if plan.targets:
        worst = max(plan.targets, key=lambda each: each.regret)
        detail = f"largest regret of {len(plan.targets)} targets, on {worst.target}"
        return [Fact("regret", f"{worst.regret:.1%}", detail)]
    found = report.gain or plan
    ratio = f"{found.seconds_before / found.seconds_after:.2f}x" if found.seconds_after else ""
    change = f"{seconds(found.seconds_before)} → {seconds(found.seconds_after)}"
    is_better = found.seconds_after < 0.995 * found.seconds_before
    return [
        Fact(
            "estimated time", change, f"{ratio} by the cost model of {report.target}", "good" if is_better else "plain"
        )
    ]


def _measured(report: Report) -> Fact:
    reason = _why_not_measured(report.measurement)
    if reason or report.measurement is None:
        return Fact("measured time", "not measured", reason, "absent")
    first = report.measurement.sizes[0]
    tone: Literal["good", "bad", "plain"] = "good" if first.low > 1 else "bad" if first.high < 1 else "plain"
    threads = f"{report.measurement.threads} thread{'s' if report.measurement.threads > 1 else ''}"
    return Fact(
        "measured time",
        f"{seconds(first.seconds_before)} → {seconds(first.seconds_after)}",
        f"{first.speed_up:.2f}x ({first.low:.2f} to {first.high:.2f}), {threads}, this machine",
        tone,
    )


def _why_not_measured(found: MeasurementReport | None) -> str:
    if found is None:
        return "no rewritten model was run"
    if found.reason == "off":
        return "measurement is switched off"
    return found.reason or ("" if found.sizes else "no run was timed")


def _conversions(report: Report) -> Fact:
    before, after = report.before, report.after
    counts = before.casts + before.transposes, after.casts + after.transposes
    weights = f", {after.weight_casts} of weights at run time" if after.weight_casts else ""
    return Fact(
        "data movement in the file",
        f"{counts[0]} → {counts[1]}",
        f"layout conversions {before.casts} → {after.casts}, transposes {before.transposes} → {after.transposes}{weights}",
        "good" if counts[1] < counts[0] else "plain",
    )


def _executed(report: Report) -> Fact:
    label = "data movement executed"
    before, after = report.moved_before, report.moved_after
    if before is None:
        return Fact(label, "not counted", "the models were not run in onnxruntime", "absent")
    if after is None:
        detail = f"{size(before.nbytes)} for the original; onnxruntime does not run the kernels of the result"
        return Fact(label, f"{before.count} → ?", detail, "absent")
    detail = f"{size(before.nbytes)} → {size(after.nbytes)} in Transposes and reorders of onnxruntime"
    return Fact(label, f"{before.count} → {after.count}", detail, "good" if after.count < before.count else "plain")


def _verified(verdict: VerificationReport) -> Fact:
    if verdict.status == "off":
        return Fact("verification", "not verified", "verification is switched off", "absent")
    if verdict.status == "not verified":
        return Fact("verification", "not verified", verdict.reason, "absent")
    parts = [verdict.reason] if verdict.reason else []
    if verdict.largest_error is not None and verdict.rounding is not None:
        parts.append(f"largest error {verdict.largest_error:.1e}, rounding spread {verdict.rounding:.1e}")
    if verdict.sizes:
        parts.append(f"at {len(verdict.sizes)} sizes")
    if verdict.block_by_definition is not None:
        parts.append(f"blocks of {verdict.block_by_definition} channels by definition, not by this machine's kernels")
    if verdict.outputs_depend_on_inputs is False:
        parts.append("the outputs do not depend on the inputs, so this is weak evidence")
    return Fact("verification", verdict.status, ", ".join(parts), "good" if verdict.status == "passed" else "bad")


def _proof(plan: PlanReport) -> Fact:
    if plan.optimal and plan.gap <= 0:
        return Fact("proof", "optimal", "no plan with these formats has a lower estimate", "good")
    stopped = f", time limit reached in stage {plan.stopped}" if plan.stopped else ""
    return Fact("proof", f"gap {plan.gap:.2%}", f"lower bound {seconds(plan.lower_bound)}{stopped}")


__all__ = ["Fact", "headline_facts"]
