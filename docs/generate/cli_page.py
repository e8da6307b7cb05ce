"""The page `reference/cli.md`: every command, argument and option, from the typer app."""

from collections.abc import Iterator
from typing import Any

import typer
from tables import code, table

from layoutopt.cli.app import app
from layoutopt.cli.exit_codes import exit_codes

_INTRODUCTION = """\
# Commands and options

Generated from the command line itself. [Command line](../cli.md) describes what the commands do.
"""


def cli_page() -> str:
    """The page as Markdown."""
    group = typer.main.get_command(app)
    context = group.make_context("layoutopt", [], resilient_parsing=True)
    parts = [_INTRODUCTION, "## layoutopt\n", *_description(group, context)]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        parts += [f"## {name}\n", *_description(command, type(context)(command, context, name))]
    codes = table(("code", "meaning"), exit_codes().items())
    return "\n".join(
        [*parts, "## Exit codes\n", codes, "[Troubleshooting](../troubleshooting.md) has a remedy for each.\n"]
    )


def _description(command: Any, context: Any) -> Iterator[str]:
    """Usage, help text, arguments and options of a command."""
    yield f"```text\n{' '.join(command.get_usage(context).split())}\n```\n"
    yield f"{command.help}\n"
    for kind, meaning in (("argument", "meaning"), ("option", "effect")):
        records = [each.get_help_record(context) for each in command.params if each.param_type_name == kind]
        if records:
            yield table((kind, meaning), [(code(name), text) for name, text in records])
