"""The time limit of planning: one clock for candidates, formulation, solver, regret and least moves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, TypeAlias, TypeVar

_T = TypeVar("_T")

Stage: TypeAlias = Literal["candidates", "formulation", "solver"]
"""A stage of planning, by the name that reports use."""


class OutOfTimeError(Exception):
    """The time limit was reached in a stage that has no plan to return.

    Args:
        stage: the stage.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.stage: Stage = stage


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of the time for planning.

    Args:
        limit: seconds from now; None for no limit.
    """

    limit: float | None = None
    start: float = field(default_factory=monotonic)

    @property
    def left(self) -> float | None:
        """Seconds; None where there is no limit."""
        return None if self.limit is None else max(0.0, self.start + self.limit - monotonic())

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.left == 0.0

    def check(self, stage: Stage) -> None:
        """Stop a stage that has no plan to return.

        Raises:
            OutOfTimeError: no time is left.
        """
        if self.is_over:
            raise OutOfTimeError(stage)


NO_DEADLINE = Deadline()


def within(deadline: Deadline, formulate: Callable[[Deadline, bool], _T]) -> tuple[_T, Stage | None]:
    """A formulation, and the stage in which the deadline ended its collection of formats, if it did.

    Args:
        deadline: the end of the time for planning.
        formulate: called with a deadline, and with whether the formats of kernels are collected. Without these it takes time in
            proportion to the size of the graph, and no limit.
    """
    try:
        return formulate(deadline, True), None
    except OutOfTimeError as error:
        return formulate(NO_DEADLINE, False), error.stage
