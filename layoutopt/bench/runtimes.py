"""What runs a model. onnxruntime at its defaults: only the number of threads and the log level are set."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import onnxruntime

from layoutopt.bench.profile import read_profile
from layoutopt.bench.report import Profile
from layoutopt.errors import LayoutoptError, ModelError
from layoutopt.ir.types import Array
from layoutopt.runtime.errors import raise_if_out_of_memory
from layoutopt.runtime.utf8_paths import utf8_path

RUNTIMES = ("onnxruntime", "openvino")
"""The names that `load_runtime` knows."""

_REASON = 200  # characters


class Session(Protocol):
    """A model that is ready to run."""

    def run(self, feed: Mapping[str, Array]) -> Sequence[Any]:
        """Run it; the values of its outputs."""


class ProfiledSession(Session, Protocol):
    """A model that keeps a record of its kernels."""

    def profile(self, skipped: int) -> Profile:
        """What the kernels took, without the first `skipped` runs where the runtime tells runs apart."""


class Runtime(Protocol):
    """A way to run models; what goes wrong is its own exception."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def version(self) -> str:
        """Its version."""

    def open(self, model: Path, threads: int) -> Session:
        """Make a session."""

    def open_profiled(self, model: Path, threads: int, folder: Path) -> ProfiledSession:
        """Make one with profiling on; `folder` is for files and outlives it."""


class OnnxRuntime:
    """Stock onnxruntime on the CPU."""

    name = "onnxruntime"
    version = str(onnxruntime.__version__)

    def open(self, model: Path, threads: int) -> "OnnxSession":
        """Make a session."""
        return OnnxSession(model, _options(threads))

    def open_profiled(self, model: Path, threads: int, folder: Path) -> "OnnxSession":
        """Make one that writes a profile."""
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
        """Run it."""
        outputs: Sequence[Any] = self._session.run(None, feed)
        return outputs

    def profile(self, skipped: int) -> Profile:
        """End profiling and read what has been written."""
        return read_profile(json.loads(Path(self._session.end_profiling()).read_text(encoding="utf-8")), skipped)


def _options(threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def load_runtime(name: str) -> Runtime:
    """A runtime by name.

    Raises:
        LayoutoptError: it is not installed, or there is none of this name.
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
    """Make a session.

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
    """Run a model that may not be able to.

    Raises:
        ModelError: it is not.
    """
    try:
        return session.run(feed)
    except Exception as error:
        raise_if_out_of_memory(error)
        what = f"{runtime.name} cannot run it: {_reason(error)}"
        raise ModelError(what, where=str(model), hint="other extents may suit it: --dim NAME=VALUE") from error


def _reason(error: Exception) -> str:
    """What an error says, in short; OpenVINO begins with the places in its own sources."""
    lines = [line for line in str(error).splitlines() if not line.startswith(("Exception from ", "Check 'false' "))]
    says = " ".join(" ".join(lines).split()) or type(error).__name__
    return says if len(says) <= _REASON else f"{says[: _REASON - 3]}..."
