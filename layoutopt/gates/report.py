"""The results of `ci`: findings by rule, the numbers of each model, and the schema of the JSON report."""

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote

from pydantic import Field

from layoutopt.report.schema import Report, ReportModel

Level: TypeAlias = Literal["error", "warning", "note"]
Status: TypeAlias = Literal["passed", "over budget", "regression", "error"]


class Rule(StrEnum):
    """The rules of findings, each with the level of its findings, the check that they belong to, and a description.

    The rules of budgets have the keys of the budgets. A check is the planning, a budget, the comparison with the baseline, or
    none.
    """

    level: Level
    check: str
    description: str

    def __new__(cls, key: str, level: Level, check: str, description: str) -> "Rule":
        """The member of a row of the table."""
        rule = str.__new__(cls, key)
        rule._value_, rule.level, rule.check, rule.description = key, level, check, description
        return rule

    MODEL_ERROR = "model-error", "error", "plan", "The model cannot be read, planned or written."
    MAX_TRANSPOSES = (
        "max-transposes",
        "error",
        "max-transposes",
        "More Transposes and other view ops move bytes than the budget permits.",
    )
    MAX_CASTS = "max-casts", "error", "max-casts", "More layout conversions move bytes than the budget permits."
    MAX_BYTES_MOVED = (
        "max-bytes-moved",
        "error",
        "max-bytes-moved",
        "Transposes and layout conversions move more bytes than the budget permits.",
    )
    MIN_SPEEDUP = "min-speedup", "error", "min-speedup", "The speed-up is below the budget."
    MAX_SIZE_GROWTH = (
        "max-size-growth",
        "error",
        "max-size-growth",
        "The constants of the model grow more than the budget permits.",
    )
    REGRESSION = (
        "regression",
        "error",
        "baseline",
        "The result is worse than the baseline by more than the tolerance.",
    )
    NOT_IN_BASELINE = "not-in-baseline", "warning", "baseline", "The baseline has no entry for the model."
    CHANGED_MODEL = "changed-model", "warning", "baseline", "The model file differs from the one of the baseline."
    OTHER_SIZES = (
        "other-sizes",
        "warning",
        "baseline",
        "The baseline was planned for other sizes of symbolic dimensions.",
    )
    NOT_CHECKED = (
        "not-checked",
        "warning",
        "min-speedup",
        "The model has no speed-up that min-speedup could limit.",
    )
    NOT_MEASURED = (
        "not-measured",
        "warning",
        "min-speedup",
        "The budget min-speedup limits an estimate, where a measurement was requested.",
    )
    NOT_COMPARED = (
        "not-compared",
        "warning",
        "baseline",
        "The model has no estimated speed-up to compare with that of the baseline.",
    )
    REMAINING_TRANSPOSE = (
        "remaining-transpose",
        "note",
        "",
        "A Transpose or another view op of the result moves bytes.",
    )
    REMAINING_CAST = "remaining-cast", "note", "", "A layout conversion of the result moves bytes."


class Finding(ReportModel):
    """A statement about one model."""

    rule: Rule
    level: Level = Field(
        description="`error`: a failed check; `warning`: about a check; `note`: an op that moves bytes"
    )
    message: str
    node: str = Field(default="", description="the name of the op that the finding is about")
    body: str = Field(default="", description="the body that the op is in: op and attribute; empty in the main graph")

    @classmethod
    def of(cls, rule: Rule, message: str, *, node: str = "", body: str = "") -> "Finding":
        """The finding of a rule, with the level of the rule."""
        return cls(rule=rule, level=rule.level, message=message, node=node, body=body)

    @property
    def path(self) -> str:
        """The name of the op behind the path of its body."""
        return f"{self.body}/{self.node}" if self.body else self.node


class Numbers(ReportModel):
    """The numbers of the result of planning one model."""

    transposes: int = Field(ge=0, description="Transposes and other view ops that move bytes of activations")
    casts: int = Field(ge=0, description="layout conversions that move bytes of activations")
    bytes_moved: int = Field(ge=0, description="bytes that these ops read and write in one run")
    speed_up: float | None = Field(
        description="estimated time of the original divided by that of the result, for several targets the smallest "
        "ratio; null if the model was not planned, because it is optimised already"
    )
    constants_before: int = Field(default=0, ge=0, description="bytes of all constants; 0 if the model is unchanged")
    constants_after: int = Field(default=0, ge=0, description="the same of the result")
    size_growth: float = Field(default=1.0, description="constants_after / constants_before")

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
    """A model that was planned, in a report or in a baseline."""

    model: str = Field(description="the path as on the command line; in a baseline, from the folder of its file")
    target: str
    runtime: str
    sha256: str = Field(default="", description="of the model file, followed by its external data; empty if unreadable")
    sizes: dict[str, tuple[int, int]] = Field(default_factory=dict, description="of symbolic dimensions: low and high")


class ModelResult(PlannedModel):
    """The results of one model."""

    uri: str = Field(description="the path from the root of the repository, percent-encoded; file:// if it is outside")
    status: Status = Field(description="the outcome of all checks; `over budget` also if there is a regression as well")
    budgets: dict[str, float] = Field(default_factory=dict, description="by the key of the budget")
    numbers: Numbers | None = Field(default=None, description="null if the model could not be planned")
    measured_speed_up: float | None = Field(default=None, description="null if it was not requested or not possible")
    baseline: Numbers | None = Field(default=None, description="null without a baseline, or if it has no such entry")
    is_compared: bool = Field(default=False, description="whether the model was looked up in a baseline")
    is_rewritten: bool = Field(default=False, description="false if the original is the result")
    reason: str = Field(default="", description="the reason why the model is unchanged")
    written: str = Field(default="", description="the file of the result; empty unless it was written")
    seconds: float = Field(default=0.0, description="wall time for the model")
    findings: list[Finding] = Field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """The failed checks."""
        return [each for each in self.findings if each.level == "error"]

    @property
    def warnings(self) -> list[Finding]:
        """The warnings about checks."""
        return [each for each in self.findings if each.level == "warning"]


class GateReport(ReportModel, extra="ignore"):
    """The results of one run of `ci`."""

    layoutopt_version: str
    target: str
    runtime: str
    baseline: str = Field(default="", description="the baseline file; empty without one")
    baseline_version: str = Field(default="", description="the version of layoutopt that wrote it")
    is_updated: bool = Field(default=False, description="whether the baseline was written, not compared")
    models: list[ModelResult]

    def count(self, status: Status) -> int:
        """The number of models with a status."""
        return sum(each.status == status for each in self.models)


def status_of(findings: Iterable[Finding]) -> Status:
    """The outcome of all checks of a model, from their findings."""
    failed = {each.rule.check for each in findings if each.level == "error"}
    if "plan" in failed:
        return "error"
    if failed - {"baseline"}:
        return "over budget"
    return "regression" if failed else "passed"


# --- the place of a model in a repository ------------------------------------------------------------------

_OUTSIDE = "file://"


def model_uri(model: Path, root: Path) -> str:
    """The path of a model from the root of the repository, percent-encoded; a file:// URI if it is outside."""
    path, folder = (Path(os.path.abspath(each)) for each in (model, root))
    if path.is_relative_to(folder):
        return quote(os.fsencode(path.relative_to(folder).as_posix()))
    return f"{_OUTSIDE}{quote(os.fsencode(path.as_posix()))}"


def is_in_repository(uri: str) -> bool:
    """Whether a URI of `model_uri` is relative to the root of the repository."""
    return not uri.startswith(_OUTSIDE)


def uri_path(uri: str) -> str:
    """The path in a URI of `model_uri`; bytes that are not UTF-8 are replaced."""
    return unquote(uri.removeprefix(_OUTSIDE), errors="replace")
