"""The law of passes: a pass changes no result, and a second run changes no graph."""

from os import PathLike

import onnx

from layoutopt.api import optimize
from layoutopt.driver.job import Target
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode, Pass, Pipeline


def check_pass(
    step: Pass,
    *models: str | PathLike[str] | onnx.ModelProto,
    target: Target = "gpu-hopper",
    mode: Mode = "inference",
    dialect: str | None = None,
) -> int:
    """Assert that a pass changes no result of the models, and that a second run right after the first changes no graph.

    The pass runs at its position in the pipeline of a mode up to lowering, which `before`, `after` or the pipeline itself
    determines.

    Args:
        step: the pass.
        models: the models; the pass has to change one of them.
        target: the hardware target.
        mode: the mode.
        dialect: the dialect; None for the target's own.

    Returns:
        The number of models that the pass changed.

    Raises:
        AssertionError: the pass breaks a law.
        InvariantError: it leaves a graph that breaks an invariant.
    """
    pipeline = _repeated(default_pipeline(mode), step)
    changed = 0
    for number, model in enumerate(models):
        report = optimize(model, target, dialect=dialect, pipeline=pipeline, mode=mode).report
        assert report.verification.status == "passed", f"model {number}: {report.verification.reason}"
        runs = [each.changed for each in report.passes if each.name == step.name]
        firsts, seconds = runs[::2], runs[1::2]
        assert not any(seconds), f"model {number}: a second run of {step.name} changes its own result"
        changed += any(firsts)
    assert changed, f"{step.name} changes none of the {len(models)} models"
    return changed


def _repeated(pipeline: Pipeline, step: Pass) -> Pipeline:
    """The pipeline with the pass twice in a row wherever it runs."""
    is_in = any(each.name == step.name for each in pipeline.passes)
    passes = (pipeline if is_in else pipeline.extended([step])).passes
    assert is_in or len(passes) > len(pipeline.passes), f"{step.name} has no position in the pipeline"
    return Pipeline(tuple(each for one in passes for each in ((step, step) if one.name == step.name else (one,))))
