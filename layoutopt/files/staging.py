"""Atomic writes: files are written under temporary names in the target folder, and renamed when they are on the disk.

A name is `.layoutopt-HOST-PID-RANDOM.tmp`, for a file in an output folder and for a folder in the system's temporary folder.
A process that is killed with SIGKILL leaves them behind. Later runs remove those whose process has ended, and those of another
host, container or boot that are older than a day.
"""

import errno
import os
import platform
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from time import time
from types import TracebackType
from typing import BinaryIO

from layoutopt.errors import OutputError

_STALE_AFTER = 24 * 3600.0  # seconds, for processes of other hosts
_NAME = re.compile(r"\.layoutopt-([0-9a-f]{8})-([0-9]{1,10})-[0-9a-f]{8}\.tmp")


def temporary_name() -> str:
    """A new name for a temporary file or folder of this process."""
    return f".layoutopt-{_host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp"


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder, which is removed with its contents unless it has been renamed.

    Args:
        parent: the folder in which it is created, with the default permissions; None for the system's temporary folder, where
            only this user may read it.
    """
    mode = 0o700 if parent is None else 0o777
    parent = parent or Path(tempfile.gettempdir())
    _remove_stale_once(parent)
    folder = parent / temporary_name()
    folder.mkdir(mode=mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale(folder: Path) -> None:
    """Remove the temporary files and folders in a folder whose processes have ended."""
    for entry in _stale(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.is_file(follow_symlinks=False):
            with suppress(OSError):
                os.unlink(entry.path)


_remove_stale_once = cache(remove_stale)


def _stale(folder: Path) -> Iterator["os.DirEntry[str]"]:
    """The entries of a folder with a temporary name whose process has ended."""
    from psutil import pid_exists

    with suppress(OSError), os.scandir(folder) as entries:  # a folder that cannot be read is reported by the write
        for entry in list(entries):
            if (match := _NAME.fullmatch(entry.name)) is None:
                continue
            with suppress(OSError, OverflowError):
                is_ended = match[1] == _host() and not pid_exists(int(match[2]))
                if is_ended or time() - entry.stat(follow_symlinks=False).st_mtime > _STALE_AFTER:
                    yield entry


@cache
def _host() -> str:
    """Eight hexadecimal digits for this host, boot and process namespace, within which process ids are unique."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return blake2b("\0".join(parts).encode(errors="surrogateescape"), digest_size=4).hexdigest()


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


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Raise errors of the operating system as OutputError about `path`."""
    try:
        yield
    except OSError as error:
        what, hint = _REASONS.get(error.errno or 0, ((error.strerror or str(error)).lower(), "choose another path"))
        raise OutputError(what, where=path_text(path), hint=hint) from error
    except ValueError as error:  # a null character, or a name that the file system's encoding cannot express
        raise OutputError("is not a file name", where=path_text(path), hint="name another file") from error


def create_folder(folder: Path) -> None:
    """Create a folder and those around it, if nothing has its path.

    Raises:
        OutputError: it cannot be created.
    """
    with output_errors(folder):
        if not os.path.lexists(folder):
            folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def output_folders(folders: Iterable[Path]) -> Iterator[None]:
    """Context in the end of which those of the folders that did not exist before and are empty are removed."""
    wanted = list(dict.fromkeys(folders))
    missing = {each for folder in wanted for each in (folder, *folder.parents) if not os.path.lexists(each)}
    try:
        yield
    finally:
        for folder in wanted:
            remove_stale(folder)  # of workers that were ended
        for each in sorted(missing, reverse=True):  # inner ones first
            with suppress(OSError):  # a folder with results stays
                each.rmdir()


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
        remove_stale(self._folder)
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
