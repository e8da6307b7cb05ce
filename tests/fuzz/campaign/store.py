"""The JSON-lines file of a campaign: sessions, tasks and the outcomes of examples, appended as they come."""

import fcntl
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

NAME = "outcomes.jsonl"


class StoreError(Exception):
    """The folder cannot be used, in one line."""


class Store:
    """The outcomes in a folder, which one command at a time may append to.

    Args:
        folder: is created if missing.
        settings: what determines the examples; it must be that of earlier sessions in the folder.

    Raises:
        StoreError: another command uses the folder, or it belongs to a campaign with other settings.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / NAME
        self._file = path.open("a+", encoding="utf-8")
        try:
            self._lock(folder)
            _drop_partial_line(path)
            self.lines = list(lines_of(folder))
            self._check(folder, settings)
        except BaseException:
            self._file.close()
            raise

    def _lock(self, folder: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(f"{folder}: another campaign is writing here; choose another --output") from None

    def _check(self, folder: Path, settings: dict[str, Any]) -> None:
        for line in self.lines:
            for key, value in line.get("session", {}).get("settings", {}).items():
                if settings[key] != value:
                    text = f"is a campaign with {key} {value}, not {settings[key]}; choose another --output"
                    raise StoreError(f"{folder}: {text}")

    def append(self, lines: Iterable[dict[str, Any]]) -> None:
        """Append lines to the file, at once."""
        lines = list(lines)
        self._file.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        self._file.flush()
        self.lines += lines

    def close(self) -> None:
        """Let other commands append."""
        self._file.close()


def lines_of(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of a campaign's file.

    Raises:
        StoreError: there is none, or a line is malformed.
    """
    path = folder / NAME
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    found = json.loads(line)
                except ValueError:
                    raise StoreError(f"{path}: line {number} is not JSON; remove the line") from None
                yield found
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; name the --output folder of a campaign") from None


def _drop_partial_line(path: Path) -> None:
    """Remove a line that a killed command has not written to its end."""
    with path.open("rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
