"""Runtimes of the benchmark. onnxruntime has its default options except for the number of threads and the log level."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import onnxruntime

from layoutopt.bench.bench_report import Profile
from layoutopt.bench.op_profile import read_profile
from layoutopt.dialects.onnxruntime.blocked_passes import block_mismatch, packed_block
from layoutopt.errors import LayoutoptError, ModelError
from layoutopt.ir.types import Array
from layoutopt.runtime.custom_ops import session_options
from layoutopt.runtime.errors import error_message, raise_if_out_of_memory
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.runtime.utf8_paths import utf8_path

RUNTIMES = ("onnxruntime", "openvino")
"""The names of the runtimes."""


class Session(Protocol):
    """A model that is ready to run."""

    def run(self, feed: Mapping[str, Array]) -> Sequence[Any]:
        """The values of the outputs."""


class ProfiledSession(Session, Protocol):
    """A model with profiling."""

    def profile(self, skipped: int) -> Profile:
        """The time per op type, without the first `skipped` runs if the runtime records runs separately."""


class Runtime(Protocol):
    """A runtime, which raises its own exceptions."""

    @property
    def name(self) -> str:
        """The name of the runtime."""

    @property
    def version(self) -> str:
        """The version of the runtime."""

    def open(self, model: Path, threads: int) -> Session:
        """Create a session."""

    def open_profiled(self, model: Path, threads: int, folder: Path) -> ProfiledSession:
        """Create a session with profiling; `folder` is for its files and exists longer than the session."""


class OnnxRuntime:
    """Stock onnxruntime on the CPU."""

    name = "onnxruntime"
    version = str(onnxruntime.__version__)

    def open(self, model: Path, threads: int) -> "OnnxSession":
        """Create a session."""
        return OnnxSession(model, _options(threads))

    def open_profiled(self, model: Path, threads: int, folder: Path) -> "OnnxSession":
        """Create a session that writes a profile."""
        options = _options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        return OnnxSession(model, options)


class OnnxSession:
    """A session of onnxruntime."""

    def __init__(self, model: Path, options: Any) -> None:
        """Load the model."""
        with utf8_path(model) as source:
            self._session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    def run(self, feed: Mapping[str, Array]) -> Sequence[Any]:
        """The values of the outputs."""
        outputs: Sequence[Any] = self._session.run(None, feed)
        return outputs

    def profile(self, skipped: int) -> Profile:
        """End profiling, and read the written profile."""
        return read_profile(json.loads(Path(self._session.end_profiling()).read_text(encoding="utf-8")), skipped)


def _options(threads: int) -> Any:
    options = session_options()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return options


def load_runtime(name: str) -> Runtime:
    """A runtime by name.

    Raises:
        LayoutoptError: there is no such runtime, or it is not installed.
    """
    if name == "onnxruntime":
        return OnnxRuntime()
    if name == "openvino":
        try:
            from layoutopt.bench.openvino_runtime import OpenVino  # an optional dependency
        except ImportError as error:
            hint = "pip install 'layoutopt[openvino]'"
            raise LayoutoptError("is not installed", where="openvino", hint=hint) from error
        return OpenVino()
    raise LayoutoptError("no such runtime", where=name, hint=f"there are {', '.join(RUNTIMES)}")


def open_session(runtime: Runtime, model: Path, threads: int) -> Session:
    """Create a session.

    Raises:
        ModelError: the runtime cannot load the model.
    """
    try:
        return runtime.open(model, threads)
    except Exception as error:  # the runtimes' exceptions have no common base
        raise_if_out_of_memory(error)
        what = f"{runtime.name} cannot load it: {_reason(error)}"
        raise ModelError(what, where=str(model), hint="give a model that it can run on the CPU") from error


def first_run(runtime: Runtime, session: Session, feed: Mapping[str, Array], model: Path) -> Sequence[Any]:
    """The outputs of the first run of a model.

    Raises:
        ModelError: the runtime cannot run the model.
    """
    try:
        return session.run(feed)
    except Exception as error:
        raise_if_out_of_memory(error)
        if packed := packed_block([str(error)]):
            what = block_mismatch(packed, blocked_channels(), f"{runtime.name} {runtime.version}")
            raise ModelError(what, where=str(model), hint="optimize the original on this machine") from error
        what = f"{runtime.name} cannot run it: {_reason(error)}"
        raise ModelError(what, where=str(model), hint="set other extents with --dim NAME=SIZE") from error


def _reason(error: Exception) -> str:
    """The message of an error, shortened and without the source locations that OpenVINO puts first."""
    lines = [line for line in str(error).splitlines() if not line.startswith(("Exception from ", "Check 'false' "))]
    return error_message(error, " ".join(lines))
