"""What was measured, as data: the schema of `bench --json`.

The schema has a version. Fields are added under the same version; a field that changes its meaning or goes raises it.
"""

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1

Verdict: TypeAlias = Literal["faster", "slower", "no difference shown"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Spread(_Frozen):
    """A median, and how far it is to be trusted."""

    median: float
    lower_quartile: float
    upper_quartile: float
    low: float = Field(description="lower end of the confidence interval, by order statistics of the blocks' medians")
    high: float = Field(description="upper end of it")
    confidence: float = Field(description="what the interval covers; 0.97 with six blocks, less with fewer")
    count: int


class Ratio(Spread):
    """The baseline's time over this model's, within each round: above 1 is faster."""

    verdict: Verdict = Field(description="whether the whole confidence interval is above or below 1")


class OpTime(_Frozen):
    """All nodes of one op type."""

    op: str
    nodes: float = Field(description="executed per run")
    seconds: float = Field(description="per run, without what runs in the node's subgraphs")
    moves_data: bool = Field(description="whether it only copies elements and computes nothing")


class Profile(_Frozen):
    """Where the time of the kernels goes, from a session of its own with profiling on."""

    runs: int
    seconds: float = Field(description="in kernels, per run")
    movement_share: float = Field(description="the part of it in ops that only copy elements")
    reorder_share: float = Field(description="the part of it in Transpose, ReorderInput and ReorderOutput alone")
    ops: list[OpTime] = Field(description="the slowest first")


class Memory(_Frozen):
    """Of a fresh process that loads the model and runs it once."""

    peak_bytes: int = Field(description="largest resident set")
    bytes_before: int = Field(description="the same before the model is loaded: Python, the runtime and the inputs")


class InputReport(_Frozen):
    """One input of a model."""

    name: str
    dtype: str
    shape: list[int]
    given: bool = Field(description="whether its values were given; if not, they are random")


class ModelReport(_Frozen):
    """One model in one runtime."""

    label: str
    model: str
    runtime: str
    runtime_version: str
    inputs: list[InputReport]
    time: Spread = Field(description="seconds per run")
    speed_up: Ratio | None = Field(description="null for the first, which is the baseline")
    creation: Spread = Field(description="seconds from the file to a session")
    creation_speed_up: Ratio | None
    memory: Memory
    profile: Profile
    samples: list[list[float]] = Field(description="seconds of every run, in the order of the rounds, block by block")


class MachineReport(_Frozen):
    """What it ran on."""

    cpu: str
    cpus: int = Field(description="that the process may use")
    threads: int
    pinned_to: int | None = Field(description="the CPU that the process was confined to")
    cpu_share: float = Field(description="CPU time over wall time of the timed rounds; 1 is one CPU all the time")


class BenchReport(_Frozen):
    """Everything that is known about one benchmark."""

    schema_version: int = SCHEMA_VERSION
    layoutopt_version: str
    machine: MachineReport
    seed: int
    dims: dict[str, int] = Field(description="the symbolic dimensions, and what they were")
    warm_up: int = Field(description="rounds at the start of a block that do not count")
    blocks: int = Field(description="each with new sessions of all models")
    rounds: int = Field(description="timed, in all blocks together; every model runs once in each")
    seconds: float = Field(description="wall time of the timed rounds")
    models: list[ModelReport]
    warnings: list[str] = Field(description="why the numbers may mean less than they seem to")
