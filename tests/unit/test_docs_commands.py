"""Every command of layoutopt in the documentation has a name and options that exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from layoutopt.cli.app import app, prepare_arguments

CHECKOUT = Path(__file__).parents[2]
PAGES = [*sorted(CHECKOUT.glob("*.md")), *sorted((CHECKOUT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_SHELL = ("sh", "bash", "console", "")
_PROMPT = re.compile(r"^ *(?:\$ )?((?:[A-Z_]+=\S+ )*layoutopt .*)$", re.MULTILINE)
_COMMAND = typer.main.get_command(app)


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every call of layoutopt in the code blocks of a page."""
    for language, block in _BLOCK.findall(text):
        if language not in _SHELL:
            continue
        for line in _PROMPT.findall(block.replace("\\\n", " ")):
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            yield from _calls(list(words))


def _calls(words: list[str]) -> Iterator[list[str]]:
    """The arguments of each call in a line, which `&&`, `|` and `>` separate."""
    call: list[str] | None = None
    for word in [*words, "&&"]:
        if set(word) <= set("&|;<>()"):
            if call is not None:
                yield call
            call = None
        elif call is not None:
            call.append(word)
        elif word == "layoutopt":
            call = []


def parse(arguments: list[str]) -> None:
    """Parse the arguments as the command line does, without running the command or reading a file.

    Raises:
        Exception: typer's usage error; its class depends on typer's version.
    """
    group = _COMMAND.make_context("layoutopt", [], resilient_parsing=True)
    prepared = prepare_arguments(arguments)
    _, rest, _ = _COMMAND.make_parser(group).parse_args(prepared)
    while rest:
        command = _COMMAND.get_command(group, rest[0])
        assert command is not None, f"there is no command {rest[0]}"
        context = type(group)(command, group, rest[0])
        values, extra, _ = command.make_parser(context).parse_args(rest[1:])
        assert not extra, f"unexpected {extra}"
        missing = [each.name for each in command.params if each.required and not values.get(each.name)]
        assert not missing, f"without {missing}"
        rest = []


def failure(arguments: list[str]) -> str:
    """The reason why the arguments are no command; empty if they are."""
    try:
        parse(arguments)
    except Exception as error:
        return f"layoutopt {shlex.join(arguments)}: {getattr(error, 'message', error)}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_commands_exist_with_their_options(page: Path) -> None:
    assert [each for call in commands(page.read_text()) if (each := failure(call))] == []
