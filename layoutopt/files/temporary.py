"""Temporary files and folders with the process id in their names, so that a later run can remove those of ended processes.

A name is `.layoutopt-HOST-PID-RANDOM.tmp` for a file in an output folder and `layoutopt-HOST-PID-RANDOM` for a folder in the
system's temporary folder. A process that is killed with SIGKILL leaves them behind. Later runs remove those whose process has
ended, and those of another host, container or boot that are older than a day.
"""

import os
import platform
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from time import time

_STALE_AFTER = 24 * 3600.0  # seconds, for processes of other hosts
_FILE = re.compile(r"\.layoutopt-([0-9a-f]{8})-([0-9]{1,10})-[0-9a-f]{8}\.tmp")
_FOLDER = re.compile(r"layoutopt-([0-9a-f]{8})-([0-9]{1,10})-[0-9a-f]{8}")


def temporary_name() -> str:
    """A new name for a temporary file of this process."""
    return f".{_folder_name()}.tmp"


def _folder_name() -> str:
    return f"layoutopt-{_host()}-{os.getpid()}-{secrets.token_hex(4)}"


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder, which is removed with its contents unless it has been renamed.

    Args:
        parent: the folder in which it is created, with the default permissions; None for the system's temporary folder, where
            only this user may read it.
    """
    mode = 0o700 if parent is None else 0o777
    parent = parent or Path(tempfile.gettempdir())
    remove_stale_folders(parent)
    folder = parent / _folder_name()
    folder.mkdir(mode=mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale_files(folder: Path) -> None:
    """Remove the temporary files in a folder whose processes have ended."""
    for entry in _stale(folder, _FILE):
        if entry.is_file(follow_symlinks=False):
            with suppress(OSError):
                os.unlink(entry.path)


@cache
def remove_stale_folders(parent: Path) -> None:
    """Remove the temporary folders in `parent` whose processes have ended; at most once per process."""
    for entry in _stale(parent, _FOLDER):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)


def _stale(folder: Path, pattern: re.Pattern[str]) -> list["os.DirEntry[str]"]:
    """The entries of a folder with a temporary name whose process has ended."""
    try:
        with os.scandir(folder) as entries:
            named = [(entry, match) for entry in entries if (match := pattern.fullmatch(entry.name))]
    except OSError:  # a missing or unreadable folder is reported by the write
        return []
    return [entry for entry, match in named if _is_stale(entry, match[1], int(match[2]))]


def _is_stale(entry: "os.DirEntry[str]", host: str, pid: int) -> bool:
    try:
        if host == _host() and not _is_alive(pid):
            return True
        return time() - entry.stat(follow_symlinks=False).st_mtime > _STALE_AFTER
    except OSError:
        return False


def _is_alive(pid: int) -> bool:
    """Whether a process of this host runs; True if unknown."""
    if os.name != "posix":  # elsewhere os.kill would terminate the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


@cache
def _host() -> str:
    """Eight hexadecimal digits for this host, boot and process namespace, within which process ids are unique."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return blake2b("\0".join(parts).encode(errors="surrogateescape"), digest_size=4).hexdigest()
