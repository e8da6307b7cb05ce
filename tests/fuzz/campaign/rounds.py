"""Rounds of tasks over a cluster, until the time is over or all examples are done.

A round has tasks for some minutes, each of at most a minute. The parts get time by their shares: a part that has used less than
its share so far gets more tasks. Seeds of a task that are not done in its time are pending again.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from layoutopt.batch import Cluster, Failure

from . import client
from .pending import Pending

ROUND = 600.0  # seconds of a round
TASK = 60.0  # seconds after which a task begins no example
_TASKS = 10  # per worker and round
_FIRST = 1.0  # assumed seconds of an example, for a part without examples so far

Line = dict[str, Any]


class PartError(Exception):
    """A part cannot be used, in one line."""


@dataclass
class Run:
    """The state of a campaign.

    Attributes:
        cluster: runs the tasks.
        pending: the seeds of each part.
        shares: the share of the time of each part.
        deadline: the `time.time()` at which the campaign ends.
        append: stores lines.
        spent: the seconds that tasks of each part have taken.
        prepared: the seconds thereof that the preparation has taken.
        done: the number of examples of each part.
    """

    cluster: Cluster
    pending: Mapping[str, Pending]
    shares: Mapping[str, int]
    deadline: float
    append: Callable[[list[Line]], None]
    spent: Counter[str] = field(default_factory=Counter)
    prepared: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)

    def add(self, line: Line) -> None:
        """Count a line of the store."""
        if "task" in line:
            task = line["task"]
            self.spent[task["part"]] += task["wall"]
            self.prepared[task["part"]] += task["preparation"]
        elif "part" in line:
            self.done[line["part"]] += 1

    def rounds(self) -> Iterator[list[Line]]:
        """Run rounds, and return the failures of each.

        Raises:
            PartError: the examples of a part cannot be examined.
        """
        while (seconds := min(ROUND, self.deadline - time.time())) > 0 and (tasks := self._tasks(seconds)):
            before = self.done.total()
            yield self._failures_of(tasks)
            if self.done.total() == before and time.time() < self.deadline:
                raise PartError("no task has ended with an outcome: the servers of the workers are killed")

    def _tasks(self, seconds: float) -> list[Line]:
        """The requests of a round, those of parts with long examples first, so that no worker waits at its end."""
        size = min(TASK, seconds / _TASKS)
        total = self.cluster.num_workers * seconds + sum(self.spent[name] for name in self.pending)
        weights = sum(self.shares[name] for name in self.pending)
        tasks: list[Line] = []
        for name in sorted(self.pending, key=self._cost, reverse=True):
            target = total * self.shares[name] / weights - self.spent[name]
            tasks += self._tasks_of(name, max(1, round(target / size)), size)
        return tasks

    def _tasks_of(self, name: str, count: int, seconds: float) -> Iterator[Line]:
        for _ in range(count):
            seeds = self.pending[name].take(ceil(1.2 * seconds / self._cost(name)))
            if seeds:
                yield {"part": name, "seeds": seeds, "seconds": seconds, "until": self.deadline}

    def _cost(self, name: str) -> float:
        """Seconds of an example."""
        return max((self.spent[name] - self.prepared[name]) / self.done[name], 1e-3) if self.done[name] else _FIRST

    def _failures_of(self, tasks: list[Line]) -> list[Line]:
        """Run tasks, store their outcomes, and return the failures."""
        failures: list[Line] = []
        for index, answer in self.cluster.map_unordered(client.run, tasks):
            task = tasks[index]
            if isinstance(answer, Failure) and not answer.is_worker_lost:
                raise PartError(f"part {task['part']}: its task fails in the cluster: {answer.reason}")
            if isinstance(answer, Failure) or "ended" in answer:
                self.pending[task["part"]].give_back(task["seeds"])
            elif "error" in answer:
                raise PartError(f"part {task['part']}: {answer['error']}")
            else:
                failures += self._stored(task, answer)
        return failures

    def _stored(self, task: Line, answer: Line) -> list[Line]:
        """Store the outcomes of a task, and return the failures."""
        found: list[Line] = answer["examples"]
        used = {key: answer[key] for key in ("wall", "cpu", "preparation")}
        lines = [*found, {"task": {"part": task["part"], **used}}]
        self.append(lines)
        for line in lines:
            self.add(line)
        ended = {line["seed"] for line in found}
        self.pending[task["part"]].give_back(seed for seed in task["seeds"] if seed not in ended)
        return [line for line in found if line.get("failure")]
