"""Search of models: files, folders and glob patterns."""

import os
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path

from layoutopt.cli.exit_codes import UsageError

_SUFFIX = ".onnx"
_WILDCARDS = "*?["


def find_models(arguments: Sequence[str]) -> list[Path]:
    """The models that some arguments name, each once, in the order of the arguments.

    A file stands for itself, whether it exists or not; a folder for the `.onnx` files in it and in its subfolders, except
    hidden ones; a pattern such as `models/**/*.onnx` for the files that match it.

    Raises:
        UsageError: there is no argument, or a folder or a pattern has no model.
    """
    if not arguments:
        raise UsageError("no model", hint="name ONNX files, folders or patterns such as 'models/**/*.onnx'")
    found: dict[str, Path] = {}
    for argument in arguments:
        for path in _matches(argument):
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _matches(argument: str) -> list[Path]:
    path = Path(argument)
    if path.is_dir():
        models = sorted(each for each in _files(path) if each.suffix == _SUFFIX)
        if not models:
            raise UsageError(f"has no {_SUFFIX} file", where=argument, hint="name a folder with models")
        return models
    if path.exists() or not any(char in argument for char in _WILDCARDS):
        return [path]
    models = sorted(each for each in map(Path, glob(argument, recursive=True)) if each.is_file())
    if not models:
        raise UsageError("matches no file", where=argument, hint="check the pattern")
    return models


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))
