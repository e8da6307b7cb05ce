"""The set-up of a worker process of this machine: its signals, its CPUs, and its end with the process that started it."""

import _thread
import os
import signal
import threading
import time
from collections.abc import Collection
from pathlib import Path
from types import FrameType

GRACE = 5.0
"""Seconds that an interrupted task has to remove its temporary files, before its process is killed."""

_POLL = 0.2  # seconds
_TERMINATED = 143  # 128 + SIGTERM


def prepare_worker(parent: int, stop_file: Path, cpus: Collection[int]) -> None:
    """Prepare this process for tasks.

    Ctrl-C on a terminal reaches all its processes; only the parent handles it. SIGTERM, the stop file and the end of the
    parent, even if that was killed, interrupt the task by an exception, so that it removes its temporary files.

    Args:
        parent: the id of the process that started this one.
        stop_file: the file whose creation interrupts the task.
        cpus: the CPUs of this process, so that two workers do not measure times on one CPU; empty for all.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    if cpus:
        os.sched_setaffinity(0, cpus)
    threading.Thread(target=_watch, args=(parent, stop_file), daemon=True).start()


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(_TERMINATED)


def _watch(parent: int, stop_file: Path) -> None:
    """Interrupt the task and end this process, when the stop file exists or the parent has ended."""
    while not stop_file.exists() and _is_child_of(parent):
        time.sleep(_POLL)
    _interrupt_main_thread()
    time.sleep(GRACE)
    os._exit(_TERMINATED)


def _interrupt_main_thread() -> None:
    """Raise the exception of SIGTERM in the main thread; on POSIX also out of a system call."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    else:
        _thread.interrupt_main(signal.SIGTERM)


def _is_child_of(parent: int) -> bool:
    """Whether this process was started by `parent` and that still runs; True if unknown."""
    return os.name != "posix" or os.getppid() == parent
