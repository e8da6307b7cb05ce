"""Runtimes of the benchmark, with their default options except for the number of threads and the log level.

OpenVINO runs on the CPU, configured for latency, in float32 like onnxruntime.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import onnxruntime

from layoutopt.dialects.onnxruntime.blocked_passes import block_mismatch, packed_block
from layoutopt.errors import LayoutoptError
from layoutopt.ir.types import Array
from layoutopt.runtime.errors import error_message, raise_if_out_of_memory
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.runtime.session import REORDERS, TRACED_RUN, inference_session, is_kernel_event
from layoutopt.runtime.utf8_paths import utf8_path

_OPENVINO_REORDERS = ("Transpose", "Reorder")

RUNTIMES = ("onnxruntime", "openvino")
"""The names of the runtimes."""


class OnnxRuntime:
    """Stock onnxruntime on the CPU."""

    name = "onnxruntime"
    version = str(onnxruntime.__version__)

    def open(self, model: Path, threads: int, trace: Path | None = None) -> "OnnxSession":
        """Create a session."""
        with utf8_path(model) as source:
            return OnnxSession(inference_session(source, threads=threads, trace=trace))


class OnnxSession:
    """A session of onnxruntime."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session

    def run(self, feed: Mapping[str, Array]) -> Sequence[Any]:
        """The values of the outputs."""
        outputs: Sequence[Any] = self._session.run(None, feed)
        return outputs

    def reorder_share(self) -> float:
        """End profiling, and read the written trace."""
        return traced_reorder_share(json.loads(Path(self._session.end_profiling()).read_text(encoding="utf-8")))


def traced_reorder_share(events: Iterable[Mapping[str, Any]]) -> float:
    """The fraction of the time in Transposes and reorders in a trace of onnxruntime, without the first run."""
    events = list(events)
    first, *runs = sorted((each["ts"], each["dur"]) for each in events if each["name"] == TRACED_RUN)
    reorders = (each for each in events if is_kernel_event(each) and each["args"]["op_name"] in REORDERS)
    moving = sum(each["dur"] for each in reorders if each["ts"] > sum(first))
    return float(moving / max(1, sum(seconds for _, seconds in runs)))


class OpenVino:
    """OpenVINO's CPU plugin."""

    name = "openvino"

    def __init__(self) -> None:
        """Load the plugin, which all sessions share."""
        import openvino  # an optional dependency

        self.version = str(openvino.__version__).partition("-")[0]
        self._core = openvino.Core()
        self._core.get_property("CPU", "FULL_DEVICE_NAME")

    def open(self, model: Path, threads: int, trace: Path | None = None) -> "OpenVinoSession":
        """Compile a model; performance counters are kept in memory."""
        config = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_CPU_PINNING": False,  # with one thread, `bench` pins the process itself
            "PERF_COUNT": trace is not None,
        }
        with utf8_path(model) as source:
            return OpenVinoSession(self._core.compile_model(source, "CPU", config).create_infer_request())


class OpenVinoSession:
    """A compiled model with one inference request."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def run(self, feed: Mapping[str, Array]) -> Sequence[Any]:
        """Run the model without copies of inputs and outputs."""
        return list(self._request.infer(feed, share_inputs=True, share_outputs=True).values())

    def reorder_share(self) -> float:
        """The fraction by the performance counters, which are means over all runs."""
        executed = [each for each in self._request.profiling_info if each.status == each.Status.EXECUTED]
        times = [(each.node_type, each.real_time.total_seconds()) for each in executed]
        total = sum(seconds for _, seconds in times)
        return sum(seconds for op, seconds in times if op in _OPENVINO_REORDERS) / total if total else 0.0


Session: TypeAlias = OnnxSession | OpenVinoSession
"""A model that is ready to run; `reorder_share` is for sessions with profiling."""

Runtime: TypeAlias = OnnxRuntime | OpenVino
"""A runtime, which raises its own exceptions."""


def load_runtime(name: str) -> Runtime:
    """A runtime by name.

    Raises:
        LayoutoptError: there is no such runtime, or it is not installed.
    """
    if name == "onnxruntime":
        return OnnxRuntime()
    if name != "openvino":
        raise LayoutoptError("no such runtime", where=name, hint=f"there are {', '.join(RUNTIMES)}")
    try:
        return OpenVino()
    except ImportError as error:
        hint = "pip install 'layoutopt[openvino]'"
        raise LayoutoptError("is not installed", where="openvino", hint=hint) from error


def reason_of(error: Exception, runtime: Runtime, action: str) -> tuple[str, str]:
    """The message of an error and the hint, without the source locations that OpenVINO puts first.

    Args:
        error: an error of loading or running a model.
        runtime: the runtime.
        action: load, run.
    """
    raise_if_out_of_memory(error)
    if packed := packed_block([str(error)]):
        what = block_mismatch(packed, blocked_channels(), f"{runtime.name} {runtime.version}")
        return what, "optimize the original on this machine"
    lines = [line for line in str(error).splitlines() if not line.startswith(("Exception from ", "Check 'false' "))]
    hints = {"load": "give a model that it can run on the CPU", "run": "set other extents with --dim NAME=SIZE"}
    return f"{runtime.name} cannot {action} it: {error_message(error, ' '.join(lines))}", hints[action]
