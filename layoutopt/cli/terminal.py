"""What the commands print with: colours and ellipses on terminals, plain text that never wraps everywhere else."""

import json
import os
import sys
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from layoutopt.cli.exit_codes import StdoutError

_UNLIMITED = 100_000  # columns of what is no terminal


def console(stream: TextIO) -> Console:
    """Where to print."""
    width = None if stream.isatty() else _UNLIMITED
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def show(*parts: RenderableType, stream: TextIO | None = None) -> None:
    """Print, without the blanks that tables end lines with."""
    stream = stream or sys.stdout
    printer = console(stream)
    with printer.capture() as capture:
        for part in parts:
            printer.print(part)
    _write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()), stream)


def show_json(data: Any) -> None:
    """Print data for machines."""
    show_text(f"{json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)}\n")


def show_text(content: str) -> None:
    """Print text as it is."""
    _write(content, sys.stdout)


def _write(content: str, stream: TextIO) -> None:
    try:
        stream.write(content)
        stream.flush()
    except OSError as error:  # typer would handle some of them in its own way
        raise StdoutError((error.strerror or str(error)).lower(), where="stdout", hint="redirect it elsewhere") from error


def text(value: object, style: str = "") -> Text:
    """Text as it is; names come from files, so what would steer the terminal is replaced."""
    return Text("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(value)), style)


def line(*spans: str | tuple[str, str] | Text) -> Text:
    """One line of text and (text, style) pairs."""
    whole = Text()
    for span in spans:
        whole.append_text(span if isinstance(span, Text) else text(span) if isinstance(span, str) else text(*span))
    return whole


def heading(title: str, aside: str = "") -> Text:
    """The line above a table."""
    return line("\n", (title, "bold"), (f"  {aside}" if aside else "", "dim")) if title else line()


def table(*columns: str) -> Table:
    """A table without lines. A column is named with a mark: `>` is right-aligned, `=` never cut or wrapped."""
    result = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        title = column.lstrip(">=")
        marks = column[: len(column) - len(title)]
        result.add_column(
            title, justify="right" if ">" in marks else "left", no_wrap=bool(marks), overflow="ellipsis"
        )
    return result


def facts(*rows: tuple[str, RenderableType]) -> Table:
    """Labels and what there is to say to them."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(f"  {label}", value)
    return grid


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
    """Bytes of some files together; those that are gone count nothing."""
    return sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
