"""The numbers of an optimised model that budgets and baselines limit."""

from collections.abc import Sequence

from pydantic import Field

from layoutopt.report.remaining_moves import RemainingMove
from layoutopt.report.schema import MeasurementReport, Report, ReportModel


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


def numbers_of(report: Report, moves: Sequence[RemainingMove]) -> Numbers:
    """The numbers of a result.

    Args:
        report: the report of `optimize`.
        moves: the ops of the result that move bytes, those of the original if the model is unchanged.
    """
    growth = report.growth
    before, after = (growth.bytes_before, growth.bytes_after) if growth is not None else (0, 0)
    return Numbers(
        transposes=sum(each.kind == "transpose" for each in moves),
        casts=sum(each.kind == "cast" for each in moves),
        bytes_moved=sum(each.bytes for each in moves),
        speed_up=estimated_speed_up(report),
        constants_before=before,
        constants_after=after,
        size_growth=_rounded(after / before) if before else 1.0,
    )


def estimated_speed_up(report: Report) -> float | None:
    """The estimated speed-up; 1 for a planned model that stays unchanged, None without a plan."""
    if report.plan is None:
        return None
    if not report.changed:
        return 1.0
    times = [(each.seconds_before, each.seconds_after) for each in report.plan.targets]
    if not times:
        estimate = report.gain or report.plan
        times = [(estimate.seconds_before, estimate.seconds_after)]
    ratios = [before / after for before, after in times if after]
    return _rounded(min(ratios)) if ratios else None


def measured_speed_up(report: Report) -> float | None:
    """The measured speed-up at the sizes of the plan; 1 if the model stays unchanged, None if nothing was measured."""
    if not report.changed:
        return 1.0
    measurement = report.measurement
    return _rounded(measurement.sizes[0].speed_up) if measurement is not None and measurement.sizes else None


def reason_not_measured(measurement: MeasurementReport | None) -> str:
    """The reason why a result was not measured."""
    if measurement is None:
        return "nothing was rewritten"
    return "LAYOUTOPT_NO_MEASURE is set" if measurement.reason == "off" else measurement.reason


def _rounded(ratio: float) -> float:
    return round(ratio, 4)


__all__ = ["Numbers", "estimated_speed_up", "measured_speed_up", "numbers_of", "reason_not_measured"]
