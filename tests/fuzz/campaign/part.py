"""Part: a source of examples."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .isolation import CHUNK, DEFAULT_LIMITS, Limits, Outcome


def _nothing() -> None:
    """Prepare nothing."""


def _as_it_is(seed: int, outcome: Outcome) -> Outcome:
    """The outcome of a crash without further examination."""
    return outcome


@dataclass(frozen=True)
class Part:
    """A source of examples.

    Attributes:
        title: the examples in a few words, for the report.
        criterion: when an example passes, in one sentence.
        examine: the outcome of a seed, in a process that it may crash.
        keep: writes the files of a failing example into a folder, reduced if possible, and returns its command for users,
            if there is one.
        prepare: loads what all examples share, once per worker.
        explain: the outcome of an example that crashed its process, with the program that is to blame.
        size: the number of examples; None if there is no end.
        chunk: examples per process.
        limits: those of one example.
    """

    title: str
    criterion: str
    examine: Callable[[int], Outcome]
    keep: Callable[[int, Outcome, Path], None]
    prepare: Callable[[], None] = _nothing
    explain: Callable[[int, Outcome], Outcome] = _as_it_is
    size: int | None = None
    chunk: int = CHUNK
    limits: Limits = DEFAULT_LIMITS


@dataclass(frozen=True)
class Verdict:
    """The outcome of an example.

    Attributes:
        kind: the kind of outcome in a few words.
        detail: what differs, or the error.
        is_failure: whether the example failed.
    """

    kind: str
    detail: str = ""
    is_failure: bool = False
