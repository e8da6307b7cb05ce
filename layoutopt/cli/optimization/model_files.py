"""The model files that the arguments of `optimize` name: files, folders and patterns."""

import glob
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from layoutopt.cli.arguments import is_pattern
from layoutopt.errors import ModelError
from layoutopt.files import MARK, is_result, metadata, path_text, result_mark

STDIO = Path("-")
"""The argument that denotes stdin or stdout."""

SUFFIX, _OUTPUT_SUFFIX = ".onnx", ".opt.onnx"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model that is to be optimised.

    Attributes:
        path: the file; `-` for stdin.
        relative: its path below the folder, or below the fixed part of the pattern, that was searched; else its name.
    """

    path: Path
    relative: Path


def find_models(arguments: Sequence[Path], output: Path | None) -> list[ModelFile]:
    """The models that the arguments name, without duplicates, in the order of the arguments and sorted in each folder.

    Folders are searched recursively for *.onnx. Hidden folders, files below `output`, and results of other models that are
    found are left out.

    Raises:
        ModelError: a folder or a pattern leads to no model.
    """
    named = [each for argument in arguments for each in _named_by(argument, output)]
    found: dict[Path, ModelFile] = {}
    for each in named:
        found.setdefault(Path(os.path.abspath(each.path)), each)
    results = _results(found)  # also those that a shell names when it expands *.onnx
    return [each for path, each in found.items() if path not in results]


def default_output(model: Path) -> Path:
    """The default output of a model, in its folder: `model.opt.onnx` for `model.onnx`."""
    return model.with_name(f"{model.name.removesuffix(SUFFIX)}{_OUTPUT_SUFFIX}")


def _results(found: Collection[Path]) -> set[Path]:
    """The files that are results of other files found: they have the mark, or the default name and the content."""
    originals = {each: each.with_name(f"{each.name.removesuffix(_OUTPUT_SUFFIX)}{SUFFIX}") for each in found}
    results = {
        each
        for each, original in originals.items()
        if each != original and original in found and is_result(each, original)
    }
    marked = {each: mark for each in found if each not in results and (mark := metadata(each).get(MARK))}
    for folder in {each.parent for each in marked}:
        of_folder = {result_mark(each, folder): each for each in found}
        results |= {each for each in marked if each.parent == folder and of_folder.get(marked[each], each) != each}
    return results


def _named_by(argument: Path, output: Path | None) -> list[ModelFile]:
    """The models that one argument names; a missing file is reported when it is read."""
    if os.path.isdir(argument):
        found = [ModelFile(each, each.relative_to(argument)) for each in _below(argument)]
    elif is_pattern(str(argument)) and not os.path.exists(argument):
        root = _fixed_part(argument)
        found = [ModelFile(each, each.relative_to(root)) for each in _matching(argument)]
    else:
        return [ModelFile(argument, Path(argument.name))]
    excluded = None if output is None or _is_same_folder(output, argument) else output
    found = [each for each in found if not _is_below(each.path, excluded)]
    if not found:
        what = "contains no *.onnx file to optimise" if os.path.isdir(argument) else "matches no model"
        raise ModelError(what, where=path_text(argument), hint="name a model, a folder of models or a pattern")
    return found


def _below(folder: Path) -> Iterator[Path]:
    """The *.onnx files of a folder and its subfolders, except hidden ones, sorted by name.

    Pipes, sockets and devices are left out, since reading them may not end. A link to a missing file is
    reported when it is read.
    """
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            is_pipe_or_device = os.path.exists(path) and not os.path.isfile(path)
            if name.endswith(SUFFIX) and not name.startswith(".") and not is_pipe_or_device:
                yield path


def _matching(pattern: Path) -> list[Path]:
    return [Path(each) for each in sorted(glob.glob(str(pattern), recursive=True)) if os.path.isfile(each)]


def _fixed_part(pattern: Path) -> Path:
    """The folder before the first part of a path that contains a pattern."""
    parts = pattern.parts
    count = next(number for number, part in enumerate(parts) if is_pattern(part))
    return Path(*parts[:count])


def _is_same_folder(first: Path, second: Path) -> bool:
    return os.path.realpath(first) == os.path.realpath(second)


def _is_below(path: Path, folder: Path | None) -> bool:
    return folder is not None and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
