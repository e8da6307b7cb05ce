"""The data movement that onnxruntime executes: Transposes and reorders of one traced run, with bytes.

Reshape, Flatten, Squeeze and Unsqueeze share the memory of their input in onnxruntime, so they are not counted. An op in the
body of a loop counts once per iteration.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from layoutopt.files import scratch_folder
from layoutopt.report.schema import DataMovementReport
from layoutopt.runtime.errors import RUN_ERRORS
from layoutopt.runtime.session import REORDERS, TRACED_RUN, is_kernel_event
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.runnable import Runnable
from layoutopt.verification.runs import Request, load_and_run


def data_movement_of(events: Iterable[Mapping[str, Any]]) -> DataMovementReport:
    """The data movement of the last run in a trace of onnxruntime."""
    events = list(events)
    start = max((event["ts"] for event in events if event["name"] == TRACED_RUN), default=0)
    moving = [
        event["args"]
        for event in events
        if is_kernel_event(event) and event["ts"] >= start and event["args"]["op_name"] in REORDERS
    ]
    nbytes = sum(int(each["activation_size"]) + int(each["output_size"]) for each in moving)
    return DataMovementReport(ops=dict(Counter(each["op_name"] for each in moving)), nbytes=nbytes)


def executed_data_movement(model: Runnable, inputs: SampleInputs) -> DataMovementReport | None:
    """The data movement of one run at onnxruntime's default optimisation level; None if the model does not run.

    If the model has traces of earlier runs, it does not run again.

    Args:
        model: the model.
        inputs: generator of test inputs, with the sizes of symbolic dimensions.
    """
    if model.trace is not None and (found := _traced(model.trace)) is not None:
        return found
    with scratch_folder() as folder:
        try:
            load_and_run(replace(model, trace=folder / "trace"), Request(inputs=inputs), only_once=True)
        except RUN_ERRORS:
            return None
        return _traced(folder / "trace")


def _traced(prefix: Path) -> DataMovementReport | None:
    """The data movement in the first trace; None if no run was traced, or the session has not ended the trace."""
    for path in sorted(prefix.parent.glob(f"{prefix.name}*")):
        try:
            return data_movement_of(json.loads(path.read_text(encoding="utf-8")))
        except ValueError:  # no run of the session succeeded
            continue
    return None
