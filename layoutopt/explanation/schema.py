"""The explanation of a plan, the data of `layoutopt explain --json`.

Seconds and percentages are estimates at the prices of the target. An extra time is the difference between the best plan that
meets a condition and the plan itself: a marginal price. A saved time is the difference in the other direction.
"""

from typing import Literal, TypeAlias

from layoutopt.report.schema import DimReport, NoteReport, PlanReport, ReportModel

Side: TypeAlias = Literal["from", "to"]


class Participant(ReportModel):
    """An op, a graph input or a graph output that produces or reads a tensor, with its format there.

    Attributes:
        side: `from`: it produces the bytes; `to`: it reads the tensor.
        kind: op type, or one of: graph or body input, graph or body output, constant.
        format: the storage that it produces or reads in the plan.
        candidates: formats of the tensor that it may choose; one if it has no choice.
    """

    side: Side
    kind: str
    name: str
    format: str
    candidates: tuple[str, ...]


class Alternative(ReportModel):
    """The best plan that meets a condition, on the integer program of the plan.

    Attributes:
        condition: for an item: the format of a tensor, or the formats of the operands of an op.
        extra_seconds: estimated time beyond that of the plan; null if no plan meets the condition, or no time is left.
        extra_percent: the same, in percent of the estimated time of the plan.
        is_proven: whether no plan that meets the condition is estimated to be faster.
        kernel_seconds: estimated time of the op that has the format; null for a conversion.
        other_conversions: conversions of that plan that the plan does not have.
    """

    condition: str
    extra_seconds: float | None
    extra_percent: float | None
    is_proven: bool
    kernel_seconds: float | None = None
    other_conversions: tuple[str, ...]


class Remedy(ReportModel):
    """A change outside of the plan that removes a conversion, with a bound on the estimated time that it saves.

    Attributes:
        reason: why the conversion is needed without the change.
        saved_seconds: null if it is not priced.
    """

    what: str
    reason: str
    saved_seconds: float | None
    saved_percent: float | None


class ConversionReport(ReportModel):
    """A layout conversion of the plan: a cast, or a Transpose or Reshape of the model that moves bytes.

    Attributes:
        axes: logical axes of the tensor, in logical order, as its formats name them.
        bytes: bytes that it reads and writes in one run.
        seconds: its estimated time, of all its runs.
        percent: the same, in percent of the estimated time of the plan.
        views: view ops between the producer and the tensor, which move nothing.
        ops: the producer in front of the views, then the readers.
        is_priced: whether the alternatives and remedies are priced; see `limit`.
    """

    tensor: str
    body: str = ""
    src: str
    dst: str
    axes: str
    bytes: int
    seconds: float
    percent: float
    views: tuple[str, ...] = ()
    ops: tuple[Participant, ...]
    is_priced: bool
    alternatives: tuple[Alternative, ...] = ()
    remedies: tuple[Remedy, ...] = ()


class ItemExplanation(ReportModel):
    """The formats of one tensor or one op.

    Attributes:
        kind: the op type, or `tensor` with the element type and the logical shape.
        note: why there is no choice; empty if there is one.
        ops: of a tensor: its producer, then its readers.
        alternatives: the candidates; that of the plan is first.
        more_candidates: candidates that are not priced, because of the limit.
    """

    name: str
    kind: str
    body: str = ""
    before: str
    after: str
    note: str = ""
    ops: tuple[Participant, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    more_candidates: int = 0


class Explanation(ReportModel, extra="ignore"):
    """The explanation of the plan of a model, or of one tensor or op in it.

    Attributes:
        reason: why there is no plan to explain; empty if there is one.
        limit: the largest number of conversions, or of candidates of an item, that are priced.
        conversions: all with a cost, the most expensive first.
        free_conversions: number of further conversions, which cost nothing.
        notes: repairs of the model (source 'read'), and what limits the prices (source 'plan').
    """

    layoutopt_version: str
    model: str
    target: str
    runtime: str
    dialect: str
    dims: tuple[DimReport, ...] = ()
    reason: str = ""
    plan: PlanReport | None
    limit: int
    conversions: tuple[ConversionReport, ...] = ()
    free_conversions: int = 0
    item: ItemExplanation | None = None
    notes: tuple[NoteReport, ...] = ()
