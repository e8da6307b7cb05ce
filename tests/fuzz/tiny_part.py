"""A part for tests of the campaign: of seven examples, one kills its process, one hangs and one raises an exception."""

import os
import signal
import time
from pathlib import Path

from .campaign.isolation import Limits, Outcome
from .campaign.part import Part, Verdict

KINDS = ("equal", "equal", "refused", "killed", "wrong", "hangs", "error of the campaign")


def examine(seed: int) -> Verdict:
    """The outcome in `KINDS`, of which the campaign has to find those of crashes."""
    time.sleep(0.02)
    place = seed % len(KINDS)
    if place == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    while place == 5:
        pass
    if place == 6:
        raise ValueError("a bug of the part")
    return Verdict(KINDS[place], f"detail of {seed}", is_failure=place == 4)


def keep(seed: int, outcome: Outcome, folder: Path) -> None:
    """Write the seed."""
    (folder / "seed.txt").write_text(str(seed))


PART = Part(
    title="examples of a test",
    criterion="it is equal or refused",
    examine=examine,
    keep=keep,
    limits=Limits(cpu=0.1, wall=30.0),
)
