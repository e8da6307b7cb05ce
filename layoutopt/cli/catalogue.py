"""The catalogue of formats as a table."""

from dataclasses import asdict

import typer

from layoutopt.cli.terminal import line, show, show_json, table, text
from layoutopt.formats import Entry, entries


def print_catalogue(system: str | None, as_json: bool) -> None:
    """All formats that have names, or those of one system."""
    chosen = _of_system(system)
    if as_json:
        show_json([asdict(entry) for entry in chosen])
        return
    rows = table("=name", "=system", "=spelling", "=axes", "note")
    for entry in chosen:
        rows.add_row(
            text(entry.name, "bold"), text(entry.system, "dim"), text(entry.spelling, "cyan"), text(entry.axes), text(entry.note)
        )
    sources = table("=", "")
    for name, source in dict.fromkeys((entry.system, entry.source) for entry in chosen):
        sources.add_row(text(name, "dim"), text(source.removeprefix(f"{name} "), "dim"))
    how = "Every spelling is a name too: NCHW8c, CHWN, OIHW4i16o. {C0} follows from --dtype."
    show(rows, line("\n", ("sources", "bold")), sources, line("\n", (how, "dim")))


def _of_system(system: str | None) -> list[Entry]:
    systems = list(dict.fromkeys(entry.system for entry in entries()))
    if system is None:
        return list(entries())
    chosen = [entry for entry in entries() if entry.system.casefold() == system.casefold()]
    if not chosen:
        raise typer.BadParameter(f"--system {system}: there are {', '.join(systems)}")
    return chosen
