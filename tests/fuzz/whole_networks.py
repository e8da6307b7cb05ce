"""Networks of examples/zoo: an example is a network for one target in one dialect, optimised and verified."""

import random
import tempfile
from functools import cache, lru_cache
from itertools import product
from pathlib import Path

import networks
import suite
import zoo

from .campaign.isolation import Limits, Outcome
from .campaign.part import Part, Verdict

_BLOCK = 8  # configurations of a network, one after the other, because it takes seconds to fill its weights


@cache
def _examples() -> list[tuple[str, suite.Configuration]]:
    """All networks in all configurations, in random order of blocks."""
    chosen = suite.configurations()
    blocks = [(name, chosen[at : at + _BLOCK]) for name, at in product(zoo.NAMES, range(0, len(chosen), _BLOCK))]
    random.Random("zoo").shuffle(blocks)
    return [(name, configuration) for name, block in blocks for configuration in block]


@lru_cache(maxsize=1)
def _saved(network: str) -> Path:
    return Path(zoo.save(network, Path(tempfile.mkdtemp())))


def examine(seed: int) -> Verdict:
    """The outcome of one network in one configuration."""
    network, configuration = _examples()[seed % len(_examples())]
    found = networks.optimized(str(_saved(network)), configuration)
    context = f"{network} for {suite.target_name(configuration)} in {configuration[1] or 'its own dialect'}"
    if found.wrong.startswith("a gap"):  # on a busy machine
        return Verdict("no proof of the least price", f"{context}: {found.wrong}")
    if found.wrong:
        return Verdict("wrong", f"{context}: {found.wrong}", is_failure=True)
    if not found.changed:
        return Verdict("unchanged")
    return Verdict("equal" if found.verified else "rewritten, for another machine than this")


def keep(seed: int, outcome: Outcome, folder: Path) -> None:
    """Write the network and the configuration."""
    network, (_, dialect) = _examples()[seed % len(_examples())]
    target = suite.target_name(_examples()[seed % len(_examples())][1])
    (folder / "network.txt").write_text(f"{network}, target {target}, dialect {dialect}\n")


PART = Part(
    title="networks of examples/zoo, each in every target and dialect",
    criterion="the optimised network passes verification",
    examine=examine,
    keep=keep,
    prepare=lambda: None,
    size=len(zoo.NAMES) * len(suite.configurations()),
    chunk=_BLOCK,
    limits=Limits(cpu=900.0, wall=3600.0, memory=20 << 30),
)
