"""Memory of loading and running a model, measured in a separate process.

    python -P -m layoutopt.bench.peak_memory MODEL RUNTIME THREADS INPUTS_PICKLE [CUSTOM_OP_LIBRARY ...]

The process prints one line of JSON. Peak resident memory is VmHWM on Linux and ru_maxrss elsewhere; on Linux ru_maxrss survives
exec and includes the parent's peak.
"""

import json
import pickle
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layoutopt.bench.bench_report import PeakMemory
from layoutopt.bench.runtimes import load_runtime, reason_of
from layoutopt.errors import LayoutoptError, ModelError
from layoutopt.files import scratch_folder
from layoutopt.ir.types import Array
from layoutopt.runtime.custom_ops import kernel_libraries, registered_libraries


def measure_memory(model: Path, runtime: str, threads: int, feed: Mapping[str, Array]) -> tuple[PeakMemory, list[str]]:
    """The memory of a new process that loads a model and runs it once, and the types and shapes of the outputs.

    Raises:
        ModelError: the model cannot be loaded or run.
        LayoutoptError: the process failed for another reason.
    """
    with scratch_folder() as folder:
        inputs = folder / "inputs"
        inputs.write_bytes(pickle.dumps(feed))
        arguments = [str(model), runtime, str(threads), str(inputs), *registered_libraries()]
        command = [sys.executable, "-P", "-m", "layoutopt.bench.peak_memory", *arguments]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        what = f"the process that measures its memory exited with code {process.returncode}"
        last = next(reversed(process.stderr.splitlines()), "")  # empty if the process was killed
        raise LayoutoptError(
            what, where=str(model), hint=last or "close other programs or use a machine with more memory"
        )
    output = json.loads(process.stdout.splitlines()[-1])
    if "what" in output:
        raise ModelError(**output)
    return PeakMemory(**output["memory"]), output["outputs"]


def peak_bytes() -> int:
    """The largest resident set of this process so far."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _measurement(model: Path, runtime_name: str, threads: int, inputs_pickle: Path) -> dict[str, Any]:
    """The memory and the outputs, or the fields of the error of loading or running the model."""
    runtime = load_runtime(runtime_name)
    feed = pickle.loads(inputs_pickle.read_bytes())
    before, action = peak_bytes(), "load"
    try:
        session = runtime.open(model, threads)
        action = "run"
        outputs = session.run(feed)
    except Exception as error:  # the runtimes' exceptions have no common base
        what, hint = reason_of(error, runtime, action)
        return {"what": what, "where": str(model), "hint": hint}
    memory = {"peak_bytes": peak_bytes(), "bytes_before": before}
    types = [f"{getattr(each, 'dtype', type(each).__name__)} {getattr(each, 'shape', '')}" for each in outputs]
    return {"memory": memory, "outputs": types}


if __name__ == "__main__":
    _model, _runtime, _threads, _inputs_pickle, *_libraries = sys.argv[1:]
    with kernel_libraries(_libraries):
        print(json.dumps(_measurement(Path(_model), _runtime, int(_threads), Path(_inputs_pickle))))
