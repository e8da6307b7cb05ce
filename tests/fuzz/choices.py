"""Sources of random choices: a seed, so that an example can be repeated, or hypothesis, which reduces it."""

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Rejected(Exception):  # noqa: N818  -- not an error
    """There are no options: the generator skips this step."""


class Choices(Protocol):
    """A source of random choices; simpler options have smaller numbers."""

    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""


class Seeded:
    """Choices from a seeded random generator."""

    def __init__(self, seed: object) -> None:
        """Seed the generator."""
        self._random = random.Random(str(seed))

    def number(self, low: int, high: int) -> int:
        """A uniformly distributed number."""
        return self._random.randint(low, high)


class Drawn:
    """Choices of hypothesis."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        """Use the `draw` function of a composite strategy."""
        self._draw = draw

    def number(self, low: int, high: int) -> int:
        """A number of hypothesis's choice."""
        return int(self._draw(_numbers(low, high)))


@lru_cache(maxsize=4096)
def _numbers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


def pick(choices: Choices, options: Sequence[T]) -> T:
    """A random option."""
    return options[between(choices, 0, len(options) - 1)]


def between(choices: Choices, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included.

    Raises:
        Rejected: there is none.
    """
    if low > high:
        raise Rejected
    return choices.number(low, high)


def weighted(choices: Choices, options: Sequence[tuple[T, int]]) -> T:
    """A random option with probability proportional to its weight."""
    place = choices.number(0, sum(weight for _, weight in options) - 1)
    for option, weight in options:
        place -= weight
        if place < 0:
            return option
    raise AssertionError("the weights add up")


def chance(choices: Choices, percent: int) -> bool:
    """True with a probability of `percent` per cent."""
    return choices.number(0, 99) >= 100 - percent


def shuffled(choices: Choices, items: Sequence[T]) -> list[T]:
    """The items in random order."""
    rest, found = list(items), []
    while rest:
        found.append(rest.pop(choices.number(0, len(rest) - 1)))
    return found
