"""Tasks of worker processes in a module that imports little: every process imports it."""

import os
import signal
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import sleep


def square(folder: Path, number: int) -> int:
    """The square; 3 kills its process always, 4 in the first attempt, 5 raises an exception. Every start leaves a file."""
    attempts = [folder / f"{number}-{each}" for each in range(3)]
    is_first = not attempts[0].exists()
    next(each for each in attempts if not each.exists()).touch()
    if number == 3 or (number == 4 and is_first):
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 5:
        raise ValueError("five")
    return number * number


def wait(folder: Path, seconds: float) -> None:
    with NamedTemporaryFile() as file:
        (folder / str(os.getpid())).write_text(file.name)
        sleep(seconds)
