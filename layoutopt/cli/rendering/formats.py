"""The output of `formats`: the catalogue of named formats."""

from dataclasses import asdict

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import footnote, section, show, table, text
from layoutopt.formats import Entry, entries


def print_formats(system: str | None, json: JsonRecord) -> None:
    """Print all named formats, or those of one system.

    Raises:
        UsageError: there is no such system.
    """
    chosen = _of_system(system)
    json.write({"formats": [asdict(entry) for entry in chosen]})
    if json.is_printed:
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
    footnote("Format strings such as NCHW8c, CHWN or OIHW4i16o are accepted as names. {C0} depends on --dtype.")


def _of_system(system: str | None) -> list[Entry]:
    if system is None:
        return list(entries())
    chosen = [entry for entry in entries() if entry.system.casefold() == system.casefold()]
    if not chosen:
        known = ", ".join(dict.fromkeys(entry.system for entry in entries()))
        raise UsageError("no such system", where=f"--system {system}", hint=f"there are {known}")
    return chosen
