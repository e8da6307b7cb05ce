"""Files that are written whole or not at all, and found to be writable before any work is done."""

import errno
import os
import secrets
from pathlib import Path

from layoutopt.errors import OutputError

_REASONS = {
    errno.ENOENT: ("the folder does not exist", "create it first"),
    errno.ENOTDIR: ("the folder is a file", "name another folder"),
}


class Staged:
    """A text file next to its final place, which it takes when it is told to.

    Raises:
        OutputError: on creation, if a file cannot be written there.
    """

    def __init__(self, path: Path) -> None:
        """Create the temporary file."""
        self.path = path
        self._temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.tmp")
        if path.is_dir():
            raise OutputError("is a folder", where=str(path), hint="name a file in it")
        if path.exists() and not path.is_file():
            raise OutputError("is not a regular file", where=str(path), hint="name another one")
        try:
            self._file = self._temporary.open("x", encoding="utf-8")
        except OSError as error:
            raise output_error(error, path) from error

    def write(self, content: str) -> None:
        """Put the content on the disk, still under the temporary name."""
        try:
            self._file.write(content)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise output_error(error, self.path) from error

    def commit(self) -> None:
        """Take the final name."""
        try:
            self._file.close()
            os.replace(self._temporary, self.path)
        except OSError as error:
            raise output_error(error, self.path) from error

    def close(self) -> None:
        """Remove what has not been committed."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Try whether a file can be written.

    Raises:
        OutputError: if not.
    """
    Staged(path).close()


def output_error(error: OSError, path: Path) -> OutputError:
    """An error of the system as one of ours."""
    what, hint = _REASONS.get(error.errno or 0, ((error.strerror or str(error)).lower(), "choose another path"))
    return OutputError(what, where=str(path), hint=hint)
