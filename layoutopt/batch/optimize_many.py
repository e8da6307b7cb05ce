"""The function `optimize_many`, which optimises many models in worker processes or in a cluster."""

import inspect
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from layoutopt import api
from layoutopt.batch.cache import Cache
from layoutopt.batch.run import run_tasks
from layoutopt.batch.task import ModelTask, Outcome
from layoutopt.errors import ArgumentError
from layoutopt.files import conflict, path_text
from layoutopt.formats import Format
from layoutopt.ir.sizes import Dims


class BatchOptions(TypedDict, total=False):
    """The arguments of `layoutopt.optimize` that `optimize_many` passes on."""

    runtime: str | None
    dialect: str | None
    mode: Literal["inference", "training"]
    pins: Mapping[str, Format | str] | None
    dims: Dims | None
    verify: bool
    allow_unverified: bool
    time_limit: float | None
    max_growth: float
    sessions: Literal["balanced", "fast"]
    count_moves: bool
    portable: bool
    measure: bool
    threads: int
    calibrate: bool
    profile: str | PathLike[str] | None
    strict: bool
    custom_ops: str | PathLike[str] | Iterable[str | PathLike[str]]


def optimize_many(
    models: Iterable[str | PathLike[str]] | Mapping[str | PathLike[str], str | PathLike[str]],
    target: str = "cpu",
    *,
    output: str | PathLike[str] | None = None,
    external_data: str | None = None,
    force: bool = False,
    jobs: int | None = None,
    cluster: str | None = None,
    cache: str | PathLike[str] | None = None,
    **options: Unpack[BatchOptions],
) -> Generator[Outcome, None, None]:
    """Optimise many models, and return the outcome of each as it ends.

        for outcome in layoutopt.optimize_many(paths, "gpu-hopper", output="out", cache="cache"):
            print(outcome)

    An error is the outcome of its model, and does not stop the others. Closing the iterator stops the workers.

    Args:
        models: the files, or a mapping from the files to those of the results.
        target: a target's name, a target file, or several of these separated by commas.
        output: the folder of the results, which have the names of the models; None to write none.
        external_data: the name of a file for weights, next to each result: only for results in different folders.
        force: replace existing files that are no results of their models.
        jobs: the number of worker processes. By default as many as the memory and the CPU cores of this machine permit, one
            if times are measured on it; 0 for none: then the models are optimised in this process, one after the other.
        cluster: `dask://HOST:PORT`, `ray://HOST:PORT` or another URL of `layoutopt.batch.open_cluster`, whose workers have
            layoutopt and the same folders.
        cache: the folder of outcomes. A model whose outcome is there is not optimised again; others are added.
        options: further arguments of `optimize`.

    Raises:
        ArgumentError: an argument is wrong.
        LayoutoptError: the library of the cluster is not installed, or the cluster cannot be reached; from the iterator.
    """
    if not isinstance(target, str):
        raise ArgumentError("is no text", where=f"target={target!r:.80}", hint="name a target or a file")
    unknown = options.keys() - BatchOptions.__annotations__.keys()
    if unknown:
        raise ArgumentError("no such option", where=min(unknown), hint=f"there are {', '.join(sorted(_DEFAULTS))}")
    folder = None if cache is None else Path(cache)
    if folder is not None:
        Cache(folder)
    values = _DEFAULTS | dict(options) | {"target": target}
    tasks = [
        ModelTask(model, result, values, external_data=external_data, force=force, cache=folder)
        for model, result in _placed(models, output)
    ]
    return _outcomes(tasks, jobs, cluster)


def _outcomes(tasks: Sequence[ModelTask], jobs: int | None, cluster: str | None) -> Generator[Outcome, None, None]:
    with closing(run_tasks(tasks, jobs=jobs, cluster=cluster)) as outcomes:
        for _, outcome in outcomes:
            yield outcome


_DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(api.optimize).parameters.items()
    if name in BatchOptions.__annotations__
}


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


__all__ = ["BatchOptions", "optimize_many"]
