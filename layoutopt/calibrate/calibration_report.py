"""The report of a calibration: the schema of `layoutopt calibrate --json`."""

from pydantic import Field

from layoutopt.report.schema import ReportModel


class Agreement(ReportModel):
    """Agreement of predicted and measured times of a family of kernels.

    Attributes:
        family: the family.
        fitted: the number of kernels that were fitted to.
        held_out: the number of kernels that were not.
        fitted_error: median of |predicted - measured| / measured over the fitted kernels.
        error: the same over the held-out kernels; null without any.
        rank_correlation: Spearman's over the held-out kernels; null for fewer than four.
        error_before: median error of the uncalibrated target over the held-out kernels.
        rank_correlation_before: rank correlation of the uncalibrated target.
    """

    family: str
    fitted: int
    held_out: int
    fitted_error: float | None
    error: float | None
    rank_correlation: float | None
    error_before: float | None
    rank_correlation_before: float | None


class KernelTime(ReportModel):
    """The measured time of a kernel and its predictions, in seconds."""

    kernel: str
    family: str
    held_out: bool
    measured: float
    predicted: float
    predicted_before: float


class CalibrationReport(ReportModel, extra="ignore"):
    """The results of a calibration."""

    layoutopt_version: str
    cpu: str
    onnxruntime_version: str
    threads: int
    date: str = Field(description="date of the fit, YYYY-MM-DD")
    target: str = Field(description="the built-in target that was calibrated")
    seconds: float = Field(description="duration of this run")
    families: list[Agreement]
    total: Agreement
    kernels: list[KernelTime]
    profile: str = Field(description="text of the target file, TOML")
