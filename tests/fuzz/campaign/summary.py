"""The numbers of a campaign, from the lines of one or more stores."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

NIGHT = 8 * 3600 * 2
"""Seconds of processor time of a night: 8 hours on 2 cores."""
MANY = 100_000


@dataclass
class PartSummary:
    """The numbers of a part.

    Attributes:
        name: its name.
        kinds: the number of examples by outcome.
        failures: the lines of failures.
        seeds: the seeds that are done.
        cpu: seconds of processor time of its tasks, without preparation.
        preparation: seconds of processor time of its preparation, once per worker.
    """

    name: str
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    seeds: set[int] = field(default_factory=set)
    cpu: float = 0.0
    preparation: float = 0.0

    @property
    def examples(self) -> int:
        """The number of examples."""
        return self.kinds.total()

    @property
    def rate(self) -> float:
        """Examples per second of processor time."""
        return self.examples / self.cpu if self.cpu else 0.0

    @property
    def in_a_night(self) -> int:
        """The estimated number of examples of a night in which nothing else runs."""
        return int(self.rate * NIGHT)

    @property
    def hours_for_many(self) -> float:
        """The estimated hours of processor time of 100,000 examples."""
        return MANY / self.rate / 3600 if self.rate else 0.0

    @property
    def done(self) -> str:
        """The seeds that are done, as ranges."""
        return ranges(sorted(self.seeds))


@dataclass
class Summary:
    """The numbers of a campaign.

    Attributes:
        sessions: the versions, the machine and the settings of each start of the command.
        parts: the numbers of each part.
    """

    sessions: list[dict[str, Any]]
    parts: dict[str, PartSummary]

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The failures of all parts."""
        return [line for part in self.parts.values() for line in part.failures]


def summarize(stores: Iterable[Iterable[dict[str, Any]]]) -> Summary:
    """The numbers of stores, which are shards of one campaign, or repeat each other: an example counts once."""
    sessions: list[dict[str, Any]] = []
    parts: dict[str, PartSummary] = {}
    for line in (line for lines in stores for line in lines):
        if "session" in line:
            sessions.append({"seconds": None, **line["session"]})
        if "ended" in line and sessions:
            sessions[-1]["seconds"] = line["seconds"]
        if "part" not in line and "task" not in line:
            continue
        given = line.get("task", line)
        part = parts.setdefault(given["part"], PartSummary(given["part"]))
        if "task" in line:
            part.cpu += given["cpu"]
            part.preparation += given["preparation"]
        elif given["seed"] not in part.seeds:
            part.seeds.add(given["seed"])
            part.kinds[given["kind"]] += 1
            if given.get("failure"):
                part.failures.append(line)
    return Summary(sessions, parts)


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text, such as "0-99, 120"; the last ranges are left out if there are many."""
    runs = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        found = [number for _, number in group]
        runs.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ", ".join(runs[:8]) + (f" and {len(runs) - 8} more ranges" if len(runs) > 8 else "")
