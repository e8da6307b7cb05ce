"""What a calibration has found, as data."""

from pydantic import BaseModel, ConfigDict, Field


class Agreement(BaseModel):
    """Predicted against measured times of some kernels.

    Attributes:
        family: what the kernels have in common.
        fitted: how many were fitted to.
        held_out: how many were not.
        fitted_error: median of |predicted - measured| / measured over the first.
        error: the same over the others; null if there are none.
        rank_correlation: Spearman's, over the others; null for fewer than four.
        error_before: median error over the others by the target as it was.
        rank_correlation_before: the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    fitted: int
    held_out: int
    fitted_error: float | None
    error: float | None
    rank_correlation: float | None
    error_before: float | None
    rank_correlation_before: float | None


class KernelTime(BaseModel):
    """One kernel: what it took, and what the calibrated target says; seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel: str
    family: str
    held_out: bool
    measured: float
    predicted: float
    predicted_before: float


class CalibrationReport(BaseModel):
    """All of it; the JSON of `layoutopt calibrate --json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layoutopt_version: str
    cpu: str
    onnxruntime_version: str
    threads: int
    date: str = Field(description="of the fit, YYYY-MM-DD")
    target: str = Field(description="the built-in target that was calibrated")
    quick: bool
    seconds: float = Field(description="that this run took")
    measured_before: int = Field(description="kernels taken over from a state file")
    families: list[Agreement]
    total: Agreement
    kernels: list[KernelTime]
    profile: str = Field(description="the target file, TOML")
