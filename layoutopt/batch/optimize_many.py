"""The function `optimize_many`, which optimises many models in worker processes or in a cluster."""

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from os import PathLike
from pathlib import Path

from layoutopt.batch.cache import Cache
from layoutopt.batch.run import run_tasks
from layoutopt.batch.task import ModelTask, Outcome
from layoutopt.driver.options import BatchOptions, ModelOptions, check, takes, values_of
from layoutopt.errors import ArgumentError
from layoutopt.files import conflict, path_text


@takes(BatchOptions)
def optimize_many(options: BatchOptions) -> Generator[Outcome, None, None]:
    """Optimise many models, and return the outcome of each as it ends.

        for outcome in layoutopt.optimize_many(paths, "gpu-hopper", output="out", cache="cache"):
            print(outcome)

    An error is the outcome of its model, and does not stop the others. Closing the iterator stops the workers.

    Args:
        options: the arguments are the fields of `layoutopt.driver.options.BatchOptions`.

    Raises:
        ArgumentError: an argument is wrong.
        LayoutoptError: the library of the cluster is not installed, or the cluster cannot be reached; from the iterator.
    """
    if not isinstance(options.target, str):
        raise ArgumentError("is no text", where=f"target={options.target!r:.80}", hint="name a target or a file")
    check(options)
    folder = None if options.cache is None else Path(options.cache)
    if folder is not None:
        Cache(folder)
    values = values_of(options, ModelOptions) | {"target": options.target}
    tasks = [
        ModelTask(model, result, values, external_data=options.external_data, force=options.force, cache=folder)
        for model, result in _placed(options.models, options.output)
    ]
    return _outcomes(tasks, options.jobs, options.cluster)


def _outcomes(tasks: Sequence[ModelTask], jobs: int | None, cluster: str | None) -> Generator[Outcome, None, None]:
    with closing(run_tasks(tasks, jobs=jobs, cluster=cluster)) as outcomes:
        for _, outcome in outcomes:
            yield outcome


def _placed(
    models: Iterable[str | PathLike[str]] | Mapping[str | PathLike[str], str | PathLike[str]],
    output: str | PathLike[str] | None,
) -> list[tuple[Path, Path | None]]:
    """Pairs of a model and the file of its result.

    Raises:
        ArgumentError: `models` is one path, `output` is no folder, two results have one file, or one that is read.
    """
    if isinstance(models, str | PathLike):
        raise ArgumentError("is one model", where=f"models={os.fspath(models)!r:.80}", hint="give a list")
    placed: list[tuple[Path, Path | None]]
    if isinstance(models, Mapping):
        if output is not None:
            raise ArgumentError("models have their results", where=f"output={output!r:.80}", hint="leave it out")
        placed = [(Path(model), Path(result)) for model, result in models.items()]
    else:
        if output is not None and Path(output).suffix == ".onnx" and not Path(output).is_dir():
            raise ArgumentError("is no folder", where=f"output={os.fspath(output)!r:.80}", hint="name a folder")
        paths = [Path(each) for each in models]
        placed = [(each, None if output is None else Path(output) / each.name) for each in paths]
    written = [(model, result) for model, result in placed if result is not None]
    if wrong := conflict(written, may_replace_source=isinstance(models, Mapping)):
        hint = "give a mapping from the models to different files"
        raise ArgumentError(wrong[1], where=path_text(wrong[0]), hint=hint)
    return placed


__all__ = ["optimize_many"]
