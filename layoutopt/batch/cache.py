"""The cache: outcomes by key, in a folder that several processes and machines may use at the same time.

    FOLDER/CACHEDIR.TAG                 marks the folder as a cache
    FOLDER/3f/3f9a.../outcome           the SHA-256 of the second line; a line of JSON: key, report, SHA-256 of model and files
    FOLDER/3f/3f9a.../model.onnx        the result, with its external data

An entry is written to a temporary folder, which is then renamed, so that it is complete or absent; of two processes with the
same entry the first keeps it. Nothing is locked, and there is no database: SQLite, which diskcache uses, is not safe on network
file systems. Content is compared with its hash whenever it is read.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from layoutopt.batch.keys import file_digest, model_digest
from layoutopt.errors import ArgumentError
from layoutopt.files import path_text, scratch_folder
from layoutopt.report.schema import Report

MODEL = "model.onnx"
"""The name of the result in an entry."""

_TAG = "CACHEDIR.TAG"
_TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache of layoutopt. See https://bford.info/cachedir/\n"
_OUTCOME, _KEY = "outcome", re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A kept outcome.

    Attributes:
        report: the report.
        model: the file of the result; None if the model stays unchanged.
    """

    report: Report
    model: Path | None


class Cache:
    """Outcomes by key, in a folder, which is created when the first one is kept.

    Args:
        folder: the folder.

    Raises:
        ArgumentError: it is a file, or a folder with other files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        has_tag = _is_tagged(folder)
        if os.path.lexists(folder) and not has_tag and (not folder.is_dir() or any(_visible(folder))):
            what = "is no cache of layoutopt"
            raise ArgumentError(what, where=path_text(folder), hint="name a new or an empty folder")

    def find(self, key: str, source: Path) -> Entry | None:
        """The entry of a key and a model file; None if there is none. An entry that is damaged or another's is removed."""
        folder = self._folder(key)
        try:
            digest, _, line = (folder / _OUTCOME).read_bytes().partition(b"\n")
            content = json.loads(line)
            whole = hashlib.sha256(line).hexdigest().encode()
            if (whole, content["key"], content["source"]) != (digest, key, model_digest(source)):
                raise ValueError
            files = dict(content["files"])
            if any(file_digest(folder / name) != expected for name, expected in files.items()):
                raise ValueError
            return Entry(Report.model_validate(content["report"]), folder / MODEL if MODEL in files else None)
        except (OSError, ValueError, KeyError, TypeError):
            with suppress(OSError):
                (folder / _OUTCOME).unlink()  # first, so that nobody finds the entry half removed
                shutil.rmtree(folder)
            return None

    def keep(self, key: str, source: Path, report: Report, save: Callable[[Path], object] | None) -> None:
        """Keep an outcome; an entry of the same key stays.

        Args:
            key: the key.
            source: the model file.
            report: the report.
            save: writes the result to a file, and external data next to it; None for no file.

        Raises:
            OSError, LayoutoptError: it cannot be written; nothing is left behind then.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not _is_tagged(self.folder):
            _write_tag(self.folder)
        with scratch_folder(self.folder) as temporary:
            if save is not None:
                save(temporary / MODEL)
            files = {each.name: file_digest(each) for each in sorted(temporary.iterdir())}
            content = {
                "key": key,
                "source": model_digest(source),
                "files": files,
                "report": report.model_dump(mode="json"),
            }
            line = json.dumps(content).encode()
            with (temporary / _OUTCOME).open("xb") as file:
                file.write(hashlib.sha256(line).hexdigest().encode() + b"\n" + line)
                file.flush()
                os.fsync(file.fileno())
            target = self._folder(key)
            target.parent.mkdir(exist_ok=True)
            if not (target / _OUTCOME).exists():  # perhaps the rest of an entry that was being removed
                shutil.rmtree(target, ignore_errors=True)
            try:
                os.rename(temporary, target)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # kept by another process
                    raise

    def entries(self) -> list[Path]:
        """The folders of all entries, in no particular order. Any of them may be removed at any time."""
        return [folder for folder in self.folder.glob("[0-9a-f][0-9a-f]/*") if _KEY.fullmatch(folder.name)]

    def _folder(self, key: str) -> Path:
        return self.folder / key[:2] / key


def _visible(folder: Path) -> Iterator[Path]:
    """The files of a folder; without temporary folders, which another process may have begun."""
    return (each for each in folder.iterdir() if not each.name.startswith(".layoutopt-"))


def _is_tagged(folder: Path) -> bool:
    try:
        return "layoutopt" in (folder / _TAG).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _write_tag(folder: Path) -> None:
    with scratch_folder(folder) as temporary:
        (temporary / _TAG).write_text(_TAG_TEXT, encoding="utf-8")
        os.replace(temporary / _TAG, folder / _TAG)
