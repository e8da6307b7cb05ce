"""Repeated runs in a sequence: the longest part of it that consists of equal blocks, one behind the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_MAX_PERIOD = 512  # items of a block
_MIN_OPS = 4  # of a block
_MIN_COVERED = 12  # ops of all blocks


@dataclass(frozen=True, slots=True)
class Repeat:
    """Blocks of equal items: `count` blocks of `period` items each, from item `start` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """The item behind the last block."""
        return self.start + self.period * self.count


def longest_repeat(tokens: Sequence[int], weights: Sequence[int], cuts: Sequence[int]) -> Repeat | None:
    """The repeat that covers most ops; None if no block of four ops or more occurs in a row, twelve ops or more in all.

    Of several, the one with the smallest blocks is taken. The blocks begin where the fewest values are passed from block to
    block.

    Args:
        tokens: one number per item: equal items have equal numbers.
        weights: the number of ops of each item.
        cuts: per item, the number of values that are passed across its beginning.
    """
    items, ops = np.asarray(tokens), np.concatenate([[0], np.cumsum(weights)])
    best: tuple[int, Repeat, int] | None = None
    for period in range(1, min(len(items) // 2, _MAX_PERIOD) + 1):
        start, length = _longest_run(items[:-period] == items[period:])
        count = (length + period) // period
        covered = int(ops[start + count * period] - ops[start])
        if count < 2 or covered < max(_MIN_OPS * count, _MIN_COVERED):
            continue
        if best is None or covered > best[0]:
            best = covered, Repeat(start, period, count), (length + period) % period
    if best is None:
        return None
    _, repeat, slack = best
    shifted = [Repeat(repeat.start + shift, repeat.period, repeat.count) for shift in range(slack + 1)]
    return min(shifted, key=lambda each: sum(cuts[each.start : each.stop : each.period]))


def _longest_run(flags: np.ndarray) -> tuple[int, int]:
    """The start and the length of the longest run of true values."""
    bounds = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    starts, stops = bounds[::2], bounds[1::2]
    if not len(starts):
        return 0, 0
    longest = int(np.argmax(stops - starts))
    return int(starts[longest]), int(stops[longest] - starts[longest])


__all__ = ["Repeat", "longest_repeat"]
