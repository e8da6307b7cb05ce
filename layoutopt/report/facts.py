"""The facts of a run, made once: the terminal, the page, `Result.summary` and the JSON report render these rows.

label             value                                   detail                              level
speed             1.15x faster, measured                  1.13 to 1.17, 95 %                  verdict
verification      equal outputs                           2.5e-06; rounding 4e-06             verdict
layout changes    69 -> 0 layout changes, 46 MB -> 0 B    executed by onnxruntime             verdict
estimated time    5.99 ms -> 2.80 ms                      2.14x by the cost model of cpu-avx2 summary
lower bound       2.80 ms                                 proven optimal for these formats    detail
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from layoutopt.report.schema import (
    DimReport,
    Fact,
    GrowthReport,
    MeasuredReport,
    MeasurementReport,
    NoteReport,
    OpReport,
    PlanReport,
    PlatformReport,
    PricesReport,
    Report,
    Tone,
    VerificationReport,
)
from layoutopt.report.units import seconds, size
from layoutopt.sample_inputs import sizes_text

CANONICAL = "canonical"
UNKNOWN = "unknown"

LEFT_OUT = "verify"
"""Source of the notes on passes that were left out because the result differed with them."""

TIME_IS_SPENT = "the processor time for timing kernels was spent"

_MAX_FORMATS = 4  # formats
_MIN_GROWTH = 1.1  # times as large
_LABEL_WIDTH = 20  # columns


def facts_of(report: Report) -> list[Fact]:
    """The facts of a report, the most important first."""
    return [
        Fact(
            "result",
            "rewritten" if report.changed else f"left unchanged: {report.reason}",
            tone="good" if report.changed else "plain",
            level="summary" if report.changed else "verdict",
        ),
        *_speed(report),
        _verification(report.verification, is_changed=report.changed),
        *_movement(report),
        *_measurement(report.measurement),
        *_plan(report),
        *_devices(report.platform),
        *_provenance(report),
    ]


def ratio_text(ratio: float) -> str:
    """A speed-up in words."""
    return f"{ratio:.2f}x faster" if ratio >= 1 else f"{1 / ratio:.2f}x slower"


def by_definition(block: int) -> str:
    """The caveat of a verification without the kernels that the model is packed for."""
    return f"blocks of {block} channels by definition, not by this machine's kernels"


def proof_text(plan: PlanReport) -> str:
    """The proof of a plan, or its distance from the bound; and the number of candidates that it does not cover."""
    is_proven = plan.optimal and plan.gap <= 0
    parts = ["proven optimal for these formats" if is_proven else f"gap {plan.gap:.2%}"]
    parts += [f"time limit reached in stage {plan.stopped}"] if plan.stopped else []
    return ", ".join(parts + ([f"{plan.cut} candidates beyond the limits were cut"] if plan.cut else []))


def size_facts(dims: Sequence[DimReport]) -> list[Fact]:
    """The sizes of symbolic dimensions; empty without any."""
    texts = (f"{each.name} {range_text(each.low, each.high)}{'?' if each.assumed else ''}" for each in dims)
    inferred = "; ".join(f"{each.name}: {each.reason or 'its name and place'}" for each in dims if each.assumed)
    hint = f"? inferred ({inferred}); set it with --dim NAME=SIZE" if inferred else ""
    return [Fact("sizes", ", ".join(texts), hint)] if dims else []


def range_text(low: int, high: int) -> str:
    """A size, or a range of sizes as LOW:HIGH."""
    return str(low) if low == high else f"{low}:{high}"


def output_format(op: OpReport) -> str:
    """The format of the first output that has one; the canonical formats of all ranks are one."""
    known = ((each, axes) for each, axes in zip(op.outputs, op.output_axes, strict=True) if each is not None)
    format, axes = next(known, (UNKNOWN, ""))
    return CANONICAL if format == axes else format


# --- the verdict -------------------------------------------------------------------------------------------


def _speed(report: Report) -> Iterator[Fact]:
    """The measured speed-up, or else the estimated one; none for a model that stays unchanged."""
    measurement = report.measurement
    if not report.changed:
        return
    if measurement is not None and measurement.sizes:
        first = measurement.sizes[0]
        value, tone = f"{ratio_text(first.speed_up)}, measured", _tone(first)
        yield Fact("speed", value, _interval(first), tone=tone, level="verdict")
    elif ratio := report.estimated_speed_up:  # 0 for a pin in a model that takes no time
        reason = measurement.reason if measurement is not None and measurement.reason != "off" else ""
        detail = f"not measured: {reason}" if reason else ""
        yield Fact("speed", f"{ratio_text(ratio)}, estimated", detail, level="verdict")


def _verification(found: VerificationReport, *, is_changed: bool) -> Fact:
    words = {"passed": "equal outputs" if is_changed else "passed", "failed": "different outputs"}
    if found.largest_error is not None and found.rounding is not None:
        parts = [f"{found.largest_error:.1e}; rounding {found.rounding:.1e}"]
    else:
        parts = ["verification is switched off"] if found.status == "off" else []
    parts += [found.reason] if found.reason else []
    parts += [f"at {len(found.sizes)} sizes"] if found.sizes else []
    parts += [by_definition(found.block_by_definition)] if found.block_by_definition is not None else []
    if found.outputs_depend_on_inputs is False:
        parts.append("the outputs do not depend on the inputs, so this is weak evidence")
    tones: dict[str, Tone] = {"passed": "good", "failed": "bad"}
    return Fact(
        "verification",
        words.get(found.status, "not verified"),
        ", ".join(parts),
        tone=tones.get(found.status, "absent"),
        level="verdict" if is_changed or found.status == "not verified" else "detail",
    )


def _movement(report: Report) -> Iterator[Fact]:
    """What moves: in one run of onnxruntime if both models were run in it, else in the file; and the kinds in the file."""
    before, after, runs = report.before, report.after, (report.moved_before, report.moved_after)
    numbers, source = (before.moves, after.moves, before.bytes, after.bytes), "in the file"
    if runs[0] is not None and runs[1] is not None:
        numbers, source = (runs[0].count, runs[1].count, runs[0].nbytes, runs[1].nbytes), "executed by onnxruntime"
    yield Fact(
        "data movement",
        f"{numbers[0]} -> {numbers[1]} layout changes, {size(numbers[2])} -> {size(numbers[3])}",
        source,
        tone="good" if numbers[1] < numbers[0] else "plain",
        level="verdict" if report.changed else "detail",
    )
    yield Fact(
        "in the file",
        f"layout conversions {before.casts} -> {after.casts}, Transposes {before.transposes} -> {after.transposes}",
        f"{after.weight_casts} conversions of weights at run time" if after.weight_casts else "",
    )


# --- the measurement ---------------------------------------------------------------------------------------


def _measurement(found: MeasurementReport | None) -> Iterator[Fact]:
    label = "measured time"
    if found is None or found.reason:
        reason = "no rewritten model was run" if found is None else found.reason
        reason = "measurement is switched off" if reason == "off" else reason
        yield Fact(label, "not measured", reason, tone="absent")
        return
    for number, each in enumerate(found.sizes):
        where = f" at {sizes_text(each.sizes)}" if each.sizes else ""
        detail = f"{each.speed_up:.2f}x ({_interval(each)}), threads {found.threads}{where}"
        detail += f", {each.sessions} blocks; session creation {each.creation_speed_up:.2f}x"
        value = change_text(each.seconds_before, each.seconds_after)
        yield Fact(label, value, detail, tone=_tone(each), level="detail" if number else "summary")
    for sizes in found.skipped:
        detail = f"at {sizes_text(sizes)}: the original does not run there"
        yield Fact(label, "not measured", detail, tone="absent")


def change_text(before: float, after: float) -> str:
    """Durations before and after."""
    return f"{seconds(before)} -> {seconds(after)}"


def _interval(found: MeasuredReport) -> str:
    return f"{found.low:.2f} to {found.high:.2f}, 95 %"


def _tone(found: MeasuredReport) -> Tone:
    return "good" if found.low > 1 else "bad" if found.high < 1 else "plain"


# --- the plan ----------------------------------------------------------------------------------------------


def _plan(report: Report) -> Iterator[Fact]:
    """The estimated time and its bound; for several targets, the time and regret on each."""
    plan, gain = report.plan, report.gain
    if plan is None:
        yield Fact("estimated time", "not planned", report.reason, tone="absent", level="summary")
        return
    if plan.targets:
        yield from _compromise(plan)
    else:
        found = gain or plan
        before = plan.seconds_before if gain is None else gain.seconds_unplanned
        is_better = found.seconds_after < 0.995 * before
        ratio = f"{before / found.seconds_after:.2f}x " if is_better and found.seconds_after else ""
        is_greedy = gain is not None and gain.seconds_greedy is not None
        canonical = f"; {seconds(found.seconds_before)} in canonical formats" if is_greedy else ""
        yield Fact(
            "estimated time",
            change_text(before, found.seconds_after),
            f"{ratio}by the cost model of {report.target}{canonical}",
            tone="good" if is_better else "plain",
            level="summary",
        )
        is_limited = gain is not None and gain.seconds_after > plan.seconds_after * (1 + 1e-6)
        growth = f", {seconds(plan.seconds_after)} for the plan if the file may grow" if is_limited else ""
        yield Fact("lower bound", seconds(plan.lower_bound), f"{proof_text(plan)}{growth}")
    yield from size_facts(report.dims)
    common = Counter(map(output_format, report.ops)).most_common()
    parts = [f"{count} {name}" for name, count in common[:_MAX_FORMATS]]
    if rest := common[_MAX_FORMATS:]:
        parts.append(f"{sum(count for _, count in rest)} in {len(rest)} other formats")
    yield Fact("op outputs", ", ".join(parts))


def _devices(platform: PlatformReport | None) -> Iterator[Fact]:
    """The devices of a platform with their ops, the transfers, and the times of other plans."""
    if platform is None:
        return
    used = [each for each in platform.devices if each.ops]
    parts = [f"{each.device} {each.ops} ops in {seconds(each.seconds)}" for each in used]
    weights = ", ".join(f"{each.device} {size(each.constants)}" for each in used)
    yield Fact("devices", ", ".join(parts), f"weights: {weights}", level="summary")
    value = f"{platform.transfers} transfers, {size(platform.bytes)}"
    yield Fact("transfers", value, f"{seconds(platform.seconds)} with their conversions", level="summary")
    others = {f"{each.device} wherever possible": each.seconds_alone for each in platform.devices}
    others["devices chosen before formats"] = platform.seconds_placed_first
    texts = [f"{name} {'impossible' if time is None else seconds(time)}" for name, time in others.items()]
    yield Fact("other plans", ", ".join(texts), level="summary")


def _compromise(plan: PlanReport) -> Iterator[Fact]:
    """The estimated time and regret on each of several targets."""
    worst = max(plan.targets, key=lambda each: each.regret)
    detail = f"on {worst.target}, of {len(plan.targets)} targets; {proof_text(plan)}"
    yield Fact("worst regret", f"{worst.regret:.1%}", detail, level="summary")
    for each in plan.targets:
        ratio = f"{each.seconds_before / each.seconds_after:.2f}x, " if each.seconds_after else ""
        detail = f"{ratio}regret {each.regret:.1%}, optimum for this target alone {seconds(each.seconds_alone)}"
        yield Fact(each.target, change_text(each.seconds_before, each.seconds_after), detail)


# --- the file and the prices -------------------------------------------------------------------------------


def _provenance(report: Report) -> Iterator[Fact]:
    """What can run the result, the repairs of the original, the growth of the file, and the source of the prices."""
    if report.runs_in:
        yield Fact("runs in", report.runs_in)
    if report.portable is not None:
        standard = "standard operators" if report.portable.standard_changed else "the operators of the original"
        value = f"native kernels where blocks have {report.portable.block} channels, {standard} elsewhere"
        yield Fact("portable", value)
    if repairs := repairs_of(report.notes):
        more = f"and {len(repairs) - 1} more" if len(repairs) > 1 else ""
        yield Fact("repaired", ": ".join(repairs[0]), more)
    yield from _growth(report.growth)
    yield from _prices(report.calibration)


def _growth(growth: GrowthReport | None) -> Iterator[Fact]:
    """The growth of the constants; none if they grew by less than 10 % and no growth was declined."""
    declined = [] if growth is None else [each for each in growth.requests if not each.is_accepted]
    if growth is None or (growth.bytes_after <= _MIN_GROWTH * growth.bytes_before and not declined):
        return
    rest = f"{size(sum(each.nbytes for each in declined))}, {seconds(sum(each.seconds for each in declined))} per run"
    detail = f"declined: {rest}; --config max-growth=X" if declined else ""
    yield Fact("constants", f"{size(growth.bytes_before)} -> {size(growth.bytes_after)}", detail)


def _prices(found: PricesReport | None) -> Iterator[Fact]:
    """The kernels that were timed; none if the prices are those of the target."""
    if found is None or found.reason:
        return
    parts = [f"kernels timed now: {found.timed}, in {seconds(found.seconds)}"] if found.timed else []
    parts += [f"{found.skipped} kernels have estimates: {TIME_IS_SPENT}"] if found.skipped else []
    value = f"{found.share:.0%} from kernels timed on this machine"
    yield Fact("prices", value, ", ".join(parts), level="summary" if found.skipped else "detail")


# --- text --------------------------------------------------------------------------------------------------


def summary_text(report: Report) -> str:
    """The facts of the verdict and the summary as lines of text, below a title."""
    rows = [f"{each.label:<{_LABEL_WIDTH}}{each.text}" for each in report.facts if each.level != "detail"]
    return "\n".join([f"{report.model} for {report.target}, runtime {report.runtime}", *rows])


# --- warnings ----------------------------------------------------------------------------------------------


def warnings_of(report: Report) -> list[str]:
    """Warnings about the result of `optimize`, besides those about repairs."""
    verification = report.verification
    left_out = [f"{report.model}: {note.where} {note.reason}" for note in report.notes if note.source == LEFT_OUT]
    if verification.status == "not verified":
        return [f"{report.model}: not verified: {verification.reason}", *left_out]
    if verification.outputs_depend_on_inputs is False:
        what = "the outputs do not depend on the inputs, so the verification is weak evidence"
        return [f"{report.model}: {what}", *left_out]
    return left_out


def repairs_of(notes: Iterable[NoteReport]) -> list[tuple[str, str]]:
    """Repairs that the reader made, as (name, repair), from the notes of a report."""
    return [(note.where, note.reason) for note in notes if note.source == "read"]
