"""Command-line arguments before they are parsed: the implicit command `optimize`, and `--json` without a file.

layoutopt model.onnx             layoutopt optimize model.onnx
layoutopt -t cpu models/         layoutopt optimize -t cpu models/
layoutopt ops Conv --json        layoutopt ops Conv --json=-
"""

import os
import shlex
from collections.abc import Sequence
from difflib import get_close_matches

from layoutopt.cli.exit_codes import UsageError

DEFAULT_COMMAND = "optimize"
_ROOT_FLAGS = ("--version", "--traceback", "--install-completion", "--show-completion", "--help", "-h")
_JSON = "--json"
_JSON_FILES = (".json", ".jsonl")
_STDIO = "-"
_PATTERN_CHARACTERS = "*?["


def prepare_arguments(arguments: Sequence[str], commands: Sequence[str]) -> list[str]:
    """The arguments with an explicit command and a value for every `--json`.

    Args:
        arguments: those after the program's name.
        commands: the names of all commands.

    Raises:
        UsageError: the first argument is neither a command nor a file, a folder or a pattern.
    """
    return _with_json_values(_with_command(arguments, commands))


def is_pattern(argument: str) -> bool:
    """Whether an argument is a pattern of file names, such as `models/*.onnx`."""
    return any(each in argument for each in _PATTERN_CHARACTERS)


def is_model(argument: str) -> bool:
    """Whether an argument names a model rather than a command: stdin, a file, a folder, a pattern or a path."""
    has_form = argument == _STDIO or argument.endswith(".onnx") or os.sep in argument or is_pattern(argument)
    return has_form or os.path.lexists(argument)


def _with_command(arguments: Sequence[str], commands: Sequence[str]) -> list[str]:
    position = next((number for number, each in enumerate(arguments) if each not in _ROOT_FLAGS), None)
    if position is None or arguments[position] in commands:
        return list(arguments)
    first, rest = arguments[position], arguments[position + 1 :]
    is_option = first.startswith("-") and first != _STDIO
    if not is_option and not is_model(first):
        raise _unknown_command(first, rest, commands)
    return [*arguments[:position], DEFAULT_COMMAND, first, *rest]


def _unknown_command(name: str, rest: Sequence[str], commands: Sequence[str]) -> UsageError:
    near = get_close_matches(name, commands, 1)
    command = shlex.join(["layoutopt", *near, *rest])
    hint = f"type: {command}" if near else f"give a model such as model.onnx, or a command: {', '.join(commands)}"
    return UsageError("no such command, file or folder", where=name, hint=hint)


def _with_json_values(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--json=-` for each `--json` that no file follows: `-`, or a name in .json or .jsonl."""
    result: list[str] = []
    for number, each in enumerate(arguments):
        if each == "--":
            return [*result, *arguments[number:]]
        following = arguments[number + 1] if number + 1 < len(arguments) else ""
        has_file = following == _STDIO or following.endswith(_JSON_FILES)
        result.append(f"{_JSON}={_STDIO}" if each == _JSON and not has_file else each)
    return result
