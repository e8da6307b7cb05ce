"""The explanation of a plan, the data of `layoutopt explain --json`.

Seconds and percentages are estimates at the prices of the target. An extra time is the difference between the best plan that
meets a condition and the plan itself: a marginal price. A saved time is the difference in the other direction.
"""

from typing import Literal

from pydantic import Field

from layoutopt.report.schema import DimReport, NoteReport, PlanReport, ReportModel

AlternativeKind = Literal["without the conversion", "other format"]
ChangeMethod = Literal["planned again", "bound"]
ChangeKind = Literal["kernel", "rule", "opset", "interface", "pin", "channels"]


class Participant(ReportModel):
    """An op, a graph input or a graph output that produces or reads a tensor, with its format there."""

    name: str
    kind: str = Field(description="op type, or one of: graph input, graph output, body boundary")
    body: str = Field(default="", description="the body that it is in: op and attribute; empty in the main graph")
    format: str = Field(description="the storage that it produces or reads in the plan")
    candidates: tuple[str, ...] = Field(description="formats of the tensor that it may choose; one if it has no choice")


class Price(ReportModel):
    """The price of the best plan that meets a condition, on the integer program of the plan."""

    extra_seconds: float | None = Field(
        description="estimated time beyond that of the plan; null if there is no such plan"
    )
    extra_percent: float | None = Field(description="the same, in percent of the estimated time of the plan")
    is_proven: bool = Field(description="whether no plan that meets the condition is estimated to be faster")


class Alternative(Price):
    """The best plan that meets a condition."""

    kind: AlternativeKind
    condition: str
    other_conversions: tuple[str, ...] = Field(description="conversions of that plan that the plan does not have")


class ModelChange(ReportModel):
    """A change outside of the plan, with the estimated time that it saves."""

    kind: ChangeKind
    what: str
    reason: str
    method: ChangeMethod = Field(
        default="bound",
        description="'planned again': the price of a plan of the changed model; 'bound': no plan of it can save more",
    )
    saved_seconds: float | None = Field(description="null if it is not priced")
    saved_percent: float | None


class ConversionReport(ReportModel):
    """A layout conversion of the plan: a cast, or a Transpose or Reshape of the model that moves bytes."""

    kind: str = Field(description="'cast', or the op type of the model's op that moves the bytes")
    name: str = Field(description="the tensor of a cast, or the name of the op")
    tensor: str
    body: str = ""
    src: str
    dst: str
    axes: str = Field(description="logical axes of the tensor, in logical order, as its formats name them")
    nbytes: int = Field(description="bytes that it reads and writes in one run")
    seconds: float = Field(description="its estimated time, of all its runs")
    percent: float = Field(description="the same, in percent of the estimated time of the plan")
    producer: Participant = Field(
        description="the op in front of the views, or the graph input, with the format of its result"
    )
    views: tuple[str, ...] = Field(
        default=(), description="view ops between the producer and the tensor, which move nothing"
    )
    consumers: tuple[Participant, ...]
    is_priced: bool = Field(description="whether the alternatives and remedies are priced; see `limit`")
    alternatives: tuple[Alternative, ...] = ()
    remedies: tuple[ModelChange, ...] = ()


class FormatChoice(Price):
    """A candidate of a tensor or op, and the best plan with it."""

    format: str = Field(description="the format of a tensor, or the formats of the inputs and outputs of an op")
    is_chosen: bool
    kernel_seconds: float = Field(description="estimated time of the op that has this format")


class ItemExplanation(ReportModel):
    """The formats of one tensor or one op."""

    kind: Literal["tensor", "op"]
    name: str
    op_type: str = Field(default="", description="empty for a tensor")
    body: str = ""
    type: str = Field(default="", description="element type and logical shape of a tensor; empty for an op")
    before: str
    after: str
    note: str = Field(default="", description="why there is no choice; empty if there is one")
    producer: Participant | None = None
    consumers: tuple[Participant, ...] = ()
    choices: tuple[FormatChoice, ...] = ()
    more_choices: int = Field(default=0, description="candidates that are not priced, because of the limit")


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
    changes: tuple[ModelChange, ...] = Field(
        default=(), description="at most five changes to the model, the best first"
    )
    item: ItemExplanation | None = None
    notes: tuple[NoteReport, ...] = Field(
        default=(), description="repairs of the model (source 'read'), and what limits the prices (source 'plan')"
    )
