"""OpenVINO as a runtime of `bench`: on the CPU, configured for latency, in float32 like onnxruntime."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openvino

from layoutopt.bench.bench_report import Profile
from layoutopt.bench.op_profile import by_op, profile_of
from layoutopt.ir.types import Array
from layoutopt.runtime.utf8_paths import utf8_path


class OpenVino:
    """OpenVINO's CPU plugin."""

    name = "openvino"
    version = str(openvino.__version__).partition("-")[0]

    def __init__(self) -> None:
        """Load the plugin, which all sessions share."""
        self._core = openvino.Core()
        self._core.get_property("CPU", "FULL_DEVICE_NAME")

    def open(self, model: Path, threads: int) -> "OpenVinoSession":
        """Compile a model."""
        return OpenVinoSession(self._core, model, _config(threads))

    def open_profiled(self, model: Path, threads: int, folder: Path) -> "OpenVinoSession":
        """Compile a model with performance counters, which are kept in memory."""
        return OpenVinoSession(self._core, model, {**_config(threads), "PERF_COUNT": True})


class OpenVinoSession:
    """A compiled model with one inference request."""

    def __init__(self, core: Any, model: Path, config: dict[str, Any]) -> None:
        """Compile the model."""
        with utf8_path(model) as source:
            self._request = core.compile_model(source, "CPU", config).create_infer_request()
        self._runs = 0

    def run(self, feed: Mapping[str, Array]) -> Sequence[Any]:
        """Run the model without copies of inputs and outputs."""
        self._runs += 1
        return list(self._request.infer(feed, share_inputs=True, share_outputs=True).values())

    def profile(self, skipped: int) -> Profile:
        """The seconds of each kind of op: performance counters, averaged over all runs. `skipped` has no effect."""
        executed = [each for each in self._request.profiling_info if each.status == each.Status.EXECUTED]
        return profile_of(by_op(((each.node_type, each.real_time.total_seconds()) for each in executed), 1), self._runs)


def _config(threads: int) -> dict[str, Any]:
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": False,  # with one thread, `bench` pins the process itself
    }
