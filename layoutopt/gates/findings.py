"""Findings: statements about one model, each with the rule that it belongs to."""

from enum import StrEnum
from typing import Literal, TypeAlias

from pydantic import Field

from layoutopt.report.schema import ReportModel

Level: TypeAlias = Literal["error", "warning", "note"]


class Rule(StrEnum):
    """The rules of findings; those of budgets have the keys of the budgets."""

    MODEL_ERROR = "model-error"
    MAX_TRANSPOSES = "max-transposes"
    MAX_CASTS = "max-casts"
    MAX_BYTES_MOVED = "max-bytes-moved"
    MIN_SPEEDUP = "min-speedup"
    MAX_SIZE_GROWTH = "max-size-growth"
    REGRESSION = "regression"
    NOT_IN_BASELINE = "not-in-baseline"
    CHANGED_MODEL = "changed-model"
    OTHER_SIZES = "other-sizes"
    NOT_CHECKED = "not-checked"
    NOT_MEASURED = "not-measured"
    NOT_COMPARED = "not-compared"
    REMAINING_TRANSPOSE = "remaining-transpose"
    REMAINING_CAST = "remaining-cast"


BUDGET_RULES = (
    Rule.MAX_TRANSPOSES,
    Rule.MAX_CASTS,
    Rule.MAX_BYTES_MOVED,
    Rule.MIN_SPEEDUP,
    Rule.MAX_SIZE_GROWTH,
)

SPEED_UP_RULES = (Rule.MIN_SPEEDUP, Rule.NOT_CHECKED, Rule.NOT_MEASURED)
BASELINE_RULES = (Rule.REGRESSION, Rule.NOT_IN_BASELINE, Rule.CHANGED_MODEL, Rule.OTHER_SIZES, Rule.NOT_COMPARED)

DESCRIPTIONS = {
    Rule.MODEL_ERROR: "The model cannot be read, planned or written.",
    Rule.MAX_TRANSPOSES: "More Transposes and other view ops move bytes than the budget permits.",
    Rule.MAX_CASTS: "More layout conversions move bytes than the budget permits.",
    Rule.MAX_BYTES_MOVED: "Transposes and layout conversions move more bytes than the budget permits.",
    Rule.MIN_SPEEDUP: "The speed-up is below the budget.",
    Rule.MAX_SIZE_GROWTH: "The constants of the model grow more than the budget permits.",
    Rule.REGRESSION: "The result is worse than the baseline by more than the tolerance.",
    Rule.NOT_IN_BASELINE: "The baseline has no entry for the model.",
    Rule.CHANGED_MODEL: "The model file differs from the one of the baseline.",
    Rule.OTHER_SIZES: "The baseline was planned for other sizes of symbolic dimensions.",
    Rule.NOT_CHECKED: "The model has no speed-up that min-speedup could limit.",
    Rule.NOT_MEASURED: "The budget min-speedup limits an estimate, where a measurement was requested.",
    Rule.NOT_COMPARED: "The model has no estimated speed-up to compare with that of the baseline.",
    Rule.REMAINING_TRANSPOSE: "A Transpose or another view op of the result moves bytes.",
    Rule.REMAINING_CAST: "A layout conversion of the result moves bytes.",
}


def level_of(rule: Rule) -> Level:
    """The level of all findings of a rule."""
    if rule in (Rule.REMAINING_TRANSPOSE, Rule.REMAINING_CAST):
        return "note"
    return "error" if rule in (Rule.MODEL_ERROR, *BUDGET_RULES, Rule.REGRESSION) else "warning"


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
        return cls(rule=rule, level=level_of(rule), message=message, node=node, body=body)

    @property
    def path(self) -> str:
        """The name of the op behind the path of its body."""
        return f"{self.body}/{self.node}" if self.body else self.node


__all__ = [
    "BASELINE_RULES",
    "BUDGET_RULES",
    "DESCRIPTIONS",
    "SPEED_UP_RULES",
    "Finding",
    "Level",
    "Rule",
    "level_of",
]
