"""Traced runs of models, for the data movement that onnxruntime executes after its own optimiser."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from layoutopt.files import scratch_folder
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.data_movement import DataMovement, data_movement_of
from layoutopt.verification.original_runs import RUN_ERRORS, TimeLimits, run_original
from layoutopt.verification.runnable import Runnable


def executed_data_movement(model: Runnable, inputs: SampleInputs) -> DataMovement | None:
    """The data movement of one run at onnxruntime's default optimisation level; None if the model does not run.

    If the model has traces of earlier runs, it does not run again.

    Args:
        model: the model.
        inputs: generator of test inputs, with the sizes of symbolic dimensions.
    """
    if model.trace is not None and (found := _traced(model.trace)) is not None:
        return found
    with scratch_folder() as folder:
        prefix = folder / "trace"
        try:
            run_original(replace(model, trace=prefix).session(), inputs, 0, TimeLimits(), only_once=True)
        except RUN_ERRORS:
            return None
        return _traced(prefix)


def _traced(prefix: Path) -> DataMovement | None:
    """The data movement in the first trace; None if no run was traced."""
    for path in sorted(prefix.parent.glob(f"{prefix.name}*")):
        if events := _events(path):
            return data_movement_of(events)
    return None


def _events(path: Path) -> list[dict[str, Any]]:
    """The events of a trace; empty if the session has not ended it, because no run succeeded."""
    try:
        return list(json.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        return []


__all__ = ["executed_data_movement"]
