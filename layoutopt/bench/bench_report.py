"""The report of a benchmark: the schema of `bench --json`.

New fields keep the schema version; a removed field or a changed meaning increments it.
"""

from pydantic import Field

from layoutopt.report.schema import ReportModel
from layoutopt.timing.statistics import Ratio

SCHEMA_VERSION = 6


class InputReport(ReportModel):
    """One input of a model."""

    name: str
    dtype: str
    shape: list[int]
    given: bool = Field(description="whether its values were given; if not, they are random")


class ModelReport(ReportModel):
    """One model in one runtime."""

    label: str
    model: str
    runtime: str
    runtime_version: str
    inputs: list[InputReport]
    seconds: float = Field(
        description="per run, of the processor with one thread in onnxruntime; the median of the blocks"
    )
    speed_up: Ratio | None = Field(description="null for the first, which is the baseline")
    creation_seconds: float = Field(description="from the file to a session; the median of the blocks")
    creation_speed_up: float | None = Field(description="the median of the ratios within the blocks")
    reorder_share: float = Field(description="fraction of the time of a run in Transposes and reorders")


class MachineReport(ReportModel):
    """The machine and the load of the benchmark on it."""

    cpu: str
    cpus: int = Field(description="that the process may use")
    threads: int
    pinned_to: int | None = Field(description="the CPU that the process was pinned to")


class BenchReport(ReportModel, extra="ignore"):
    """The results of one benchmark."""

    schema_version: int = SCHEMA_VERSION
    layoutopt_version: str
    machine: MachineReport
    seed: int
    dims: dict[str, int] = Field(description="sizes of the symbolic dimensions")
    blocks: int = Field(description="each with new sessions of all models")
    rounds: int = Field(description="of each model, in all blocks together")
    null: Ratio = Field(description="the baseline against itself")
    models: list[ModelReport]
    warnings: list[str] = Field(description="caveats: reasons why the numbers may be misleading")
