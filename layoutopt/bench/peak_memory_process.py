"""The process that `peak_memory` starts.

    python -m layoutopt.bench.peak_memory_process MODEL RUNTIME THREADS INPUTS [LIBRARY ...]

It prints one line of JSON with the high-water mark of its resident set: VmHWM on Linux, where ru_maxrss includes the parent's
peak because it survives exec; ru_maxrss elsewhere.
"""

import json
import pickle
import resource
import sys
from pathlib import Path

from layoutopt.bench.runtimes import first_run, load_runtime, open_session
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


def _measurement(model: Path, runtime_name: str, threads: int, inputs: Path) -> dict[str, int] | dict[str, str]:
    runtime = load_runtime(runtime_name)
    feed = pickle.loads(inputs.read_bytes())
    before = peak_bytes()
    try:
        first_run(runtime, open_session(runtime, model, threads), feed, model)
    except ModelError as error:
        return {"what": error.what, "where": error.where, "hint": error.hint}
    return {"peak_bytes": peak_bytes(), "bytes_before": before}


if __name__ == "__main__":
    _model, _runtime, _threads, _inputs, *_libraries = sys.argv[1:]
    with kernel_libraries(_libraries):
        print(json.dumps(_measurement(Path(_model), _runtime, int(_threads), Path(_inputs))))
