"""Memory that this process may still allocate: the least of what the machine, control groups and resource limits leave."""

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")


def available_bytes(proc: Path = _PROC, groups: Path = _GROUPS) -> int | None:
    """The bytes that this process may still allocate without swapping; None if the system does not report it.

    Pages of files that the kernel can drop count as available.

    Args:
        proc: the folder of the process file system.
        groups: the folder of the control groups.
    """
    found = [*_machine(proc), *_groups(proc, groups), *_limits(proc)]
    return max(0, min(found)) if found else None


def _machine(proc: Path) -> Iterator[int]:
    """The memory of the machine that is available; on systems other than Linux the memory that it has."""
    fields = _fields(proc / "meminfo")
    if "MemAvailable" in fields:
        yield fields["MemAvailable"] * 1024
        return
    try:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return


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
                yield int(top) - int(taken) + _fields(each / "memory.stat").get("inactive_file", 0)
            if each == root:
                break


def _limits(proc: Path) -> Iterator[int]:
    """The rest of the limits of this process on data and on address space (`ulimit -d`, `ulimit -v`)."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    fields = _fields(proc / "self/status")
    for kind, used in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            yield limit - fields.get(used, 0) * 1024


def _fields(path: Path) -> dict[str, int]:
    """The numbers of a file with one name and number per line; empty if there is no such file."""
    found = {}
    for line in _text(path).splitlines():
        name, *values = line.replace(":", " ").split()
        if values and values[0].isdigit():
            found[name] = int(values[0])
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
