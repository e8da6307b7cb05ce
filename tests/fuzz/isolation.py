"""Runs examples in separate processes, because a damaged file may crash onnx or onnxruntime."""

import gc
import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

CHUNK = 250  # examples per process, which bounds memory leaks of the libraries
_OVER = -1  # in place of a seed: the process has examined all that it is to examine


@dataclass(frozen=True)
class Limits:
    """The limits of one example."""

    cpu: float = 120.0  # seconds of the processor
    wall: float = 900.0  # seconds, for busy machines
    memory: int = 6 << 30  # bytes of address space


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Verdict:
    """The outcome of an example."""

    kind: str
    detail: str = ""
    is_failure: bool = False
    is_crash: bool = False  # the example has ended its process or exceeded a limit


@dataclass
class _Child:
    """A process with its remaining seeds."""

    process: BaseProcess
    pipe: Connection
    rest: list[int]
    since: float
    is_over: bool = False


def outcomes(
    examine: Callable[[int], Verdict],
    seeds: Sequence[int],
    chunk: int = CHUNK,
    limits: Limits = DEFAULT_LIMITS,
    until: float = inf,
) -> Iterator[tuple[int, Verdict]]:
    """The outcome of every seed; a process runs `chunk` of them, one process at a time, and none starts after `until`."""
    rest = list(seeds)
    while rest and time.monotonic() < until:
        child = _started(examine, rest[:chunk], limits, until)
        rest = rest[chunk:]
        try:
            yield from _outcomes_of(child, limits)
        finally:
            if child.process.is_alive():
                child.process.kill()
            child.process.join()
        if not child.is_over:
            yield child.rest[0], _crash(child, limits)
            rest = child.rest[1:] + rest


def in_separate_process(examine: Callable[[], Verdict], limits: Limits = DEFAULT_LIMITS) -> Verdict:
    """The outcome of one example in a separate process."""
    ((_, outcome),) = outcomes(lambda seed: examine(), [0], limits=limits)
    return outcome


def _started(examine: Callable[[int], Verdict], seeds: list[int], limits: Limits, until: float) -> _Child:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(examine, seeds, theirs, limits, until))
    process.start()
    theirs.close()
    return _Child(process, ours, seeds, time.monotonic())


def _outcomes_of(child: _Child, limits: Limits) -> Iterator[tuple[int, Verdict]]:
    """The outcomes that a process sends, until it is over, has ended or exceeds the wall time of an example."""
    while child.pipe.poll(max(0.0, child.since + limits.wall - time.monotonic())):
        try:
            seed, outcome = child.pipe.recv()
        except EOFError:
            child.process.join()
            return
        if seed == _OVER:
            child.is_over = True
            return
        assert seed == child.rest.pop(0)
        child.since = time.monotonic()
        yield seed, outcome


def _crash(child: _Child, limits: Limits) -> Verdict:
    """The reason why a process has ended before it was over."""
    code = child.process.exitcode or 0
    if time.monotonic() - child.since >= limits.wall:
        return Verdict("hangs", f"after {limits.wall:.0f} s", is_failure=True, is_crash=True)
    if code == -signal.SIGPROF:
        return Verdict("hangs", f"after {limits.cpu:.0f} s of the processor", is_failure=True, is_crash=True)
    name = signal.Signals(-code).name if code < 0 else f"exit {code}"
    return Verdict("killed", name, is_failure=True, is_crash=True)


def _work(
    examine: Callable[[int], Verdict], seeds: Sequence[int], pipe: Connection, limits: Limits, until: float
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.freeze()  # what the examples share is not searched for garbage again and again
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)  # messages of C++ libraries before they abort
    for seed in list(seeds):
        if time.monotonic() >= until:
            break
        signal.setitimer(signal.ITIMER_PROF, limits.cpu)
        pipe.send((seed, examine(seed)))
    signal.setitimer(signal.ITIMER_PROF, 0)
    pipe.send((_OVER, None))
