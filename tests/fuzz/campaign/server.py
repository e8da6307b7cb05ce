"""A process that examines examples for one worker of a cluster: `python -m fuzz.campaign.server`.

It loads a part once, and runs its examples in children. Requests on stdin and replies on stdout are JSON, one per line.
"""

import base64
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from .isolation import Crash, Limits, Outcome, in_separate_process, outcomes
from .part import Part, Verdict
from .parts import part

_MEMORY = Path("/dev/shm")  # a file system in memory
_TEXT = 2000  # characters of a detail
_KEEPING = Limits(cpu=600.0, wall=600.0, memory=20 << 30)


@dataclass(frozen=True)
class _Timed:
    """An outcome, and the seconds of processor time of the example."""

    kind: str
    detail: str
    is_failure: bool
    seconds: float


@cache
def _prepared(name: str) -> Part:
    """A part whose examples can be examined."""
    found = part(name)
    found.prepare()
    return found


def _examine(given: Part, seed: int) -> _Timed:
    begin = time.process_time()
    try:
        found = given.examine(seed)
    except Exception as error:  # of the part itself
        found = Verdict("error of the campaign", f"{type(error).__name__}: {error}", is_failure=True)
    return _Timed(found.kind, found.detail[:_TEXT], found.is_failure, time.process_time() - begin)


def examples(name: str, seeds: Iterable[int], seconds: float, until: float) -> Iterator[dict[str, Any]]:
    """The outcomes of examples, none of which begins after `seconds`, or after the `time.time()` of `until`."""
    given = _prepared(name)
    until = time.monotonic() + min(seconds, until - time.time())
    for seed, found in outcomes(partial(_examine, given), list(seeds), given.chunk, given.limits, until):
        yield _record(name, seed, _explained(given, seed, found) if isinstance(found, Crash) else found)


def _explained(given: Part, seed: int, crash: Crash) -> Outcome:
    """The outcome of a crash, with the program that is to blame if that can be found out."""
    found = in_separate_process(lambda: given.explain(seed, crash), given.limits)
    return crash if isinstance(found, Crash) else found


def _record(name: str, seed: int, found: Outcome) -> dict[str, Any]:
    record: dict[str, Any] = {"part": name, "seed": seed, "kind": found.kind}
    if found.is_failure:
        record["failure"] = True
    if found.detail:
        record["detail"] = found.detail[:_TEXT]
    if isinstance(found, _Timed):
        record["cpu"] = round(found.seconds, 4)
    return record


def kept(name: str, seed: int, kind: str, detail: str) -> dict[str, str]:
    """The files of a failing example, base64-encoded."""
    given = _prepared(name)
    with tempfile.TemporaryDirectory() as folder:

        def keep() -> Verdict:
            given.keep(seed, Verdict(kind, detail, is_failure=True), Path(folder))
            return Verdict("kept")

        in_separate_process(keep, _KEEPING)
        paths = [path for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink()]
        return {str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode() for path in paths}


def reply(request: dict[str, Any]) -> dict[str, Any]:
    """The reply to a request; its key `error` is there if the part itself cannot be used."""
    begin, cpu = time.monotonic(), _cpu_seconds()
    preparation, found = 0.0, dict[str, Any]()
    try:
        if "seed" in request:
            found["files"] = kept(request["part"], request["seed"], request["kind"], request["detail"])
        elif time.time() >= request["until"]:
            found["examples"] = []
        else:
            _prepared(request["part"])
            preparation = _cpu_seconds() - cpu
            found["examples"] = list(examples(request["part"], request["seeds"], request["seconds"], request["until"]))
    except Exception as error:
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())}
    wall, used = time.monotonic() - begin, _cpu_seconds() - cpu - preparation
    return {**found, "wall": round(wall, 3), "cpu": round(used, 3), "preparation": round(preparation, 3)}


def _cpu_seconds() -> float:
    """The processor time of this process and of all that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    """Reply until there are no more requests."""
    replies = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(silence, descriptor)
    with tempfile.TemporaryDirectory(
        prefix="layoutopt-campaign-", dir=_MEMORY if _MEMORY.is_dir() else None
    ) as scratch:
        tempfile.tempdir = scratch
        for line in sys.stdin:
            answer = reply(json.loads(line))
            for left in Path(scratch).iterdir():  # of examples that ended their processes
                shutil.rmtree(left, ignore_errors=True)
            replies.write(json.dumps(answer) + "\n")
            replies.flush()


if __name__ == "__main__":
    main()
