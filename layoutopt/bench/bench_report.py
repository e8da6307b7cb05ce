"""The report of a benchmark: the schema of `bench --json`.

New fields keep the schema version; a removed field or a changed meaning increments it.
"""

from pydantic import Field

from layoutopt.report.schema import ReportModel
from layoutopt.timing.statistics import Estimate, Ratio

SCHEMA_VERSION = 2


class OpTime(ReportModel):
    """All nodes of one op type."""

    op: str
    nodes: float = Field(description="executed per run")
    seconds: float = Field(description="per run, without the nodes of subgraphs")
    moves_data: bool = Field(description="whether it only copies elements and computes nothing")


class Profile(ReportModel):
    """Time of the kernels per op type, from a separate session with profiling."""

    runs: int
    seconds: float = Field(description="in kernels, per run")
    movement_share: float = Field(description="fraction in ops that only copy elements")
    reorder_share: float = Field(description="fraction in Transpose, ReorderInput and ReorderOutput")
    ops: list[OpTime] = Field(description="the slowest first")


class AnonymousMemory(ReportModel):
    """Memory of a process that no file backs: heap and stacks, without mapped files, which the system can drop and share."""

    before: int = Field(description="bytes before the model is loaded: Python, the runtime and the inputs")
    one_session: int = Field(description="bytes after a session was created and run once")
    sessions: int = Field(description="the number of sessions of `several_sessions`")
    several_sessions: int = Field(description="bytes after that many sessions were created and run once each")


class PeakMemory(ReportModel):
    """Memory of a new process that loads the model and runs it once."""

    peak_bytes: int = Field(description="largest resident set")
    bytes_before: int = Field(description="the same before the model is loaded: Python, the runtime and the inputs")
    anonymous: AnonymousMemory | None = Field(default=None, description="null unless it was asked for")


class InputReport(ReportModel):
    """One input of a model."""

    name: str
    dtype: str
    shape: list[int]
    given: bool = Field(description="whether its values were given; if not, they are random")


class KernelKind(ReportModel):
    """All executed kernels of one op type."""

    op: str
    nodes: int
    estimated: float = Field(description="seconds of a run: the sum of the kernels' times, each timed alone")
    traced: float = Field(description="seconds of a run: the sum of their times in a traced run")


class KernelDifference(KernelKind):
    """All executed kernels of one op type and equal shapes."""

    shapes: str = Field(description="element types and shapes of the inputs")


class Explanation(ReportModel):
    """Estimated against measured kernel times of a model in onnxruntime."""

    estimated: float = Field(description="seconds of all kernels, each timed alone")
    traced: float = Field(description="seconds of all kernels in a traced run")
    not_alone: float = Field(
        description="the part of `estimated` that is traced: ops with bodies, and non-tensor operands"
    )
    kinds: list[KernelKind] = Field(description="the slowest first")
    differences: list[KernelDifference] = Field(description="those with the largest difference of estimated and traced")


class ModelReport(ReportModel):
    """One model in one runtime."""

    label: str
    model: str
    runtime: str
    runtime_version: str
    inputs: list[InputReport]
    time: Estimate = Field(description="seconds per run")
    speed_up: Ratio | None = Field(description="null for the first, which is the baseline")
    creation: Estimate = Field(description="seconds from the file to a session")
    creation_speed_up: Ratio | None
    memory: PeakMemory
    profile: Profile
    explanation: Explanation | None = Field(default=None, description="null unless it was asked for")
    samples: list[list[float]] = Field(description="seconds of every run, in the order of the rounds, block by block")


class MachineReport(ReportModel):
    """The machine and the load of the benchmark on it."""

    cpu: str
    cpus: int = Field(description="that the process may use")
    threads: int
    pinned_to: int | None = Field(description="the CPU that the process was pinned to")
    cpu_share: float = Field(description="CPU time over wall time of the timed rounds; 1 is one CPU all the time")


class BenchReport(ReportModel, extra="ignore"):
    """The results of one benchmark."""

    schema_version: int = SCHEMA_VERSION
    layoutopt_version: str
    machine: MachineReport
    seed: int
    dims: dict[str, int] = Field(description="sizes of the symbolic dimensions")
    warm_up: int = Field(description="rounds at the beginning of a block that are not timed")
    blocks: int = Field(description="each with new sessions of all models")
    rounds: int = Field(description="timed, in all blocks together; every model runs once in each")
    seconds: float = Field(description="wall time of the timed rounds")
    null: Ratio | None = Field(description="the baseline against itself; null with fewer than two rounds in a block")
    models: list[ModelReport]
    warnings: list[str] = Field(description="caveats: reasons why the numbers may be misleading")
