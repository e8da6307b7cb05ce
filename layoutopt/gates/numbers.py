"""The numbers of an optimised model that budgets and baselines limit."""

from pydantic import Field

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


def numbers_of(report: Report) -> Numbers:
    """The numbers of a result, by the report of `optimize`."""
    growth = report.growth
    before, after = (growth.bytes_before, growth.bytes_after) if growth is not None else (0, 0)
    return Numbers(
        transposes=report.after.transposes,
        casts=report.after.casts,
        bytes_moved=report.after.bytes,
        speed_up=_rounded(report.estimated_speed_up),
        constants_before=before,
        constants_after=after,
        size_growth=round(after / before, 4) if before else 1.0,
    )


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


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)


__all__ = ["Numbers", "measured_speed_up", "numbers_of", "reason_not_measured"]
