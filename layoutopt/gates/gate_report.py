"""The results of one run of `ci`: the schema of its JSON report."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from pydantic import Field

from layoutopt.gates.budgets import Budgets
from layoutopt.gates.findings import BUDGET_RULES, Finding, Rule
from layoutopt.gates.numbers import Numbers
from layoutopt.report.schema import ReportModel

Status: TypeAlias = Literal["passed", "over budget", "regression", "error"]


class ModelResult(ReportModel):
    """The results of one model."""

    model: str = Field(description="the path as on the command line")
    uri: str = Field(description="the path from the root of the repository, percent-encoded; file:// if it is outside")
    sha256: str = Field(default="", description="of the model file, followed by its external data; empty if unreadable")
    status: Status = Field(description="the outcome of all checks; `over budget` also if there is a regression as well")
    target: str
    runtime: str
    sizes: dict[str, tuple[int, int]] = Field(default_factory=dict, description="of symbolic dimensions: low and high")
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


def budget_values(budgets: Budgets) -> dict[str, float]:
    """The limits that are set, by key."""
    return {key: float(value) for key, value in budgets.model_dump(by_alias=True, exclude_none=True).items()}


def failed_model(model: str, uri: str, target: str, runtime: str, message: str) -> ModelResult:
    """The result of a model that could not be planned."""
    finding = Finding.of(Rule.MODEL_ERROR, message)
    return ModelResult(model=model, uri=uri, status="error", target=target, runtime=runtime, findings=[finding])


def status_of(findings: Iterable[Finding]) -> Status:
    """The outcome of all checks of a model, from their findings."""
    failed = {each.rule for each in findings if each.level == "error"}
    if Rule.MODEL_ERROR in failed:
        return "error"
    if not failed.isdisjoint(BUDGET_RULES):
        return "over budget"
    return "regression" if failed else "passed"


__all__ = ["GateReport", "ModelResult", "Status", "budget_values", "failed_model", "status_of"]
