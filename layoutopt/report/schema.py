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

import re
from inspect import cleandoc
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

SCHEMA_VERSION = 8

_ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Split the description of a JSON schema, the docstring of the model, into those of the model and of its fields."""
    for each in (kind for kind in reversed(model.__mro__) if issubclass(kind, ReportModel)):
        schema["description"], _, fields = cleandoc(each.__doc__ or "").partition("\n\nAttributes:\n")
        for name, text in _ENTRY.findall(fields):
            schema["properties"][name]["description"] = " ".join(text.split()).removesuffix(".")


class ReportModel(BaseModel):
    """Base class of the parts of reports, whose docstrings describe the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, json_schema_extra=_describe)


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
    """One op of the optimised graph.

    Attributes:
        inputs: format of every input, null where it has none.
        outputs: format of every output.
        input_axes: letters of the axes of every input, in logical order; a format with this text is the canonical format.
        output_axes: letters of the axes of every output, in logical order; a format with this text is the canonical format.
        seconds: estimated time on the target, of all its runs; 0 for ops with bodies, whose ops have it.
        body: the body that it is in: op and attribute; empty in the main graph.
        device: the device of a platform that runs it.
        moves_data: whether it is a Transpose or Reshape that moves bytes.
        reason: if it moves bytes: the format of its input and the required one; if it has no choice of signatures: why.
    """

    name: str
    kind: str
    inputs: list[str | None]
    outputs: list[str | None]
    input_axes: list[str | None] = Field(default_factory=list)
    output_axes: list[str | None] = Field(default_factory=list)
    seconds: float
    body: str = ""
    device: str = ""
    moves_data: bool
    reason: str = ""


class CastReport(ReportModel):
    """One CastData of the optimised graph.

    Attributes:
        axes: letters of the axes of the tensor, in logical order; a format with this text is the canonical format.
        bytes: physical bytes read and written.
        seconds: estimated time on the target, of all its runs.
        body: the body that it is in: op and attribute; empty in the main graph.
        device: the device of a platform that changes the format.
        transferred: bytes of the transfer to another device; 0 if there is none.
        moves_data: false where only the shape of the array changes.
        is_weight: whether a constant is cast at run time (training mode).
        reason: the formats of the producer and of the consumers.
    """

    name: str
    tensor: str
    src: str
    dst: str
    axes: str = ""
    bytes: int
    seconds: float
    body: str = ""
    device: str = ""
    transferred: int = 0
    moves_data: bool
    is_weight: bool
    reason: str


class TargetReport(ReportModel):
    """The effect of the plan on one of several targets, in estimated seconds.

    Attributes:
        seconds_before: of the graph after the passes before planning, every op in canonical formats, with the fusions of the
            runtime; the baseline of `gain` unless the runtime has blocked kernels.
        seconds_alone: under the best plan of this target alone.
        regret: seconds_after / seconds_alone - 1.
    """

    target: str
    seconds_before: float
    seconds_after: float
    seconds_alone: float
    regret: float


class DeviceReport(ReportModel):
    """A device of a platform.

    Attributes:
        ops: the ops that it runs.
        seconds: estimated time of these ops.
        constants: bytes of the constants that these ops read.
        seconds_alone: estimated time of the best plan with every op on this device wherever possible; null if there is none,
            for example because its memory is too small.
    """

    device: str
    target: str
    ops: int
    seconds: float
    constants: int
    seconds_alone: float | None


class PlatformReport(ReportModel):
    """The devices of a platform, and the transfers between them.

    Attributes:
        bytes: of all transfers.
        seconds: estimated time of the transfers and their changes of formats.
        seconds_placed_first: estimated time of the best placement in canonical formats, with the best formats for it; null if
            there is none.
    """

    devices: list[DeviceReport]
    transfers: int
    bytes: int
    seconds: float
    seconds_placed_first: float | None


class PlanReport(ReportModel):
    """The planner's result, in estimated seconds on the target; for several, means over them.

    Attributes:
        seconds_before: of the graph after the passes before planning, every op in canonical formats, with the fusions of the
            runtime; the baseline of `gain` unless the runtime has blocked kernels.
        gap: upper bound of the distance to the best plan, as a fraction; for several targets the largest ratio of seconds_after
            to seconds_alone.
        stopped: the stage of planning that the time limit ended.
        cut: formats and signatures beyond the limits, which the lower bound does not cover.
        targets: each of several targets.
    """

    seconds_before: float
    seconds_after: float
    lower_bound: float
    gap: float
    optimal: bool
    stopped: Literal["candidates", "solver"] | None = None
    cut: int = 0
    targets: list[TargetReport] = Field(default_factory=list)


class VerificationReport(ReportModel):
    """The verdict of the comparison.

    Attributes:
        largest_error: of any output or cut value, relative to its largest magnitude.
        rounding: its rounding spread: the measured change by rounding alone.
        tolerance: the largest accepted error.
        block_by_definition: channels per block of the native operators that were replaced by their definitions, because the
            kernels of this machine have other blocks; null if kernels ran.
        sizes: sizes of symbolic dimensions at which the models were compared.
    """

    status: Literal["passed", "failed", "not verified", "off"]
    reason: str = ""
    largest_error: float | None = None
    rounding: float | None = None
    tolerance: float | None = None
    outputs_depend_on_inputs: bool | None = None
    block_by_definition: int | None = None
    sizes: list[dict[str, int]] = Field(default_factory=list)


class GainReport(ReportModel):
    """The estimated gain of a run of the plan over the original as the runtime runs it by itself, in seconds.

    Attributes:
        baseline: the form of the original: `optimised` by onnxruntime itself, or `folded` by the passes before planning, for
            compilers, which fold as well, and where the optimised form is not known.
        seconds_before: estimated time of the original as the runtime runs it by itself.
        seconds_greedy: for runtimes that read formats: estimated time of the original in a compiler that propagates formats
            from op to op, or in canonical formats where that is faster.
        seconds_after: estimated time of the plan at the same prices; more than `plan.seconds_after` if the file may not grow by
            all constants of the plan.
    """

    baseline: Literal["optimised", "folded"]
    seconds_before: float
    seconds_greedy: float | None = None
    seconds_after: float

    @property
    def seconds_unplanned(self) -> float:
        """The time that the plan is compared with: `seconds_greedy` if it is known, otherwise `seconds_before`."""
        return self.seconds_before if self.seconds_greedy is None else self.seconds_greedy


class PricesReport(ReportModel):
    """The prices of the plan from kernels timed on this machine.

    Attributes:
        reason: if the prices are those of the target: why; `off` if requested.
        timed: kernels timed in this call, those of other plans and of the original included.
        known: kernels of the plan with a time, from this call or an earlier one.
        share: their share of the plan's estimated time.
        skipped: kernels with estimates, because the processor time for timing kernels was spent.
        seconds: for timing and planning.
        cpu: the processor of the times.
    """

    reason: str = ""
    timed: int = 0
    known: int = 0
    share: float = 0.0
    skipped: int = 0
    seconds: float = 0.0
    cpu: str = ""


class MeasuredReport(ReportModel):
    """Runs of the original and the result in turns, at one choice of sizes, on this machine.

    Attributes:
        sizes: of symbolic dimensions, by name.
        seconds_before: a run of the original, which onnxruntime optimises by itself.
        seconds_after: a run of the result.
        speed_up: mean ratio of the two, from the fastest runs of each block.
        low: lower end of the 95 % confidence interval of the speed-up.
        high: upper end of it.
        null: the same interval of the original against itself.
        creation_speed_up: of session creation.
        sessions: the number of blocks, each with new sessions of both; 3 to 36.
    """

    sizes: dict[str, int]
    seconds_before: float
    seconds_after: float
    speed_up: float
    low: float
    high: float
    null: tuple[float, float]
    creation_speed_up: float
    sessions: int


class MeasurementReport(ReportModel):
    """The measured speed-up; the original stays unchanged if the result is slower.

    Attributes:
        reason: if nothing was measured: why; `off` if it was not requested.
        sizes: the first at the sizes of the plan.
        skipped: sizes at which the original did not run.
    """

    threads: int
    reason: str = ""
    sizes: list[MeasuredReport] = Field(default_factory=list)
    skipped: list[dict[str, int]] = Field(default_factory=list)


class PortableReport(ReportModel):
    """The branches of a portable model.

    Attributes:
        block: channels per block of the machines that run the native branch.
        standard_changed: whether the branch for other machines is rewritten; false if it is the original.
    """

    block: int
    standard_changed: bool


class DimReport(ReportModel):
    """A symbolic dimension of the inputs with its sizes in the plan.

    Attributes:
        name: its name in the model, or input[axis].
        assumed: whether the size was inferred, because none was given.
        reason: the reason for an inferred size.
    """

    name: str
    low: int
    high: int
    assumed: bool
    reason: str = ""


class GrowthRequestReport(ReportModel):
    """A request of a pass to make constants larger.

    Attributes:
        source: the pass or rewrite.
        where: the tensor or op.
        nbytes: growth of the constants.
        seconds: the estimated gain of one run of the model.
        is_accepted: whether it makes the file larger; if not, it has no gain or the file no room.
    """

    source: str
    where: str
    nbytes: int
    seconds: float
    is_accepted: bool


class GrowthReport(ReportModel):
    """The change of the size of all constants.

    Attributes:
        max_growth: the largest accepted ratio, besides a slack of 1 MiB.
        requests: the largest first.
    """

    max_growth: float
    bytes_before: int
    bytes_after: int
    requests: list[GrowthRequestReport]


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
    """The numbers of ops that move data.

    Attributes:
        casts: CastData on activations that move bytes.
        transposes: Transposes and Reshapes on activations that move bytes.
        weight_casts: CastData on constants at run time.
        bytes: physical bytes that the casts and transposes read and write in one run.
    """

    casts: int = 0
    transposes: int = 0
    weight_casts: int = 0
    bytes: int = 0

    @property
    def moves(self) -> int:
        """The number of casts and transposes."""
        return self.casts + self.transposes


class DataMovementReport(ReportModel):
    """The data movement of one run in onnxruntime on this machine, after its own optimiser.

    Attributes:
        ops: executions by op type: Transpose, ReorderInput, ReorderOutput.
        nbytes: bytes that they read and write.
    """

    ops: dict[str, int]
    nbytes: int

    @property
    def count(self) -> int:
        """The number of executions."""
        return sum(self.ops.values())


class Report(ReportModel, extra="ignore"):  # files have a mark
    """The results of one run of `optimize`.

    Attributes:
        runtime: the runtime that the result is written for.
        runs_in: the programs that can run the result; empty if it is the original.
        sessions: the preference for session creation or runs.
        changed: false if the model is unchanged.
        facts: the rows of the summaries, from the other fields.
        reason: the reason why it is unchanged.
        dims: sizes over which prices are means.
        platform: null unless the target is a platform.
        plan: null if the model had been optimised with the same options before.
        moved_before: data movement of the original; null if nothing was rewritten or verified.
        moved_after: data movement of the result; null where onnxruntime does not run its kernels.
        gain: the estimated gain; null if nothing was planned, or for several targets.
        calibration: null if nothing was planned.
        measurement: null if nothing was rewritten.
        portable: null unless the result has a native branch and one of standard operators.
        growth: null if the model is unchanged.
        seconds: wall time of the whole run.
        cached: whether the result was in the cache of a batch; other fields are those of its run.
    """

    schema_version: int = SCHEMA_VERSION
    layoutopt_version: str
    model: str
    target: str
    runtime: str = ""
    runs_in: str = ""
    dialect: str
    mode: Literal["inference", "training"]
    sessions: Literal["balanced", "fast"] = "balanced"
    changed: bool
    facts: list[Fact] = Field(default_factory=list)
    reason: str = ""
    dims: list[DimReport] = Field(default_factory=list)
    platform: PlatformReport | None = None
    plan: PlanReport | None
    before: Counts
    after: Counts
    moved_before: DataMovementReport | None = None
    moved_after: DataMovementReport | None = None
    gain: GainReport | None = None
    calibration: PricesReport | None = None
    measurement: MeasurementReport | None = None
    ops: list[OpReport]
    casts: list[CastReport]
    portable: PortableReport | None = None
    growth: GrowthReport | None = None
    passes: list[PassReport]
    notes: list[NoteReport]
    verification: VerificationReport
    seconds: float
    cached: bool = False

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
