"""Runs examples in separate processes, because a damaged file may crash onnx or onnxruntime."""

import argparse
import multiprocessing
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from .op_samples import prepare

MAX_SECONDS = 120.0  # CPU time limit of one example
_MAX_WALL_SECONDS = 900.0  # wall time limit of one example, for busy machines
MAX_MEMORY = 6 << 30  # bytes of address space of a process; exceeding it raises a MemoryError
CHUNK = 250  # examples per process, which bounds memory leaks of the libraries
_TEXT = 2000  # characters of a detail


class Outcome(Protocol):
    """The outcome of an example."""

    @property
    def kind(self) -> str:
        """The kind of outcome, one word."""

    @property
    def detail(self) -> str:
        """Details."""

    @property
    def is_failure(self) -> bool:
        """Whether the example failed."""


@dataclass(frozen=True)
class Crash:
    """The outcome of an example that crashed its process or exceeded a time limit."""

    kind: str
    detail: str = ""
    is_failure: bool = True


@dataclass
class Worker:
    """A worker process with its remaining seeds."""

    process: BaseProcess
    pipe: Connection
    rest: list[int]
    since: float
    is_over: bool = False

    @property
    def seed(self) -> int:
        """The seed of the current example."""
        return self.rest[0]


def outcomes(
    examine: Callable[[int], Outcome], seeds: Sequence[int], processes: int = 1, chunk: int = CHUNK
) -> Iterator[tuple[int, Outcome]]:
    """The outcomes of all seeds, in any order; a process runs `chunk` of them."""
    context = multiprocessing.get_context("fork")
    chunks = [list(seeds[at : at + chunk]) for at in range(0, len(seeds), chunk)][::-1]
    running: list[Worker] = []
    while chunks or running:
        while chunks and len(running) < processes:
            ours, theirs = context.Pipe(duplex=False)
            rest = chunks.pop()
            process = context.Process(target=_work, args=(examine, rest, theirs), daemon=True)
            process.start()
            theirs.close()
            running.append(Worker(process, ours, rest, time.monotonic()))
        multiprocessing.connection.wait([each.pipe for each in running], timeout=1.0)
        for each in list(running):
            yield from _received(each)
            ended = _crash(each)
            if ended is None:
                continue
            running.remove(each)
            if each.rest:
                yield each.seed, ended
                chunks.append(each.rest[1:])
                chunks = [each for each in chunks if each]


def in_separate_process(examine: Callable[[], Outcome]) -> Outcome:
    """The outcome of one example in a separate process."""
    ((_, outcome),) = outcomes(lambda seed: examine(), [0])
    return outcome


def _received(running: Worker) -> Iterator[tuple[int, Outcome]]:
    try:
        while running.pipe.poll():
            seed, outcome = running.pipe.recv()
            assert seed == running.seed
            running.rest.pop(0)
            running.since = time.monotonic()
            yield seed, outcome
    except EOFError:
        running.is_over = True
        running.process.join()


def _crash(running: Worker) -> Crash | None:
    """The reason why a process has ended; None if it runs."""
    if not running.is_over and time.monotonic() - running.since > _MAX_WALL_SECONDS:
        running.process.kill()
        running.process.join()
        return Crash("hangs", f"after {_MAX_WALL_SECONDS:.0f} s")
    if not running.is_over:
        return None
    code = running.process.exitcode or 0
    if code == -signal.SIGPROF:
        return Crash("hangs", f"after {MAX_SECONDS:.0f} s of the processor")
    name = signal.Signals(-code).name if code < 0 else f"exit {code}"
    return Crash("killed", name)


def _work(examine: Callable[[int], Outcome], seeds: Sequence[int], pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)  # messages of C++ libraries before they abort
    for seed in seeds:
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        pipe.send((seed, examine(seed)))


def main(
    name: str,
    examine: Callable[[int], Outcome],
    keep: Callable[[int, Outcome, Path], None],
    explain: Callable[[int, Outcome], Outcome] = lambda seed, outcome: outcome,
    chunk: int = CHUNK,
    prepare: Callable[[], None] = prepare,
) -> int:
    """The command line of a fuzzer; returns 1 if an example failed. `prepare` runs once before processes start."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz.{name}")
    parser.add_argument("--examples", type=int, default=1000, metavar="N", help="number of examples")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="first seed; each seed is one example")
    parser.add_argument("--processes", type=int, default=1, metavar="P")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="save reduced failures in this folder")
    arguments = parser.parse_args()
    prepare()
    start, counts, failures = time.monotonic(), Counter[str](), 0
    seeds = range(arguments.seed, arguments.seed + arguments.examples)
    for done, (seed, outcome) in enumerate(outcomes(examine, seeds, arguments.processes, chunk), 1):
        if isinstance(outcome, Crash):
            outcome = explain(seed, outcome)
        counts[outcome.kind] += 1
        if outcome.is_failure:
            failures += 1
            print(f"{seed}  {outcome.kind}  {outcome.detail[:_TEXT]}", flush=True)
            if arguments.keep is not None:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                keep(seed, outcome, arguments.keep)
        if done % 1000 == 0 or done == arguments.examples:
            each = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
            print(f"{done} examples in {time.monotonic() - start:.0f} s: {each}", flush=True)
    return 1 if failures else 0
