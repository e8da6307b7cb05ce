"""The commands and the texts of `--help`; arguments before they are parsed: the implicit command, `--json` without a file.

layoutopt model.onnx             layoutopt optimize model.onnx
layoutopt -t cpu models/         layoutopt optimize -t cpu models/
layoutopt list ops --json        layoutopt list ops --json=-
"""

import os
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from layoutopt.cli import commands
from layoutopt.cli.exit_codes import UsageError, exit_codes
from layoutopt.cli.options import UNTYPED
from layoutopt.version import VERSION

DEFAULT_COMMAND = "optimize"
_ROOT_FLAGS = ("--version", "--traceback", "--install-completion", "--show-completion", "--help", "-h")
_JSON, _JSON_FILES = "--json", (".json", ".jsonl")
_STDIO = "-"
_REMOVED = {
    **{name: f"layoutopt list {name}" for name in ("ops", "runtimes", "passes", "dialects")},
    "cache": "rm -r FOLDER, also of single entries: a removed outcome is computed again",
    **{f"--{key}": f"--config {key}=VALUE" for key in UNTYPED},
}
"""Spellings of version 1 and the present ones; for one version."""

_EXAMPLES = """\b
Start with:
  layoutopt model.onnx               writes model.opt.onnx, for this CPU
  layoutopt models/ -o out/ -t cpu   optimises all models of a folder
  layoutopt inspect model.onnx       prints the plan, writes no model"""
_CODES = "\n".join(["\b\nExit codes:", *(f"  {code:>3}  {meaning}" for code, meaning in exit_codes().items())])
_ERRORS = """\b
On an error no model is written, and stderr has one line: the place, the fault
and the remedy. Output has colours on terminals; NO_COLOR=1 disables them."""


class CommandGroup(TyperGroup):
    """Resolves `layoutopt model.onnx ...` to `optimize`, also when the shell completes such a line."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the command and the remaining arguments."""
        is_implicit = bool(args) and args[0] not in self.commands and is_model(args[0])
        return super().resolve_command(ctx, [DEFAULT_COMMAND, *args] if is_implicit else args)


class Command(TyperCommand):
    """A command whose help text has its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section per group."""
        groups: dict[str, list[Any]] = {}
        for each in self.get_params(ctx):
            group = "Arguments" if each.param_type_name == "argument" else getattr(each, "rich_help_panel", None)
            if (record := each.get_help_record(ctx)) is not None:
                groups.setdefault(group or "Options", []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)


app = typer.Typer(
    cls=CommandGroup,
    help="Choose the memory format of every tensor of an ONNX model, and rewrite the model to move less data.",
    epilog="\n\n".join((_EXAMPLES, _CODES, _ERRORS)),
    rich_markup_mode=None,  # importing rich would take longer than everything else
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
COMMANDS = {
    "optimize": commands.optimize,
    "inspect": commands.inspect,
    "explain": commands.explain,
    "verify": commands.verify,
    "certify": commands.certify,
    "check": commands.check,
    "bench": commands.bench,
    "ci": commands.ci,
    "calibrate": commands.calibrate,
    "formats": commands.formats,
    "targets": commands.targets,
    "list": commands.list_,
}
for _name, _command in COMMANDS.items():
    app.command(_name, cls=Command)(_command)


def prepare_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments with an explicit command and a value for every `--json`.

    Args:
        arguments: those after the program's name.

    Raises:
        UsageError: the first argument is neither a command nor a file, a folder or a pattern.
    """
    result: list[str] = []
    arguments = _with_command(arguments)
    for number, each in enumerate(arguments):
        if each == "--":
            return [*result, *arguments[number:]]
        following = arguments[number + 1] if number + 1 < len(arguments) else ""
        has_file = following == _STDIO or following.endswith(_JSON_FILES)
        result.append(f"{_JSON}={_STDIO}" if each == _JSON and not has_file else each)
    return result


def is_pattern(argument: str) -> bool:
    """Whether an argument is a pattern of file names, such as `models/*.onnx`."""
    return any(each in argument for each in "*?[")


def is_model(argument: str) -> bool:
    """Whether an argument names a model rather than a command: stdin, a file, a folder, a pattern or a path."""
    has_form = argument == _STDIO or argument.endswith(".onnx") or os.sep in argument or is_pattern(argument)
    return has_form or os.path.lexists(argument)


def _with_command(arguments: Sequence[str]) -> list[str]:
    position = next((number for number, each in enumerate(arguments) if each not in _ROOT_FLAGS), None)
    if position is None or arguments[position] in COMMANDS:
        return list(arguments)
    first, rest = arguments[position], arguments[position + 1 :]
    is_option = first.startswith("-") and first != _STDIO
    if not is_option and not is_model(first):
        raise _unknown_command(first, rest)
    return [*arguments[:position], DEFAULT_COMMAND, first, *rest]


def _unknown_command(name: str, rest: Sequence[str]) -> UsageError:
    if present := present_spelling(name):
        return UsageError("this command is removed", where=name, hint=f"type: {present}")
    near = get_close_matches(name, COMMANDS, 1)
    command = shlex.join(["layoutopt", *near, *rest])
    hint = f"type: {command}" if near else f"give a model such as model.onnx, or a command: {', '.join(COMMANDS)}"
    return UsageError("no such command, file or folder", where=name, hint=hint)


def present_spelling(name: str) -> str:
    """The present spelling of a command or an option of version 1; empty if there was none."""
    return _REMOVED.get(name, "")


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"layoutopt {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Print the traceback of an error; also LAYOUTOPT_TRACEBACK=1.")
    ] = False,
) -> None:
    if traceback:
        context.obj.traceback = True
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
