"""The explanation of a plan, the data of `layoutopt explain --json`.

Seconds and percentages are estimates at the prices of the target. An extra time is the difference between the best plan that
meets a condition and the plan itself: a marginal price. A saved time is the difference in the other direction.
"""

from typing import Literal, TypeAlias

from pydantic import Field

from layoutopt.report.schema import DimReport, NoteReport, PlanReport, ReportModel

Side: TypeAlias = Literal["from", "to"]


class Participant(ReportModel):
    """An op, a graph input or a graph output that produces or reads a tensor, with its format there."""

    side: Side = Field(description="`from`: it produces the bytes; `to`: it reads the tensor")
    kind: str = Field(description="op type, or one of: graph or body input, graph or body output, constant")
    name: str
    format: str = Field(description="the storage that it produces or reads in the plan")
    candidates: tuple[str, ...] = Field(description="formats of the tensor that it may choose; one if it has no choice")


class Alternative(ReportModel):
    """The best plan that meets a condition, on the integer program of the plan."""

    condition: str = Field(description="for an item: the format of a tensor, or the formats of the operands of an op")
    extra_seconds: float | None = Field(
        description="estimated time beyond that of the plan; null if no plan meets the condition, or no time is left"
    )
    extra_percent: float | None = Field(description="the same, in percent of the estimated time of the plan")
    is_proven: bool = Field(description="whether no plan that meets the condition is estimated to be faster")
    kernel_seconds: float | None = Field(
        default=None, description="estimated time of the op that has the format; null for a conversion"
    )
    other_conversions: tuple[str, ...] = Field(description="conversions of that plan that the plan does not have")


class Remedy(ReportModel):
    """A change outside of the plan that removes a conversion, with a bound on the estimated time that it saves."""

    what: str
    reason: str = Field(description="why the conversion is needed without the change")
    saved_seconds: float | None = Field(description="null if it is not priced")
    saved_percent: float | None


class ConversionReport(ReportModel):
    """A layout conversion of the plan: a cast, or a Transpose or Reshape of the model that moves bytes."""

    tensor: str
    body: str = ""
    src: str
    dst: str
    axes: str = Field(description="logical axes of the tensor, in logical order, as its formats name them")
    bytes: int = Field(description="bytes that it reads and writes in one run")
    seconds: float = Field(description="its estimated time, of all its runs")
    percent: float = Field(description="the same, in percent of the estimated time of the plan")
    views: tuple[str, ...] = Field(
        default=(), description="view ops between the producer and the tensor, which move nothing"
    )
    ops: tuple[Participant, ...] = Field(description="the producer in front of the views, then the readers")
    is_priced: bool = Field(description="whether the alternatives and remedies are priced; see `limit`")
    alternatives: tuple[Alternative, ...] = ()
    remedies: tuple[Remedy, ...] = ()


class ItemExplanation(ReportModel):
    """The formats of one tensor or one op."""

    name: str
    kind: str = Field(description="the op type, or `tensor` with the element type and the logical shape")
    body: str = ""
    before: str
    after: str
    note: str = Field(default="", description="why there is no choice; empty if there is one")
    ops: tuple[Participant, ...] = Field(default=(), description="of a tensor: its producer, then its readers")
    alternatives: tuple[Alternative, ...] = Field(default=(), description="the candidates; that of the plan is first")
    more_candidates: int = Field(default=0, description="candidates that are not priced, because of the limit")


class Explanation(ReportModel, extra="ignore"):
    """The explanation of the plan of a model, or of one tensor or op in it."""

    layoutopt_version: str
    model: str
    target: str
    runtime: str
    dialect: str
    dims: tuple[DimReport, ...] = ()
    reason: str = Field(default="", description="why there is no plan to explain; empty if there is one")
    plan: PlanReport | None
    limit: int = Field(description="the largest number of conversions, or of candidates of an item, that are priced")
    conversions: tuple[ConversionReport, ...] = Field(
        default=(), description="all with a cost, the most expensive first"
    )
    free_conversions: int = Field(default=0, description="number of further conversions, which cost nothing")
    item: ItemExplanation | None = None
    notes: tuple[NoteReport, ...] = Field(
        default=(), description="repairs of the model (source 'read'), and what limits the prices (source 'plan')"
    )
