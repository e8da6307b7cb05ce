"""Cases of ONNX's backend suite: an example is a case in all configurations, without and with layoutopt.

The first round over all cases has every target in every dialect, each further one random prices. The nine networks of the suite
take minutes each and are left out: `benchmarks/backend_suite.py` runs them.
"""

import random
from functools import cache
from pathlib import Path

import suite

from .campaign.isolation import CHUNK, Outcome
from .campaign.part import Part, Verdict

_KINDS = tuple(kind for kind in suite.KINDS if kind != "real")


@cache
def _names() -> list[tuple[str, str]]:
    """The kinds and names of all cases, in random order."""
    names = [(kind, name) for kind in _KINDS for name in suite.cases(kind)]
    random.Random("suite").shuffle(names)
    return names


def _example(seed: int) -> tuple[str, str, list[suite.Configuration]]:
    """The kind and the name of a case, and the configurations."""
    turn, place = divmod(seed, len(_names()))
    return *_names()[place], suite.random_configurations(turn - 1) if turn else suite.configurations()


def examine(seed: int) -> Verdict:
    """The outcome of one case in all configurations."""
    kind, name, chosen = _example(seed)
    found = list(suite.verdicts(suite.cases(kind)[name], chosen))
    wrong = [each for each in found if not each.agrees]
    if wrong:
        return Verdict("differs", f"{len(wrong)} of {len(found)} configurations, the first {wrong[0]}", is_failure=True)
    if any(each.changed for each in found):
        return Verdict("equal")
    if any(each.after == "refused" for each in found):
        return Verdict("refused, does not load")
    return Verdict("unchanged")


def keep(seed: int, outcome: Outcome, folder: Path) -> None:
    """Write the model of a case."""
    kind, name, _ = _example(seed)
    (folder / "model.onnx").write_bytes(suite.load(suite.cases(kind)[name]).model.SerializeToString())
    (folder / "case.txt").write_text(f"{kind} {name}\n")


def prepare() -> None:
    """Find all cases."""
    _names()


PART = Part(
    title="cases of ONNX's backend suite, each in every target and dialect",
    criterion="the case passes if and only if it passes without layoutopt",
    examine=examine,
    keep=keep,
    prepare=prepare,
    chunk=CHUNK // 10,
)
