"""The output of `cache`."""

import time
from collections.abc import Sequence

from rich.text import Text

from layoutopt.batch.cache import Cache, StoredEntry
from layoutopt.cli.files.json_record import JsonRecord
from layoutopt.cli.rendering.terminal import key_values, show, size, styled_line, text
from layoutopt.files import path_text

_UNITS = (("days", 24 * 3600), ("hours", 3600), ("minutes", 60), ("s", 1))


def print_cache(cache: Cache, removed: Sequence[StoredEntry], record: JsonRecord, *, is_quiet: bool) -> None:
    """Print the number, the size and the age of the entries, and of those that were removed; `is_quiet`: only the record."""
    now = time.time()
    entries = sorted(cache.entries(), key=lambda entry: entry.used)
    record.write(
        {
            "folder": path_text(cache.folder),
            "entries": [
                {"key": each.folder.name, "bytes": each.nbytes, "seconds_unused": round(now - each.used, 3)}
                for each in entries
            ],
            "removed": [each.folder.name for each in removed],
        }
    )
    if record.is_printed or is_quiet:
        return
    rows = [("entries", _counted(entries))]
    if entries:
        newest, oldest = (_duration(now - each.used) for each in (entries[-1], entries[0]))
        rows.append(("last used", text(f"between {oldest} and {newest} ago")))
    if removed:
        rows.append(("removed", _counted(removed)))
    show(styled_line((path_text(cache.folder), "bold")), key_values(*rows))


def _counted(entries: Sequence[StoredEntry]) -> Text:
    return text(f"{len(entries)}, {size(sum(each.nbytes for each in entries))}")


def _duration(seconds: float) -> str:
    """A duration as a whole number in days, hours, minutes or s."""
    unit, scale = next((unit for unit in _UNITS if seconds >= 2 * unit[1]), _UNITS[-1])
    return f"{seconds // scale:.0f} {unit}"
