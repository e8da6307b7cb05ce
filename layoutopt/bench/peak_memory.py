"""Memory of loading and running a model, measured in a separate process."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

from layoutopt.bench.bench_inputs import Feed
from layoutopt.bench.bench_report import PeakMemory
from layoutopt.errors import LayoutoptError, ModelError
from layoutopt.files import scratch_folder
from layoutopt.runtime.custom_ops import registered_libraries

SESSIONS = 4
"""The number of sessions for which anonymous memory is measured, besides one."""

_REPORT = Path("/proc/self/smaps_rollup")


def check_anonymous_memory() -> None:
    """Check that the system reports the anonymous memory of a process.

    Raises:
        LayoutoptError: it does not.
    """
    if not _REPORT.exists():
        raise LayoutoptError("only Linux reports anonymous memory", where=str(_REPORT), hint="leave out --memory")


def measure_memory(model: Path, runtime: str, threads: int, feed: Feed, measures_anonymous: bool = False) -> PeakMemory:
    """The memory of a new process that loads a model and runs it once; anonymous memory also with several sessions.

    Raises:
        ModelError: the model cannot be loaded or run.
        LayoutoptError: the process failed for another reason.
    """
    with scratch_folder() as folder:
        inputs = folder / "inputs"
        inputs.write_bytes(pickle.dumps(feed))
        sessions = SESSIONS if measures_anonymous else 0
        arguments = [str(model), runtime, str(threads), str(sessions), str(inputs), *registered_libraries()]
        command = [sys.executable, "-P", "-m", "layoutopt.bench.peak_memory_process", *arguments]
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
    return PeakMemory(**output)
