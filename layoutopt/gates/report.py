"""The results of `ci`: findings, the numbers of each model, and the schema of the JSON report."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from pydantic import Field

from layoutopt.report.schema import Report, ReportModel

Level: TypeAlias = Literal["error", "warning"]
Status: TypeAlias = Literal["passed", "over budget", "regression", "error"]

PLAN, BASELINE = "plan", "baseline"
"""The checks besides those of budgets, which have the keys of the budgets."""


class Finding(ReportModel):
    """A statement about one check of a model.

    Attributes:
        check: `plan`, the key of a budget, or `baseline`.
        level: `error`: the check failed; `warning`: about the check, or why it was not made.
    """

    check: str
    level: Level
    message: str


class Numbers(ReportModel):
    """The numbers of the result of planning one model.

    Attributes:
        transposes: Transposes and other view ops that move bytes of activations.
        casts: layout conversions that move bytes of activations.
        bytes_moved: bytes that these ops read and write in one run.
        speed_up: estimated time of the original divided by that of the result, for several targets the smallest ratio; null if
            the model was not planned, because it is optimised already.
        constants_before: bytes of all constants; 0 if the model is unchanged.
        constants_after: the same of the result.
        size_growth: constants_after / constants_before.
    """

    transposes: int = Field(ge=0)
    casts: int = Field(ge=0)
    bytes_moved: int = Field(ge=0)
    speed_up: float | None
    constants_before: int = Field(default=0, ge=0)
    constants_after: int = Field(default=0, ge=0)
    size_growth: float = 1.0

    @classmethod
    def of(cls, report: Report) -> "Numbers":
        """The numbers of a result, by the report of `optimize`."""
        before, after = (report.growth.bytes_before, report.growth.bytes_after) if report.growth is not None else (0, 0)
        return cls(
            transposes=report.after.transposes,
            casts=report.after.casts,
            bytes_moved=report.after.bytes,
            speed_up=None if report.estimated_speed_up is None else round(report.estimated_speed_up, 4),
            constants_before=before,
            constants_after=after,
            size_growth=round(after / before, 4) if before else 1.0,
        )


class PlannedModel(ReportModel):
    """A model that was planned, in a report or in a baseline.

    Attributes:
        model: the path as on the command line; in a baseline, from the folder of its file.
        sha256: of the model file and its external data; empty if unreadable.
        sizes: of symbolic dimensions: low and high.
    """

    model: str
    target: str
    runtime: str
    sha256: str = ""
    sizes: dict[str, tuple[int, int]] = Field(default_factory=dict)


class ModelResult(PlannedModel):
    """The results of one model."""

    status: Status = Field(description="the outcome of all checks; `over budget` also if there is a regression as well")
    budgets: dict[str, float] = Field(default_factory=dict, description="by the key of the budget")
    numbers: Numbers | None = Field(default=None, description="null if the model could not be planned")
    baseline: Numbers | None = Field(default=None, description="null without a baseline, or if it has no such entry")
    is_compared: bool = Field(default=False, description="whether the model was looked up in a baseline")
    seconds: float = Field(default=0.0, description="wall time for the model")
    findings: list[Finding] = Field(default_factory=list)

    def messages(self, level: Level) -> list[str]:
        """The messages of a level."""
        return [each.message for each in self.findings if each.level == level]


class GateReport(ReportModel, extra="ignore"):
    """The results of one run of `ci`.

    Attributes:
        baseline: the baseline file; empty without one.
        baseline_version: the version of layoutopt that wrote it.
        is_updated: whether the baseline was written, not compared.
    """

    layoutopt_version: str
    target: str
    runtime: str
    baseline: str = ""
    baseline_version: str = ""
    is_updated: bool = False
    models: list[ModelResult]


def status_of(findings: Iterable[Finding]) -> Status:
    """The outcome of all checks of a model, from their findings."""
    failed = {each.check for each in findings if each.level == "error"}
    if PLAN in failed:
        return "error"
    if failed - {BASELINE}:
        return "over budget"
    return "regression" if failed else "passed"
