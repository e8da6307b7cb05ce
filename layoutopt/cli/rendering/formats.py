"""The catalogue of formats as a table."""

from dataclasses import asdict

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.rendering.terminal import remark, section, show, show_json, table, text
from layoutopt.formats import Entry, entries


def print_catalogue(system: str | None, as_json: bool) -> None:
    """All formats that have names, or those of one system.

    Raises:
        UsageError: there is no such system.
    """
    chosen = _of_system(system)
    if as_json:
        show_json([asdict(entry) for entry in chosen])
        return
    rows = table("=name", "=system", "=notation", "=axes", "note")
    for entry in chosen:
        name, notation = text(entry.name, "bold"), text(entry.notation, "cyan")
        rows.add_row(name, text(entry.system, "dim"), notation, text(entry.axes), text(entry.note, "dim"))
    show(rows)
    sources = table("=", "")
    for where, source in dict.fromkeys((entry.system, entry.source) for entry in chosen):
        sources.add_row(where, text(source.removeprefix(f"{where} "), "dim"))
    section("sources", "", sources)
    remark("Spellings are names too: NCHW8c, CHWN, OIHW4i16o. What {C0} is follows from --dtype.")


def _of_system(system: str | None) -> list[Entry]:
    if system is None:
        return list(entries())
    chosen = [entry for entry in entries() if entry.system.casefold() == system.casefold()]
    if not chosen:
        there = ", ".join(dict.fromkeys(entry.system for entry in entries()))
        raise UsageError("no such system", where=f"--system {system}", hint=f"there are {there}")
    return chosen
