"""What the commands print with: colours and ellipses on terminals, plain lines that never wrap elsewhere."""

import os
import sys
from io import StringIO
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from layoutopt.cli.exit_codes import StdoutError
from layoutopt.cli.rendering.json_text import json_text

_UNLIMITED = 20_000  # columns of what is no terminal


def console(stream: TextIO, file: TextIO | None = None) -> Console:
    """What prints as it suits a stream; into a file of its own if there is one."""
    return Console(
        file=file or stream,
        force_terminal=True if stream.isatty() else None,
        width=None if stream.isatty() else _UNLIMITED,
        markup=False,
        highlight=False,
        emoji=False,
    )


def show(*parts: RenderableType) -> None:
    """Print, without the blanks that tables end lines with."""
    page = StringIO()
    printer = console(sys.stdout, page)
    for part in parts:
        printer.print(part)
    show_text("".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines()))


def show_json(data: Any) -> None:
    """Print data for machines."""
    show_text(json_text(data))


def show_text(content: str) -> None:
    """Print text as it is.

    Raises:
        StdoutError: it cannot be printed.
    """
    try:
        sys.stdout.write(content)
        sys.stdout.flush()
    except OSError as error:  # typer would handle some of them in its own way
        what = (error.strerror or str(error)).lower()
        raise StdoutError(what, where="stdout", hint="redirect it elsewhere") from error


def plain(value: object) -> str:
    """Names come from files; what would steer the terminal is replaced."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(value))


def text(value: object, style: str = "") -> Text:
    """Text as it is."""
    return Text(plain(value), style)


def line(*spans: str | tuple[str, str] | Text) -> Text:
    """One line of text and (text, style) pairs."""
    whole = Text()
    for span in spans:
        if isinstance(span, Text):
            whole.append_text(span)
        else:
            whole.append_text(text(span) if isinstance(span, str) else text(*span))
    return whole


def section(title: str, aside: str, content: RenderableType) -> None:
    """Print something under a heading."""
    show(line(), line((title, "bold"), (f"  {aside}" if aside else "", "dim")), indented(content))


def remark(content: str) -> None:
    """Print what to know besides."""
    show(line(), text(content, "dim"))


def indented(content: RenderableType) -> Padding:
    """Two columns to the right."""
    return Padding(content, (0, 0, 0, 2), expand=False)


def table(*columns: str) -> Table:
    """A table without lines. Columns are marked: `>` is right-aligned; that and `=` is never cut or wrapped."""
    result = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        title = column.lstrip(">=")
        result.add_column(
            title,
            justify="right" if column.startswith(">") else "left",
            no_wrap=title != column,
            overflow="ellipsis",
        )
    result.show_header = any(column.header for column in result.columns)
    return result


def facts(*rows: tuple[str, RenderableType]) -> Padding:
    """Labels and what there is to say to them."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(label, value)
    return indented(grid)


def seconds(value: float) -> str:
    """A duration with three digits, in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale * 0.9995:
            return f"{_digits(value / scale)} {unit}"
    return f"{_digits(value / 1e-9)} ns" if value else "0"


def size(count: int) -> str:
    """A number of bytes with three digits."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale * 0.9995:
            return f"{_digits(count / scale)} {unit}"
    return f"{count} B"


def _digits(value: float) -> str:
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def file_size(*paths: str | os.PathLike[str]) -> int:
    """Bytes of some files together; those that are not there count nothing."""
    return sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
