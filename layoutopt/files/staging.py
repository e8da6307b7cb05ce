"""Atomic writes: files are written under temporary names in the target folder, and renamed when they are on the disk."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from layoutopt.errors import OutputError
from layoutopt.files.temporary import remove_stale_files, temporary_name

_REASONS = {
    errno.ENOENT: ("the folder does not exist", "create it first"),
    errno.ENOTDIR: ("the folder is a file", "name another folder"),
    errno.EACCES: ("no permission to write here", "choose another folder or change its permissions"),
    errno.EPERM: ("no permission to write here", "choose another folder or change its permissions"),
    errno.EROFS: ("the file system is read-only", "choose another folder"),
    errno.ENOSPC: ("no space left on the device", "free some space"),
    errno.EDQUOT: ("the disk quota is used up", "free some space"),
    errno.EFBIG: ("the file is larger than the file system or a limit allows", "choose another folder"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
    errno.ELOOP: ("the symbolic link leads to itself", "name another file"),
}


def path_text(path: str | os.PathLike[str]) -> str:
    """A path as text, with escapes for bytes that are not UTF-8: `caf\\xe9.onnx`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def output_error(error: OSError, path: Path) -> OutputError:
    """An error of the operating system as an OutputError."""
    what, hint = _REASONS.get(error.errno or 0, ((error.strerror or str(error)).lower(), "choose another path"))
    return OutputError(what, where=path_text(path), hint=hint)


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Raise errors of the operating system as OutputError about `path`."""
    try:
        yield
    except OSError as error:
        raise output_error(error, path) from error
    except ValueError as error:  # a null character, or a name that the file system's encoding cannot express
        raise OutputError("is not a file name", where=path_text(path), hint="name another file") from error


def check_writable(path: Path) -> None:
    """Check that a regular file can be written at `path`, without changing an existing file.

    Raises:
        OutputError: no file can be written there.
    """
    with output_errors(path):
        if path.is_dir():
            raise OutputError("is a folder", where=path_text(path), hint="name a file in it")
        if path.exists() and not path.is_file():
            raise OutputError("is not a regular file", where=path_text(path), hint="name another one")
        with suppress(FileNotFoundError):
            os.lstat(path)  # ENAMETOOLONG: the temporary file has another name
        with Staging(path.parent) as staging:
            staging.open()


class Staging:
    """Temporary files in one folder, which are removed at the end unless they have been renamed.

    Args:
        folder: the folder, on whose file system the files are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[BinaryIO, Path] = {}

    def __enter__(self) -> "Staging":
        """Remove temporary files of ended processes from the folder."""
        remove_stale_files(self._folder)
        return self

    def open(self) -> BinaryIO:
        """A new temporary file."""
        temporary = self._folder / temporary_name()
        file = temporary.open("x+b")
        self._files[file] = temporary
        return file

    def commit(self, *renames: tuple[BinaryIO, Path]) -> None:
        """Rename files to their targets, in this order; each rename is on the disk before the next one."""
        for file, target in renames:
            file.flush()
            if target.exists():
                shutil.copymode(target, self._files[file])
            os.fsync(file.fileno())
            file.close()
        for file, target in renames:
            os.replace(self._files.pop(file), target)
            self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the files that were not committed."""
        for file, temporary in self._files.items():
            with suppress(OSError):  # closing writes what is still buffered
                file.close()
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
