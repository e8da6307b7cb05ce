"""The number of worker processes that the memory and the CPUs of this machine permit."""

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import joblib
import psutil

from layoutopt.files import external_files

_PROCESS_BYTES = 1_000_000_000  # libraries, and activations of usual networks
_BYTES_PER_WEIGHT_BYTE = 5
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def estimated_bytes(model: Path) -> int:
    """The estimated memory of a worker process for a model, in bytes, from the size of the model and its external data."""
    files = {os.path.realpath(each) for each in (model, *external_files(model))}
    sizes = [os.path.getsize(each) for each in files if os.path.isfile(each)]
    return _PROCESS_BYTES + _BYTES_PER_WEIGHT_BYTE * sum(sizes)


def available_bytes() -> int:
    """The memory that is available to this process, in bytes: that of the machine, or less in a container with a limit."""
    available: int = psutil.virtual_memory().available
    limits = [_left(*files) for files in _CGROUPS]
    return min(available, *(each for each in limits if each is not None), available)


def permitted_workers(needs: Sequence[int], available: int, cpus: int) -> int:
    """The largest number of workers, at least 1, whose memory is available whichever models they have at the same time.

    Args:
        needs: the memory for each model, in bytes.
        available: the available memory, in bytes.
        cpus: the number of CPU cores.
    """
    totals = accumulate(sorted(needs, reverse=True))
    fitting = sum(total <= available for total in totals)
    return max(1, min(fitting, cpus))


def usable_cores() -> int:
    """The number of physical CPU cores that this process may use."""
    cores: int = joblib.cpu_count(only_physical_cores=True)
    return cores


def _left(limit: Path, usage: Path) -> int | None:
    """The memory that a cgroup has left, in bytes, cached files that it can drop included; None without a limit."""
    try:
        fields = dict(line.split() for line in (limit.parent / "memory.stat").read_text().splitlines())
        return max(0, int(limit.read_text()) - int(usage.read_text()) + int(fields["inactive_file"]))
    except (OSError, ValueError, KeyError):  # no such file, or "max"
        return None
