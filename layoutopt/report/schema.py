"""The report of an optimisation: the schema of `--json out.json`.

New fields keep the schema version; a removed field or a changed meaning increments it.

    1    formats with the letters that the positions of the axes have in NCHW
    2    formats with the letters of the axes by their roles, which the fields `axes`, `input_axes` and `output_axes` list
    3    one system of prices: without the comparison of plans at two
    4    with the list of facts; the ops in which targets differ are a number
    5    without the numbers of ops in which targets agree and differ, and without preferred formats
    6    without the list of ops that move bytes, which `ops` and `casts` mark; one list of growth requests
    7    without the gain by cause and the least number of moves
    8    without the seconds that Winograd saves; `check-gain` and `lower` are no passes
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

SCHEMA_VERSION = 8

_BEFORE = (
    "of the graph after the passes before planning, every op in canonical formats, with the fusions of the runtime; the "
    "baseline of `gain` unless the runtime has blocked kernels"
)
_AXES = "letters of the axes of {}, in logical order; a format with this text is the canonical format"


class ReportModel(BaseModel):
    """Base class of the parts of reports."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


Tone = Literal["good", "bad", "absent", "plain"]


@dataclass(frozen=True, config=ConfigDict(defer_build=True))
class Fact:
    """One reported fact, a row of the summaries."""

    label: str
    value: str = Field(description="a number with its unit, or a verdict")
    detail: str = Field(default="", description="the source or uncertainty of the value, or the reason for its absence")
    tone: Tone = Field(default="plain", description="`absent` if the fact was not established")
    level: Literal["verdict", "summary", "detail"] = Field(
        default="detail", description="the shortest text that has it: one line, the summary, or all that is known"
    )

    @property
    def text(self) -> str:
        """The value, followed by the detail in parentheses."""
        return f"{self.value} ({self.detail})" if self.detail else self.value


class OpReport(ReportModel):
    """One op of the optimised graph."""

    name: str
    kind: str
    inputs: list[str | None] = Field(description="format of every input, null where it has none")
    outputs: list[str | None] = Field(description="format of every output")
    input_axes: list[str | None] = Field(default_factory=list, description=_AXES.format("every input"))
    output_axes: list[str | None] = Field(default_factory=list, description=_AXES.format("every output"))
    seconds: float = Field(
        description="estimated time on the target, of all its runs; 0 for ops with bodies, whose ops have it"
    )
    body: str = Field(default="", description="the body that it is in: op and attribute; empty in the main graph")
    device: str = Field(default="", description="the device of a platform that runs it")
    moves_data: bool = Field(description="whether it is a Transpose or Reshape that moves bytes")
    reason: str = Field(
        default="",
        description="if it moves bytes: the format of its input and the required one; if it has no choice of signatures: why",
    )


class CastReport(ReportModel):
    """One CastData of the optimised graph."""

    name: str
    tensor: str
    src: str
    dst: str
    axes: str = Field(default="", description=_AXES.format("the tensor"))
    bytes: int = Field(description="physical bytes read and written")
    seconds: float = Field(description="estimated time on the target, of all its runs")
    body: str = Field(default="", description="the body that it is in: op and attribute; empty in the main graph")
    device: str = Field(default="", description="the device of a platform that changes the format")
    transferred: int = Field(default=0, description="bytes of the transfer to another device; 0 if there is none")
    moves_data: bool = Field(description="false where only the shape of the array changes")
    is_weight: bool = Field(description="whether a constant is cast at run time (training mode)")
    reason: str = Field(description="the formats of the producer and of the consumers")


class TargetReport(ReportModel):
    """The effect of the plan on one of several targets, in estimated seconds."""

    target: str
    seconds_before: float = Field(description=_BEFORE)
    seconds_after: float
    seconds_alone: float = Field(description="under the best plan of this target alone")
    regret: float = Field(description="seconds_after / seconds_alone - 1")


class DeviceReport(ReportModel):
    """A device of a platform."""

    device: str
    target: str
    ops: int = Field(description="the ops that it runs")
    seconds: float = Field(description="estimated time of these ops")
    constants: int = Field(description="bytes of the constants that these ops read")
    seconds_alone: float | None = Field(
        description="estimated time of the best plan with every op on this device wherever possible; null if there "
        "is none, for example because its memory is too small"
    )


class PlatformReport(ReportModel):
    """The devices of a platform, and the transfers between them."""

    devices: list[DeviceReport]
    transfers: int
    bytes: int = Field(description="of all transfers")
    seconds: float = Field(description="estimated time of the transfers and their changes of formats")
    seconds_placed_first: float | None = Field(
        description="estimated time of the best placement in canonical formats, with the best formats for it; null if there is "
        "none"
    )


class PlanReport(ReportModel):
    """The planner's result, in estimated seconds on the target; for several, means over them."""

    seconds_before: float = Field(description=_BEFORE)
    seconds_after: float
    lower_bound: float
    gap: float = Field(
        description="upper bound of the distance to the best plan, as a fraction; for several targets the largest "
        "ratio of seconds_after to seconds_alone"
    )
    optimal: bool
    stopped: Literal["candidates", "solver"] | None = Field(
        default=None, description="the stage of planning that the time limit ended"
    )
    cut: int = Field(
        default=0, description="formats and signatures beyond the limits, which the lower bound does not cover"
    )
    targets: list[TargetReport] = Field(default_factory=list, description="each of several targets")


class VerificationReport(ReportModel):
    """The verdict of the comparison."""

    status: Literal["passed", "failed", "not verified", "off"]
    reason: str = ""
    largest_error: float | None = Field(
        default=None, description="of any output or cut value, relative to its largest magnitude"
    )
    rounding: float | None = Field(
        default=None, description="its rounding spread: the measured change by rounding alone"
    )
    tolerance: float | None = Field(default=None, description="the largest accepted error")
    outputs_depend_on_inputs: bool | None = None
    block_by_definition: int | None = Field(
        default=None,
        description="channels per block of the native operators that were replaced by their definitions, because the kernels "
        "of this machine have other blocks; null if kernels ran",
    )
    sizes: list[dict[str, int]] = Field(
        default_factory=list, description="sizes of symbolic dimensions at which the models were compared"
    )


class GainReport(ReportModel):
    """The estimated gain of a run of the plan over the original as the runtime runs it by itself, in seconds."""

    baseline: Literal["optimised", "folded"] = Field(
        description="the form of the original: `optimised` by onnxruntime itself, or `folded` by the passes before planning, "
        "for compilers, which fold as well, and where the optimised form is not known"
    )
    seconds_before: float = Field(description="estimated time of the original as the runtime runs it by itself")
    seconds_greedy: float | None = Field(
        default=None,
        description="for runtimes that read formats: estimated time of the original in a compiler that propagates formats from "
        "op to op, or in canonical formats where that is faster",
    )
    seconds_after: float = Field(
        description="estimated time of the plan at the same prices; more than `plan.seconds_after` if the file may not grow by "
        "all constants of the plan"
    )

    @property
    def seconds_unplanned(self) -> float:
        """The time that the plan is compared with: `seconds_greedy` if it is known, otherwise `seconds_before`."""
        return self.seconds_before if self.seconds_greedy is None else self.seconds_greedy


class PricesReport(ReportModel):
    """The prices of the plan from kernels timed on this machine."""

    reason: str = Field(default="", description="if the prices are those of the target: why; `off` if requested")
    timed: int = Field(
        default=0, description="kernels timed in this call, those of other plans and of the original included"
    )
    known: int = Field(default=0, description="kernels of the plan with a time, from this call or an earlier one")
    share: float = Field(default=0.0, description="their share of the plan's estimated time")
    skipped: int = Field(
        default=0, description="kernels with estimates, because the processor time for timing kernels was spent"
    )
    seconds: float = Field(default=0.0, description="for timing and planning")
    cpu: str = Field(default="", description="the processor of the times")


class MeasuredReport(ReportModel):
    """Runs of the original and the result in turns, at one choice of sizes, on this machine."""

    sizes: dict[str, int] = Field(description="of symbolic dimensions, by name")
    seconds_before: float = Field(description="a run of the original, which onnxruntime optimises by itself")
    seconds_after: float = Field(description="a run of the result")
    speed_up: float = Field(description="mean ratio of the two, from the fastest runs of each block")
    low: float = Field(description="lower end of the 95 % confidence interval of the speed-up")
    high: float = Field(description="upper end of it")
    null: tuple[float, float] = Field(description="the same interval of the original against itself")
    creation_speed_up: float = Field(description="of session creation")
    sessions: int = Field(description="the number of blocks, each with new sessions of both; 3 to 36")


class MeasurementReport(ReportModel):
    """The measured speed-up; the original stays unchanged if the result is slower."""

    threads: int
    reason: str = Field(default="", description="if nothing was measured: why; `off` if it was not requested")
    sizes: list[MeasuredReport] = Field(default_factory=list, description="the first at the sizes of the plan")
    skipped: list[dict[str, int]] = Field(default_factory=list, description="sizes at which the original did not run")


class PortableReport(ReportModel):
    """The branches of a portable model."""

    block: int = Field(description="channels per block of the machines that run the native branch")
    standard_changed: bool = Field(
        description="whether the branch for other machines is rewritten; false if it is the original"
    )


class DimReport(ReportModel):
    """A symbolic dimension of the inputs with its sizes in the plan."""

    name: str = Field(description="its name in the model, or input[axis]")
    low: int
    high: int
    assumed: bool = Field(description="whether the size was inferred, because none was given")
    reason: str = Field(default="", description="the reason for an inferred size")


class GrowthRequestReport(ReportModel):
    """A request of a pass to make constants larger."""

    source: str = Field(description="the pass or rewrite")
    where: str = Field(description="the tensor or op")
    nbytes: int = Field(description="growth of the constants")
    seconds: float = Field(description="the estimated gain of one run of the model")
    is_accepted: bool = Field(
        description="whether it makes the file larger; if not, it has no gain or the file no room"
    )


class GrowthReport(ReportModel):
    """The change of the size of all constants."""

    max_growth: float = Field(description="the largest accepted ratio, besides a slack of 1 MiB")
    bytes_before: int
    bytes_after: int
    requests: list[GrowthRequestReport] = Field(description="the largest first")


class PassReport(ReportModel):
    """One pass that was run."""

    name: str
    changed: bool
    seconds: float


class NoteReport(ReportModel):
    """The reason why a pass or rewrite was not applied."""

    source: str
    where: str
    reason: str


class Counts(ReportModel):
    """The numbers of ops that move data."""

    casts: int = Field(default=0, description="CastData on activations that move bytes")
    transposes: int = Field(default=0, description="Transposes and Reshapes on activations that move bytes")
    weight_casts: int = Field(default=0, description="CastData on constants at run time")
    bytes: int = Field(default=0, description="physical bytes that the casts and transposes read and write in one run")

    @property
    def moves(self) -> int:
        """The number of casts and transposes."""
        return self.casts + self.transposes


class DataMovementReport(ReportModel):
    """The data movement of one run in onnxruntime on this machine, after its own optimiser."""

    ops: dict[str, int] = Field(description="executions by op type: Transpose, ReorderInput, ReorderOutput")
    nbytes: int = Field(description="bytes that they read and write")

    @property
    def count(self) -> int:
        """The number of executions."""
        return sum(self.ops.values())


class Report(ReportModel, extra="ignore"):  # files have a mark
    """The results of one run of `optimize`."""

    schema_version: int = SCHEMA_VERSION
    layoutopt_version: str
    model: str
    target: str
    runtime: str = Field(default="", description="the runtime that the result is written for")
    runs_in: str = Field(default="", description="the programs that can run the result; empty if it is the original")
    dialect: str
    mode: Literal["inference", "training"]
    sessions: Literal["balanced", "fast"] = Field(
        default="balanced", description="the preference for session creation or runs"
    )
    changed: bool = Field(description="false if the model is unchanged")
    facts: list[Fact] = Field(default_factory=list, description="the rows of the summaries, from the other fields")
    reason: str = Field(default="", description="the reason why it is unchanged")
    dims: list[DimReport] = Field(default_factory=list, description="sizes over which prices are means")
    platform: PlatformReport | None = Field(default=None, description="null unless the target is a platform")
    plan: PlanReport | None = Field(description="null if the model had been optimised with the same options before")
    before: Counts
    after: Counts
    moved_before: DataMovementReport | None = Field(
        default=None, description="data movement of the original; null if nothing was rewritten or verified"
    )
    moved_after: DataMovementReport | None = Field(
        default=None, description="data movement of the result; null where onnxruntime does not run its kernels"
    )
    gain: GainReport | None = Field(
        default=None, description="the estimated gain; null if nothing was planned, or for several targets"
    )
    calibration: PricesReport | None = Field(default=None, description="null if nothing was planned")
    measurement: MeasurementReport | None = Field(default=None, description="null if nothing was rewritten")
    ops: list[OpReport]
    casts: list[CastReport]
    portable: PortableReport | None = Field(
        default=None, description="null unless the result has a native branch and one of standard operators"
    )
    growth: GrowthReport | None = Field(default=None, description="null if the model is unchanged")
    passes: list[PassReport]
    notes: list[NoteReport]
    verification: VerificationReport
    seconds: float = Field(description="wall time of the whole run")
    cached: bool = Field(
        default=False, description="whether the result was in the cache of a batch; other fields are those of its run"
    )

    @property
    def estimated_speed_up(self) -> float | None:
        """The estimated speed-up, the smallest of several targets; 1 for a planned model left unchanged, None without plan."""
        if self.plan is None or not self.changed:
            return None if self.plan is None else 1.0
        gain, plan = self.gain, self.plan
        times = [(each.seconds_before, each.seconds_after) for each in plan.targets]
        times = times or [
            (gain.seconds_unplanned, gain.seconds_after) if gain else (plan.seconds_before, plan.seconds_after)
        ]
        return min((before / after for before, after in times if after), default=None)
