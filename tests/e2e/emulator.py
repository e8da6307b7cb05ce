"""Stock onnxruntime in a user-mode emulator (Debian's package qemu-user) of an x86 processor without AVX-512."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import numpy as np

QEMU = shutil.which("qemu-x86_64")
UNAVAILABLE_REASON = "qemu-x86_64 is not installed, or this machine or its Linux is another one"
AVAILABLE = QEMU is not None and platform.machine() == "x86_64" and sys.platform == "linux"

BLOCK = 8
"""Channels per block of onnxruntime's kernels on the emulated processor."""

_SECONDS = 600
_PROGRAM = """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level, options.intra_op_num_threads = 4, 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
outputs = session.run(None, dict(numpy.load(sys.argv[2])))
numpy.savez(sys.argv[3], **{each.name: y for each, y in zip(session.get_outputs(), outputs)})
"""


def run_emulated(model: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a model by name.

    Raises:
        RuntimeError: onnxruntime cannot load or run it there; the text is what it printed.
    """
    given, found = model.with_suffix(".inputs.npz"), model.with_suffix(".outputs.npz")
    np.savez(given, **feeds)
    assert QEMU is not None
    # A virtual environment's interpreter is a link, and emulators of some versions do not follow shims.
    python = str(Path(sys.executable).resolve())
    paths = [sysconfig.get_paths()[name] for name in ("purelib", "platlib")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "OPENBLAS_CORETYPE": "Haswell",  # it would take that of the real processor
        "ORT_DISABLE_TELEMETRY": "1",
    }
    done = subprocess.run(
        [QEMU, "-cpu", "Haswell", python, "-c", _PROGRAM, str(model), str(given), str(found)],
        env=environment,
        cwd=model.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(np.load(found))
