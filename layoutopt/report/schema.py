"""What was done, as data: the schema of `--report out.json`.

The schema has a version. Fields are added under the same version; a field that changes its meaning or goes raises it.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OpReport(_Frozen):
    """One op of the optimised graph."""

    name: str
    kind: str
    inputs: list[str | None] = Field(description="format of every input, null where it has none")
    outputs: list[str | None] = Field(description="format of every output")
    seconds: float = Field(
        description="estimated time on the target, of all its runs; ops with bodies leave it to those"
    )
    body: str = Field(default="", description="the body that it is in: op and attribute; empty in the main graph")
    moves_data: bool = Field(description="whether the op is there to move bytes: a Transpose or Reshape that does")
    reason: str = Field(
        default="",
        description="if it moves bytes: the format before, and who requires another; if it has no signature to choose: why",
    )


class CastReport(_Frozen):
    """One CastData of the optimised graph."""

    name: str
    tensor: str
    src: str
    dst: str
    bytes: int = Field(description="physical bytes read and written")
    seconds: float = Field(description="estimated time on the target, of all its runs")
    body: str = Field(default="", description="the body that it is in: op and attribute; empty in the main graph")
    moves_data: bool = Field(description="false where only the shape of the array changes")
    is_weight: bool = Field(description="whether a constant is cast at run time (training mode)")
    reason: str = Field(description="who wants which format, so why the cast is there")


class ChoiceReport(_Frozen):
    """What one target alone would choose for an op."""

    name: str
    kind: str
    body: str = Field(default="", description="the body that it is in: op and attribute; empty in the main graph")
    inputs: list[str | None] = Field(description="format of every input, null where it has none")
    outputs: list[str | None] = Field(description="format of every output")


class TargetReport(_Frozen):
    """What the plan means for one of several targets, in estimated seconds on it."""

    target: str
    seconds_before: float
    seconds_after: float
    seconds_alone: float = Field(description="under the plan that is the best for this target by itself")
    regret: float = Field(description="how much longer it takes than that, as a fraction")
    differs: list[ChoiceReport] = Field(description="ops for which that plan has other formats than the common one")


class PlanReport(_Frozen):
    """The planner's result, in estimated seconds on the target; for several, means over them."""

    seconds_before: float
    seconds_after: float
    lower_bound: float
    gap: float = Field(
        description="how far the plan may be above the best, as a fraction; for several targets, its largest "
        "ratio of seconds to those that a target takes alone"
    )
    optimal: bool
    stopped: Literal["candidates", "formulation", "solver"] | None = Field(
        default=None, description="the stage of planning that the time limit ended, if it did"
    )
    least_moves: int | None = Field(
        default=None, description="no plan of these formats has fewer casts and transposes; null unless asked for"
    )
    agreeing: int | None = Field(
        default=None, description="ops for which several targets, each alone, would choose the same formats"
    )
    targets: list[TargetReport] = Field(default_factory=list, description="each of several targets")


class VerificationReport(_Frozen):
    """The verdict of the comparison."""

    status: Literal["passed", "failed", "not verified", "off"]
    reason: str = ""
    largest_error: float | None = Field(default=None, description="of any output, relative to its largest magnitude")
    rounding: float | None = Field(
        default=None, description="by how much rounding alone moves that output of the original, measured"
    )
    tolerance: float | None = Field(default=None, description="the largest error that was accepted")
    outputs_depend_on_inputs: bool | None = None
    sizes: list[dict[str, int]] = Field(
        default_factory=list, description="of symbolic dimensions, those that were tried, by name"
    )


class DimReport(_Frozen):
    """A symbolic dimension of the inputs, and what it was planned for."""

    name: str = Field(description="the model's name for it, or input[axis]")
    low: int
    high: int
    assumed: bool = Field(description="whether the size is a guess, because none was given")
    reason: str = Field(default="", description="from what a guess was inferred")


class PurchaseReport(_Frozen):
    """Constants that make the file larger, or would have."""

    source: str = Field(description="the pass or rewrite")
    where: str = Field(description="the tensor or op")
    nbytes: int = Field(description="by how much larger the constants become")
    seconds: float = Field(description="the estimated gain of one run of the model")


class GrowthReport(_Frozen):
    """How the size of all constants changed, and why."""

    max_growth: float = Field(description="the largest permitted ratio, besides a slack of 1 MiB")
    bytes_before: int
    bytes_after: int
    bought: list[PurchaseReport] = Field(description="what makes the file larger")
    declined: list[PurchaseReport] = Field(description="what would have, and was not worth it or not affordable")


class PassReport(_Frozen):
    """One pass that was run."""

    name: str
    changed: bool
    seconds: float


class NoteReport(_Frozen):
    """Why something did not apply somewhere."""

    source: str
    where: str
    reason: str


class Counts(_Frozen):
    """How much moves data."""

    casts: int = Field(description="CastData on activations that move bytes")
    transposes: int = Field(description="Transposes and Reshapes on activations that move bytes")
    weight_casts: int = Field(description="CastData on constants at run time")


class Report(_Frozen):
    """Everything that is known about one run."""

    schema_version: int = SCHEMA_VERSION
    layoutopt_version: str
    model: str
    target: str
    dialect: str
    mode: Literal["inference", "training"]
    changed: bool = Field(description="false where the model was left alone")
    reason: str = Field(default="", description="why it was left alone")
    dims: list[DimReport] = Field(default_factory=list, description="prices are means over these sizes")
    plan: PlanReport | None = Field(description="null where the model had been optimised like this before")
    before: Counts
    after: Counts
    ops: list[OpReport]
    casts: list[CastReport]
    growth: GrowthReport | None = Field(default=None, description="null where the model was left alone")
    passes: list[PassReport]
    notes: list[NoteReport]
    verification: VerificationReport
    seconds: float = Field(description="wall time of the whole run")
