"""Memory that this process may still allocate: the least of what the machine, control groups and resource limits leave."""

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")


def available_bytes(proc: Path = _PROC, groups: Path = _GROUPS) -> int:
    """The bytes that this process may still allocate without swapping.

    Pages of files that the kernel can drop count as available.

    Args:
        proc: the folder of the process file system.
        groups: the folder of the control groups.
    """
    available: int = psutil.virtual_memory().available
    return max(0, min(available, *_groups(proc, groups), *_limits()))


def return_freed_memory() -> None:
    """Return freed memory to the system, which glibc keeps for further allocations; other C libraries keep none or all."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _groups(proc: Path, groups: Path) -> Iterator[int]:
    """The rest of the limit of every control group around this process, of both versions of control groups."""
    for line in _text(proc / "self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, limit, used = groups, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, limit, used = groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = root / path.strip("/")
        # In a container, the group is mounted as the root of the file system, and the path is that of the host.
        for each in (folder, *folder.parents) if folder.is_dir() else (root,):
            top, taken = _text(each / limit).strip(), _text(each / used).strip()
            if top.isdigit() and taken.isdigit():
                _, _, rest = _text(each / "memory.stat").partition("inactive_file ")
                yield int(top) - int(taken) + int(next(iter(rest.split()), 0))
            if each == root:
                break


def _limits() -> Iterator[int]:
    """The rest of the limits of this process on data and on address space (`ulimit -d`, `ulimit -v`), on Linux."""
    process = psutil.Process()
    if not hasattr(process, "rlimit"):
        return
    memory = process.memory_info()
    for kind, used in ((psutil.RLIMIT_DATA, memory.data), (psutil.RLIMIT_AS, memory.vms)):
        limit, _ = process.rlimit(kind)
        if limit != psutil.RLIM_INFINITY:
            yield limit - used


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
