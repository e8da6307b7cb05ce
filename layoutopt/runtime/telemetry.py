"""Opt-out of the telemetry of onnxruntime.

Since version 1.29 onnxruntime's packages for Linux and macOS collect telemetry by default, as those for Windows did before: on
import they write a device id and a database under the home folder and a session file into the temporary folder, and send
events about sessions and models to a server of Microsoft. `ORT_DISABLE_TELEMETRY=1` disables all of it if it is set before
onnxruntime is imported; its function `disable_telemetry_events` takes effect only after the files and the first event.
"""

import os
import sys

VARIABLE = "ORT_DISABLE_TELEMETRY"


def disable_telemetry() -> None:
    """Disable telemetry for this process and its children, unless the environment variable is already set.

    If onnxruntime was imported before layoutopt, only further events are disabled.
    """
    if VARIABLE in os.environ:
        return
    os.environ[VARIABLE] = "1"
    if (runtime := sys.modules.get("onnxruntime")) is not None:
        runtime.disable_telemetry_events()
