"""A traced run of a model, for the data movement that onnxruntime executes after its own optimiser."""

import json
from pathlib import Path

from layoutopt.files import scratch_folder
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.data_movement import DataMovement, data_movement_of
from layoutopt.verification.original_runs import RUN_ERRORS, TimeLimits, run_original
from layoutopt.verification.runnable import Runnable


def executed_data_movement(model: Runnable, inputs: SampleInputs) -> DataMovement | None:
    """The data movement of one run at onnxruntime's default optimisation level; None if the model does not run.

    Args:
        model: the model.
        inputs: generator of test inputs, with the sizes of symbolic dimensions.
    """
    with scratch_folder() as folder:
        try:
            session = model.session(trace=folder / "trace")
            runs, _ = run_original(session, inputs, 0, TimeLimits(), only_once=True)
            trace = session.end_trace()
        except RUN_ERRORS:
            return None
        return data_movement_of(json.loads(Path(trace).read_text(encoding="utf-8"))) if runs else None


__all__ = ["executed_data_movement"]
