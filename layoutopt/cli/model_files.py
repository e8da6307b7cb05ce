"""The models that arguments name (files, folders, patterns, stdin), and the files of their results."""

import glob
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from layoutopt.cli.app import is_pattern
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.output_files import STDIO
from layoutopt.errors import ModelError
from layoutopt.files import conflict, mark_of_model, path_text, result_mark
from layoutopt.record import Record

SUFFIX, _OUTPUT_SUFFIX = ".onnx", ".opt.onnx"


class Placement(Record):
    """A model and the file of its result.

    Attributes:
        model: the file; `-` for stdin.
        output: the file of the result; `-` for stdout.
        is_in_folder: whether the folder of the result is created if it does not exist.
    """

    model: Path
    output: Path
    is_in_folder: bool = False


def find_models(arguments: Sequence[Path], output: Path | None) -> dict[Path, Path]:
    """The models that the arguments name, without duplicates, in the order of the arguments and sorted in each folder.

    Folders are searched recursively for *.onnx. Hidden folders, files below `output`, and results of other models that are
    found are left out.

    Returns:
        The path of each model below the folder, or below the fixed part of the pattern, that was searched; else its name.

    Raises:
        ModelError: a folder or a pattern leads to no model.
    """
    found: dict[Path, tuple[Path, Path]] = {}
    for argument in arguments:
        for path, relative in _named_by(argument, output):
            found.setdefault(Path(os.path.abspath(path)), (path, relative))
    results = _results(found)  # also those that a shell names when it expands *.onnx
    return dict(pair for path, pair in found.items() if path not in results)


def _results(found: Collection[Path]) -> set[Path]:
    """The files that are results of other files found: they have the mark."""
    results: set[Path] = set()
    marked = {each: mark for each in found if (mark := mark_of_model(each))}
    for folder in {each.parent for each in marked}:
        of_folder = {result_mark(each, folder): each for each in found}
        results |= {each for each in marked if each.parent == folder and of_folder.get(marked[each], each) != each}
    return results


def _named_by(argument: Path, output: Path | None) -> list[tuple[Path, Path]]:
    """The models that one argument names, with their relative paths; a missing file is reported when it is read."""
    root, found = argument, []
    if os.path.isdir(argument):
        found = list(_below(argument))
    elif is_several(argument):
        count = next(number for number, part in enumerate(argument.parts) if is_pattern(part))
        root = Path(*argument.parts[:count])
        found = [Path(each) for each in sorted(glob.glob(str(argument), recursive=True)) if os.path.isfile(each)]
    else:
        return [(argument, Path(argument.name))]
    excluded = None if output is None else os.path.realpath(output)
    if excluded is not None and excluded != os.path.realpath(argument):
        found = [each for each in found if not Path(os.path.realpath(each)).is_relative_to(excluded)]
    if not found:
        what = "contains no *.onnx file to optimise" if os.path.isdir(argument) else "matches no model"
        raise ModelError(what, where=path_text(argument), hint="name a model, a folder of models or a pattern")
    return [(each, each.relative_to(root)) for each in found]


def _below(folder: Path) -> Iterator[Path]:
    """The *.onnx files of a folder and its subfolders, except hidden ones, sorted by name.

    Pipes, sockets and devices are left out, since reading them may not end. A link to a file that is missing or
    unreadable is reported when it is read.
    """
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(parent, name) for name in sorted(names) if not name.startswith(".")):
            if path.suffix == SUFFIX and (os.path.isfile(path) or not os.path.exists(path)):
                yield path


# --- results -----------------------------------------------------------------------------------------------


def with_output(arguments: Sequence[Path], output: str | None) -> tuple[Sequence[Path], str | None]:
    """The models, and the value of -o; the second of two files is the output if it is new or the result of the first.

    Raises:
        UsageError: the second file exists and is no result of the first.
    """
    if output is not None or len(arguments) != 2 or STDIO in arguments or any(map(is_several, arguments)):
        return arguments, output
    model, second = arguments
    if os.path.lexists(second):
        if mark_of_model(second) != result_mark(model, second.parent):
            hint = f"write -o {second} --force to replace it, or -o FOLDER to optimise both"
            raise UsageError(f"exists and is no result of {path_text(model)}", where=path_text(second), hint=hint)
    elif second.suffix != SUFFIX:
        return arguments, output
    return [model], str(second)


def place(arguments: Sequence[Path], output: str | None) -> list[Placement]:
    """The models that the arguments name, with the files of their results.

    Args:
        arguments: files, folders, patterns, or `-` alone.
        output: the folder or file of the results. For several models, a folder or a pattern it is a folder.

    Raises:
        ModelError: a folder or a pattern leads to no model.
        UsageError: two results would have one file, a result would replace another model that is read, or stdin or stdout is
            used for several models.
    """
    target = None if output is None else Path(output)
    takes_folder = len(arguments) > 1 or any(is_several(each) for each in arguments)
    if takes_folder and target is not None and (target == STDIO or is_file_name(target)):
        what = "several models need a folder"
        raise UsageError(what, where=f"-o {output}", hint="name a folder")
    if takes_folder and STDIO in arguments:
        raise UsageError("stdin is one model", where="-", hint="give `-` alone, or model files")
    is_folder = takes_folder or (output is not None and (output.endswith(os.sep) or os.path.isdir(output)))
    found = find_models(arguments, target if is_folder else None)
    if is_folder and STDIO in found and output is not None:
        raise UsageError("a model from stdin has no name", where=f"-o {output}", hint=f"name a file in {output}")
    placements = []
    for model, relative in found.items():
        result = target / relative if target is not None and is_folder else target
        default = STDIO if model == STDIO else model.with_name(f"{model.name.removesuffix(SUFFIX)}{_OUTPUT_SUFFIX}")
        placements.append(Placement(model, result or default, is_in_folder=is_folder and target is not None))
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
