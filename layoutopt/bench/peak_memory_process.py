"""The process that `peak_memory` starts.

    python -P -m layoutopt.bench.peak_memory_process MODEL RUNTIME THREADS SESSION_COUNT INPUTS_PICKLE [CUSTOM_OP_LIBRARY ...]

The process prints one line of JSON. If SESSION_COUNT is not 0, it also measures anonymous memory with 1 and with SESSION_COUNT
sessions open. Peak resident memory is VmHWM on Linux and ru_maxrss elsewhere; on Linux ru_maxrss survives exec and includes the
parent's peak.
"""

import json
import pickle
import resource
import sys
from pathlib import Path
from typing import Any

from layoutopt.bench.bench_inputs import Feed
from layoutopt.bench.runtimes import Runtime, Session, first_run, load_runtime, open_session
from layoutopt.errors import ModelError
from layoutopt.runtime.custom_ops import kernel_libraries


def peak_bytes() -> int:
    """The largest resident set of this process so far."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def anonymous_bytes() -> int:
    """The resident memory of this process that no file backs; Linux only."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def _measurement(
    model: Path, runtime_name: str, threads: int, session_count: int, inputs_pickle: Path
) -> dict[str, Any]:
    """The fields of `PeakMemory`, or of the error of loading or running the model."""
    runtime = load_runtime(runtime_name)
    feed = pickle.loads(inputs_pickle.read_bytes())
    before = peak_bytes()
    anonymous = {"before": anonymous_bytes(), "sessions": session_count} if session_count else {}
    try:
        sessions_in_memory = [_session_after_a_run(runtime, model, threads, feed)]
        peak = peak_bytes()
        if session_count:
            anonymous["one_session"] = anonymous_bytes()
            sessions_in_memory += [
                _session_after_a_run(runtime, model, threads, feed) for _ in range(session_count - 1)
            ]
            anonymous["several_sessions"] = anonymous_bytes()
    except ModelError as error:
        return {"what": error.what, "where": error.where, "hint": error.hint}
    return {"peak_bytes": peak, "bytes_before": before, "anonymous": anonymous or None}


def _session_after_a_run(runtime: Runtime, model: Path, threads: int, feed: Feed) -> Session:
    session = open_session(runtime, model, threads)
    first_run(runtime, session, feed, model)
    return session


if __name__ == "__main__":
    _model, _runtime, _threads, _session_count, _inputs_pickle, *_libraries = sys.argv[1:]
    with kernel_libraries(_libraries):
        print(
            json.dumps(_measurement(Path(_model), _runtime, int(_threads), int(_session_count), Path(_inputs_pickle)))
        )
