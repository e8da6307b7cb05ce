"""Seeds that are not done."""

from bisect import insort
from collections.abc import Collection, Iterable
from itertools import islice

MOST = 1 << 40  # seeds of a part without an end


def seeds_of(first: int, count: int | None, shard: tuple[int, int] = (1, 1)) -> range:
    """The seeds of shard K of N: every N-th of `count` from `first` on."""
    number, of = shard
    return range(first + number - 1, first + (MOST if count is None else count), of)


class Pending:
    """The seeds of a part that are not done, in ascending order.

    Args:
        seeds: all seeds of the part in this shard.
        done: those with an outcome.
    """

    def __init__(self, seeds: range, done: Collection[int]) -> None:
        self._fresh = (seed for seed in seeds if seed not in done)
        self._returned: list[int] = []

    def take(self, count: int) -> list[int]:
        """The next seeds, which are pending no more."""
        taken = self._returned[:count]
        del self._returned[:count]
        return taken + list(islice(self._fresh, count - len(taken)))

    def give_back(self, seeds: Iterable[int]) -> None:
        """Make seeds pending again, which had been taken."""
        for seed in seeds:
            insort(self._returned, seed)
