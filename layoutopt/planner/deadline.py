"""The time limit of planning, which all its stages share: candidates, formulation, solver, regret and least moves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, TypeAlias, TypeVar

_T = TypeVar("_T")

PlanningStage: TypeAlias = Literal["candidates", "formulation", "solver"]
"""A stage of planning, by the name that reports use."""


class OutOfTimeError(Exception):
    """The time limit was reached in a stage that has no plan to return.

    Args:
        stage: the stage.
    """

    def __init__(self, stage: PlanningStage) -> None:
        super().__init__(stage)
        self.stage: PlanningStage = stage


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of the time for planning.

    Args:
        limit: seconds from now; None for no limit.
    """

    limit: float | None = None
    start: float = field(default_factory=monotonic)

    @property
    def remaining(self) -> float | None:
        """The remaining seconds; None if there is no limit."""
        return None if self.limit is None else max(0.0, self.start + self.limit - monotonic())

    @property
    def has_passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining == 0.0

    def check(self, stage: PlanningStage) -> None:
        """Stop a stage that has no plan to return.

        Raises:
            OutOfTimeError: no time is left.
        """
        if self.has_passed:
            raise OutOfTimeError(stage)


NO_DEADLINE = Deadline()


def formulate_within(deadline: Deadline, formulate: Callable[[Deadline, bool], _T]) -> tuple[_T, PlanningStage | None]:
    """A formulation, and the stage that the deadline ended, if it did.

    Args:
        deadline: the end of the time for planning.
        formulate: called with a deadline, and with whether the formats of kernels are collected. If the deadline ends it, it is
            called again without a deadline and without these formats, in time linear in the size of the graph.
    """
    try:
        return formulate(deadline, True), None
    except OutOfTimeError as error:
        return formulate(NO_DEADLINE, False), error.stage
