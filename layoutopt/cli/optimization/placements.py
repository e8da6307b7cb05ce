"""Where `optimize` writes the result of every model."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from layoutopt.cli.arguments import is_pattern
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.optimization.model_files import STDIO, SUFFIX, ModelFile, default_output, find_models
from layoutopt.files import conflict, output_errors, path_text


@dataclass(frozen=True, slots=True)
class Placement:
    """A model and the file of its result.

    Attributes:
        model: the file; `-` for stdin.
        output: the file of the result; `-` for stdout.
        is_in_folder: whether the folder of the result is created if it does not exist.
    """

    model: Path
    output: Path
    is_in_folder: bool = False


def place(arguments: Sequence[Path], output: str | None) -> list[Placement]:
    """The models that the arguments name, with the files of their results.

    Args:
        arguments: files, folders, patterns, or `-` alone.
        output: the value of -o. For several models, a folder or a pattern it is a folder.

    Raises:
        ModelError: a folder or a pattern leads to no model.
        UsageError: two results would have one file, a result would replace another model that is read, or stdin or stdout is
            used for several models.
    """
    target = None if output is None else Path(output)
    takes_folder = len(arguments) > 1 or any(is_several(each) for each in arguments)
    if takes_folder and target is not None and (target == STDIO or is_file_name(target)):
        what = "several models need a folder"
        raise UsageError(what, where=f"-o {output}", hint="name a folder, or leave out -o to write next to each model")
    if takes_folder and STDIO in arguments:
        raise UsageError("stdin is one model", where="-", hint="give `-` alone, or model files")
    is_folder = takes_folder or (output is not None and (output.endswith(os.sep) or os.path.isdir(output)))
    found = find_models(arguments, target if is_folder else None)
    placements = [_placement(each, target, is_folder=is_folder) for each in found]
    named = not is_folder and output is not None
    if wrong := conflict(
        ((each.model, each.output) for each in placements if each.output != STDIO), may_replace_source=named
    ):
        raise UsageError(wrong[1], where=path_text(wrong[0]), hint="name another file or folder")
    return placements


def is_file_name(output: Path) -> bool:
    """Whether a path cannot be the folder of several results: it is no folder, or a new name that ends in .onnx."""
    return not os.path.isdir(output) and (os.path.exists(output) or output.suffix == SUFFIX)


def is_several(argument: Path) -> bool:
    """Whether an argument can lead to several models: a folder or a pattern."""
    return os.path.isdir(argument) or (is_pattern(str(argument)) and not os.path.exists(argument))


def _placement(found: ModelFile, output: Path | None, *, is_folder: bool) -> Placement:
    if output is None and found.path == STDIO:
        return Placement(STDIO, STDIO)
    if output is None:
        return Placement(found.path, default_output(found.path))
    if is_folder and found.path == STDIO:
        raise UsageError("a model from stdin has no name", where=f"-o {output}", hint=f"name a file in {output}")
    return Placement(found.path, output / found.relative if is_folder else output, is_in_folder=is_folder)


@contextmanager
def output_folder(placement: Placement) -> Iterator[None]:
    """Context in which the folder of a result exists; on an error, the folders that it created are removed.

    Raises:
        OutputError: the folder cannot be created.
    """
    created: list[Path] = []
    if placement.is_in_folder:
        folder = placement.output.parent
        missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
        with output_errors(folder):
            for each in reversed(missing):
                each.mkdir(exist_ok=True)
                created.insert(0, each)
    try:
        yield
    except BaseException:
        for each in created:
            with suppress(OSError):
                each.rmdir()
        raise
