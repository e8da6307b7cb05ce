"""Primitives of printed output: colours and ellipses on terminals, plain lines without wrapping in files and pipes."""

import os
import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TextIO, TypeAlias

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from layoutopt.cli.exit_codes import StdoutError
from layoutopt.report.printable import printable
from layoutopt.report.units import seconds, size

_UNLIMITED = 20_000  # columns of a file or pipe


def console(stream: TextIO, file: TextIO | None = None) -> Console:
    """A rich console with the colours and width of `stream`, which writes to `file` if it is given."""
    return Console(
        file=file or stream,
        force_terminal=True if stream.isatty() else None,
        width=None if stream.isatty() else _UNLIMITED,
        markup=False,
        highlight=False,
        emoji=False,
    )


def show(*parts: RenderableType) -> None:
    """Print on stdout, without trailing blanks."""
    show_text(rendered(*parts))


def rendered(*parts: RenderableType) -> str:
    """The lines that `show` prints."""
    page = StringIO()
    printer = console(sys.stdout, page)
    for part in parts:
        printer.print(part)
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def show_text(content: str) -> None:
    """Print text on stdout unchanged.

    Raises:
        StdoutError: stdout cannot be written.
    """
    try:
        sys.stdout.write(content)
        sys.stdout.flush()
    except OSError as error:  # typer handles some of these errors differently
        what = (error.strerror or str(error)).lower()
        raise StdoutError(what, where="stdout", hint="redirect it elsewhere") from error


Cell: TypeAlias = Text | str | int | tuple[object, str]
"""A text, or a pair of a text and its style."""


def text(value: object, style: str = "") -> Text:
    """One span of text; control characters are replaced."""
    if isinstance(value, Text):
        return value
    if isinstance(value, tuple):
        return text(*value)
    return Text(printable(str(value)), style)


def styled_line(*spans: Cell) -> Text:
    """One line of several spans."""
    whole = Text()
    for span in spans:
        whole.append_text(text(span))
    return whole


def section(title: str, aside: str, content: RenderableType) -> None:
    """Print a heading and, indented, its content."""
    show(styled_line(), styled_line((title, "bold"), (f"  {aside}" if aside else "", "dim")), indented(content))


def footnote(content: str) -> None:
    """Print a note below the output."""
    show(styled_line(), text(content, "dim"))


def indented(content: RenderableType) -> Padding:
    """The content, indented by two columns."""
    return Padding(content, (0, 0, 0, 2), expand=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, last: str = "") -> Table:
    """A table without rules, whose last row has the style `last`.

    A column title may begin with `>` (right-aligned, never wrapped) or `=` (never wrapped).
    """
    result = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        title = column.lstrip(">=")
        result.add_column(
            title,
            justify="right" if column.startswith(">") else "left",
            no_wrap=title != column,
            overflow="ellipsis" if title != column else "fold",
        )
    result.show_header = any(column.header for column in result.columns)
    for row in rows:
        result.add_row(*map(text, row))
    if result.rows:
        result.rows[-1].style = last
    return result


def key_values(*rows: tuple[str, Cell]) -> Padding:
    """Rows of a label and a value."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(label, text(value))
    return indented(grid)


def file_size(*paths: str | os.PathLike[str]) -> int:
    """Total bytes of the files that exist."""
    return sum(os.path.getsize(path) for path in paths if os.path.isfile(path))


__all__ = [
    "Cell",
    "console",
    "file_size",
    "footnote",
    "indented",
    "key_values",
    "seconds",
    "section",
    "show",
    "show_text",
    "size",
    "styled_line",
    "table",
    "text",
]
