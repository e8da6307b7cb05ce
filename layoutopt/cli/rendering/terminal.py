"""Printed results: documents of facts and tables; colours on terminals, plain lines without wrapping in files and pipes.

A document renders the records that JSON has: a scalar is a row of a label and a value, a list of texts is several rows, and
a list of records is a table.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from msgspec import field
from pydantic import BaseModel

from layoutopt.cli.exit_codes import StdoutError
from layoutopt.record import Record
from layoutopt.report.printable import printable
from layoutopt.report.schema import Fact
from layoutopt.report.units import seconds, size

if TYPE_CHECKING:  # a line in a file or pipe needs no rich
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

Line: TypeAlias = tuple[tuple[str, str], ...]
"""A line of several spans: printable texts with their styles."""
Row: TypeAlias = Mapping[str, Any]
"""One row of a table: its values by column."""

_UNLIMITED = 20_000  # columns of a file or pipe
_EMPTY: tuple[object, ...] = (None, "", [], (), {})
_VERSION = "layoutopt_version"
_NUMBER = re.compile(r"[-+]?\d")
_NON_ASCII = re.compile(r"[^\x00-\x7e]")
_TONES = {"good": "green", "bad": "bold red", "absent": "yellow", "plain": ""}
_WORDS = {
    "good": ["passed", "equal", "compatible", "faster", "kernel", "proven", "changed", "chosen", "folded"],
    "bad": ["failed", "slower", "missing", "error", "over budget", "regression"],
    "absent": ["warning", "composed", "unknown", "no difference shown"],
}
_STYLES = {word: _TONES[tone] for tone, words in _WORDS.items() for word in words}


class Document(Record, kw_only=True):
    """The text of a result.

    Attributes:
        title: the first line.
        aside: the end of that line.
        facts: rows of a label and a value.
        record: further rows, and tables: the lists of records in it. Empty values are left out.
        note: the last line.
    """

    title: str
    aside: str = ""
    facts: Iterable[Fact] = ()
    record: Row = field(default_factory=dict)
    note: str = ""


def documents_text(*documents: Document) -> str:
    """The lines of documents."""
    parts: list[RenderableType | Line] = []
    for number, each in enumerate(documents):
        parts += [*([()] if number else []), *_parts(each)]
    return rendered(*parts)


def _parts(document: Document) -> "Iterable[RenderableType | Line]":
    from rich.padding import Padding
    from rich.table import Table

    yield line((document.title, "bold"), (f"  {document.aside}" if document.aside else "", "dim"))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for fact in document.facts:
        grid.add_row(fact.label, _text(fact_line(fact)))
    shown = {key: value for key, value in document.record.items() if value not in _EMPTY and key != _VERSION}
    tables = {key: value for key, value in shown.items() if is_table(value)}
    for key, value in shown.items():
        lines = value if isinstance(value, list | tuple) and isinstance(value[0], str) else [value]
        for number, each in enumerate([] if key in tables else lines):
            grid.add_row("" if number else _label(key), _cell(key, each))
    yield Padding(grid, (0, 0, 0, 2), expand=False)
    for key, rows in tables.items():
        yield from ((), *([((f"  {_label(key)}", "bold"),)] if key else []))
        yield Padding(table(rows), (0, 0, 0, 4), expand=False)
    if document.note:
        yield from ((), ((document.note, "dim"),))


def is_table(value: object) -> bool:
    """Whether a value is a list of records."""
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)


def table(rows: Sequence[Row]) -> "Table":
    """A table without rules; columns of numbers are aligned to the right."""
    from rich.table import Table

    result = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    cells: dict[str, list[Text]] = {}
    for key in dict.fromkeys(key for row in rows for key in row):
        found = [_cell(key, row.get(key)) for row in rows]
        if any(found):
            cells[key] = found
    for key, column in cells.items():
        is_number = all(_NUMBER.match(each.plain) for each in column if each)
        result.add_column(_label(key), justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in zip(*cells.values(), strict=True):
        result.add_row(*row)
    return result


def fact_line(fact: Fact, detail: str = "  {}") -> Line:
    """The value of a fact in the colour of its tone, and its detail in some form."""
    return line((fact.value, _TONES[fact.tone]), (detail.format(fact.detail) if fact.detail else "", "dim"))


def _label(key: str) -> str:
    return printable(key.removesuffix("_seconds").replace("_", " "))


def _cell(key: str, value: Any) -> "Text":
    if isinstance(value, Fact):
        return _text(fact_line(value))
    shown = printable(value_text(key, value))
    return _text(((shown, _STYLES.get(shown, "")),))


def _text(line: Line) -> "Text":
    from rich.text import Text

    return Text.assemble(*line)


def value_text(key: str, value: Any) -> str:
    """A value of a record; the end of its key names its unit."""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{_label(name)} {value_text(name, each)}" for name, each in value.items() if each not in _EMPTY
        )
    if isinstance(value, list | tuple):
        texts = [value_text(key, each) for each in value]
        return ("; " if any(" " in each for each in texts) else " ").join(texts)
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "no"}[value]
    if isinstance(value, int | float):
        for unit, text in _UNITS.items():
            if key.endswith(unit):
                return text(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_UNITS: Mapping[str, Callable[[Any], str]] = {"seconds": seconds, "bytes": size, "percent": "{:.3g} %".format}

# --- streams -----------------------------------------------------------------------------------------------


def console(stream: TextIO, file: TextIO | None = None) -> "Console":
    """A rich console with the colours and width of `stream`, which writes to `file` if it is given."""
    from rich.console import Console

    return Console(
        file=file or stream,
        force_terminal=True if stream.isatty() else None,
        width=None if stream.isatty() else _UNLIMITED,
        markup=False,
        highlight=False,
        emoji=False,
    )


def rendered(*parts: "RenderableType | Line") -> str:
    """The lines of some parts in the colours and the width of stdout, without trailing blanks."""
    page = StringIO()
    is_plain = not sys.stdout.isatty() and not any(map(os.environ.get, ("FORCE_COLOR", "TTY_COMPATIBLE")))
    for part in parts:
        if not isinstance(part, tuple):
            console(sys.stdout, page).print(part)
        elif is_plain:
            page.write(f"{''.join(content for content, _ in part)}\n")
        else:
            console(sys.stdout, page).print(_text(part))
    return "".join(f"{each.rstrip()}\n" for each in page.getvalue().splitlines())


def show_text(content: str, note: str = "") -> None:
    """Print text on stdout unchanged; `note` is the end of the hint if that fails.

    Raises:
        StdoutError: stdout cannot be written.
    """
    try:
        sys.stdout.write(content)
        sys.stdout.flush()
    except OSError as error:  # typer handles some of these errors differently
        raise stdout_error(error, note) from error


def stdout_error(error: OSError, note: str = "") -> StdoutError:
    """The error of stdout that cannot be written."""
    return StdoutError((error.strerror or str(error)).lower(), where="stdout", hint=f"redirect it elsewhere{note}")


def line(*spans: tuple[str, str]) -> Line:
    """One line of several spans, each with its style; control characters are replaced."""
    return tuple((printable(content), style) for content, style in spans)


# --- JSON --------------------------------------------------------------------------------------------------


def json_text(data: Any, indent: int | None = 2) -> str:
    """Serialise data, or a pydantic model, as indented JSON with a final line break; with `indent=None` as one line.

    Printable characters of all scripts are kept. Others, such as C1 controls and marks of text direction, are escaped.
    """
    is_model = isinstance(data, BaseModel)
    text = data.model_dump_json(indent=indent) if is_model else json.dumps(data, indent=indent, ensure_ascii=False)
    return f"{_NON_ASCII.sub(_escaped, text)}\n"


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() else json.dumps(char)[1:-1]
