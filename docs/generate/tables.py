"""Markdown tables."""

from collections.abc import Iterable, Sequence


def line(text: object) -> str:
    """The text in one line, with escaped bars."""
    return " ".join(str(text).split()).replace("|", "\\|")


def code(text: object) -> str:
    """The text as code, or nothing for an empty text; for a cell of `table`."""
    return f"`{text}`" if str(text) else ""


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; cells are Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(line, cells))} |" for cells in lines) + "\n"
